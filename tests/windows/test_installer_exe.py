"""Tunesmith-Setup.exe, run for real: what it refuses, what it writes, how it upgrades, and that it leaves nothing."""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.packages import DATE_S, VERSION, make_program, screen, wait_for_window
from tests.windows.conftest import PATIENCE_S
from tests.windows.rig import Rig
from tunesmith_core import files
from tunesmith_core.environments import MANIFEST
from tunesmith_setup.build import __main__ as build
from tunesmith_setup.build import sources, windows
from tunesmith_setup.installation import program
from tunesmith_setup.packages.uvtool import LOCKS, Uv

KEY = r"Software\Microsoft\Windows\CurrentVersion\Uninstall\Tunesmith"
KEYS = (KEY, r"Software\Tunesmith")
PYTHON_KEY = r"Software\Python\PythonCore\3.11\InstallPath"
NEVER_PACKED = {"site-packages", "Scripts", "__pycache__", "python3.def"}
UNUSED = set("distutils lib2to3 ensurepip pydoc_data unittest tests tcl86t.dll tk86t.dll _tkinter.pyd".split())
"""Parts of the Python that the setup does not need; without them the quick tests compress less."""

REGISTRY_VALUES = r"""
import json, sys, winreg
def values(path):
    try:
        key = winreg.OpenKey(winreg.HKEY_CURRENT_USER, path)
    except FileNotFoundError:
        return None
    with key:
        return dict(winreg.EnumValue(key, number)[:2] for number in range(winreg.QueryInfoKey(key)[1]))
print(json.dumps([values(path) for path in sys.argv[1:]]))
"""


@pytest.fixture(scope="module", autouse=True)
def _can_build() -> None:
    if not shutil.which("makensis"):
        pytest.skip("NOT TESTED ON WINDOWS: makensis missing on this computer")


def python_archive(rig: Rig, target: Path, left_out: set[str]) -> Path:
    """Pack the rig's Python as `--python` takes it, without some names."""
    base = rig.drive_c / "python"
    with zipfile.ZipFile(target, "w") as archive:
        for path in base.rglob("*"):
            inside = path.relative_to(base)
            if path.is_file() and not (left_out | NEVER_PACKED) & set(inside.parts):
                archive.write(path, f"python/{inside.as_posix()}")
    return target


@pytest.fixture(scope="module")
def small(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A setup that uses the Python of the person, on C:."""
    folder = tmp_path_factory.mktemp("small")
    return build_setup(rig, make_program(folder, "win"), folder, "small.exe")


@pytest.fixture(scope="module")
def whole(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A setup that brings a Python, on C:."""
    folder = tmp_path_factory.mktemp("whole")
    packed = make_program(folder, "win", python_archive(rig, folder / "python.zip", UNUSED))
    return build_setup(rig, packed, folder, "whole.exe")


def build_setup(rig: Rig, packed: Path, folder: Path, name: str) -> Path:
    """Build a setup from a program folder and put it onto C:."""
    built = windows.build(packed, folder / "staging", folder, VERSION, DATE_S)
    return Path(shutil.copy(built, rig.drive_c / name))


@pytest.fixture
def python_of_the_person(rig: Rig) -> Iterator[None]:
    """Python 3.11 as its own installer registers it."""
    rig.run(["reg", "add", rf"HKCU\{PYTHON_KEY}", "/ve", "/d", "C:\\python", "/f"], PATIENCE_S)
    yield
    rig.run(["reg", "delete", rf"HKCU\{PYTHON_KEY}", "/f"], PATIENCE_S)


@pytest.fixture(autouse=True)
def nothing_is_left(rig: Rig) -> Iterator[None]:
    """What a failed test left must not fail the next one."""
    yield
    if shortcuts(rig):
        rig.run(["reg", "delete", rf"HKCU\{KEY}", "/f"], PATIENCE_S)
        for link in shortcuts(rig):
            link.unlink()


@pytest.fixture
def data(rig: Rig, windows_tmp: Path) -> dict[str, str]:
    """Variables that name a data root of this test."""
    (windows_tmp / "data").mkdir()
    root = rig.windows_path(windows_tmp / "data")
    return {"TUNESMITH_HOME": root, "TUNESMITH_WORK": root}


def silently(rig: Rig, setup: Path, folder: str, **variables: str) -> tuple[int, str]:
    """Run a setup as `setup.exe /S /D=FOLDER`; the folder has no spaces, because Wine would quote it."""
    return rig.run([rig.windows_path(setup), "/S", f"/D={folder}"], PATIENCE_S, **variables)


def by_command_line(rig: Rig, line: str, **variables: str) -> tuple[int, str]:
    """Run a program by its raw command line, which Wine would quote otherwise; return exit code and output."""
    call = "import os, subprocess, sys; sys.exit(subprocess.run(os.environ['LINE']).returncode)"
    return rig.python("-c", call, timeout_s=PATIENCE_S, LINE=line, **variables)


def registered(rig: Rig, *keys: str) -> list[dict[str, object] | None]:
    code, output = rig.python("-c", REGISTRY_VALUES, *keys, timeout_s=PATIENCE_S)
    assert code == 0, output
    # Wine may say something of its own before.
    values: list[dict[str, object] | None] = json.loads(output.splitlines()[-1])
    return values


def shortcuts(rig: Rig) -> list[Path]:
    """The shortcuts that the setup wrote anywhere."""
    return sorted([*(rig.drive_c / "users").rglob("Tunesmith*.lnk"), *(rig.folder / "home").rglob("Tunesmith*.lnk")])


def test_without_any_python_the_setup_says_what_is_missing(rig: Rig, small: Path) -> None:
    code, said = silently(rig, small, r"C:\t\none")
    assert code == 3
    assert "no Python 3.11, 3.12 or 3.13" in said
    assert not (rig.drive_c / "t" / "none").exists()


REFUSED = {
    "C:\\": "no folder that programs can be installed into",
    r"\\server\share\Tunesmith": "no folder that programs can be installed into",
    r"Q:\Tunesmith": "no folder that programs can be installed into",
    r"C:\Windows": "holds other files",
    "C:\\" + "a" * 180: "too long for Windows",
    r"Z:\proc\tunesmith": "can't be written by your account",
    r"C:\users\cloud\Tunesmith": "inside OneDrive",
    r"N:\Tunesmith": "on the network",
    r"R:\Tunesmith": "removable drive",
}
"""Folders, and words of the reason why the setup does not take them."""


def test_folders_that_can_not_serve_are_refused(
    rig: Rig, small: Path, python_of_the_person: None, drives: None
) -> None:
    for folder, reason in REFUSED.items():
        code, said = silently(rig, small, folder, OneDrive=r"C:\Users\Cloud")
        assert code == 2, f"{folder}: {said}"
        assert reason in said, folder
    assert registered(rig, KEY) == [None]
    assert shortcuts(rig) == []


@pytest.fixture(scope="module")
def drives(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A network drive N: and a removable drive R:."""
    kinds = {"n:": "network", "r:": "floppy"}
    for letter, kind in kinds.items():
        (rig.folder / "prefix" / "dosdevices" / letter).symlink_to(tmp_path_factory.mktemp("drive"))
        rig.run(["reg", "add", r"HKLM\Software\Wine\Drives", "/v", letter, "/d", kind, "/f"], PATIENCE_S)
    rig.kill_all()  # the kinds are read at the start
    yield
    for letter in kinds:
        rig.run(["reg", "delete", r"HKLM\Software\Wine\Drives", "/v", letter, "/f"], PATIENCE_S)
        (rig.folder / "prefix" / "dosdevices" / letter).unlink()
    rig.kill_all()


@pytest.mark.parametrize("name", ["LICENSE.txt", "app/tunesmith_core/files.py"])
def test_a_payload_with_a_flipped_byte_is_refused(
    rig: Rig, python_of_the_person: None, tmp_path: Path, windows_tmp: Path, name: str
) -> None:
    """Packed with a byte that its manifest does not know: the setup's own checksum can't see that."""
    packed = make_program(tmp_path, "win")
    victim = packed / name
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    setup = build_setup(rig, packed, tmp_path, "tampered.exe")
    target = windows_tmp / "T"
    code, said = silently(rig, setup, rig.windows_path(target))
    assert code == 3
    assert "not as it was packed" in said
    assert "Traceback" not in said
    if victim.suffix != ".py":
        assert f"changed: {name}" in said, "a damaged module may be one that the check itself needs"
    assert not target.exists()
    assert registered(rig, KEY) == [None]


def test_a_setup_with_a_flipped_byte_does_not_start(rig: Rig, small: Path, windows_tmp: Path) -> None:
    content = bytearray(small.read_bytes())
    content[-5000] ^= 1
    damaged = windows_tmp / "damaged.exe"
    damaged.write_bytes(content)
    assert silently(rig, damaged, rig.windows_path(windows_tmp / "T"))[0] != 0
    assert not (windows_tmp / "T").exists()


def test_installing_upgrading_and_removing(rig: Rig, whole: Path, windows_tmp: Path, data: dict[str, str]) -> None:
    """Into a path with spaces and Chinese letters, silently; nothing is left but what the person made."""
    target = windows_tmp / "My Apps" / "Tunesmith 训练"
    name = rig.windows_path(target)
    install = f"{rig.windows_path(whole)} /S /D={name}"
    assert by_command_line(rig, install, **data) == (0, "")
    folder = target / "program"
    assert program.damaged_files(folder) == []
    assert sorted(path.name for path in target.iterdir()) == ["Uninstall.exe", "program"]
    (entry,) = registered(rig, KEY)
    assert entry is not None
    assert entry["UninstallString"] == f'"{name}\\Uninstall.exe"'
    assert entry["QuietUninstallString"] == f'"{name}\\Uninstall.exe" /S'
    assert entry["DisplayVersion"] == VERSION
    assert abs(int(str(entry["EstimatedSize"])) * 1024 - files.folder_bytes(folder)) < 2048
    start = f'-I -X utf8 "{name}\\program\\app\\tunesmith_core\\start.py" tunesmith_setup start'
    links = shortcuts(rig)
    assert len(links) == 2
    for link in links:
        content = link.read_bytes()
        texts = [content[offset:].decode("utf-16-le", errors="ignore") for offset in (0, 1)]
        assert any(start in text for text in texts)
        assert any("pythonw.exe" in text for text in texts)
    command = [f"{name}\\program\\python\\python.exe", "-I", "-X", "utf8"]
    script = f"{name}\\program\\app\\tunesmith_core\\start.py"
    code, said = rig.run([*command, script, "tunesmith_core", "version"], PATIENCE_S, **data)
    assert (code, said.strip()) == (0, f"Tunesmith {VERSION}")

    (folder / "app" / "of_an_older_version.py").write_text("old")
    (folder / "LICENSE.txt").write_text("old")
    (target / "program.new").mkdir()
    assert by_command_line(rig, install, **data) == (0, "")
    assert program.damaged_files(folder) == []
    assert sorted(path.name for path in target.iterdir()) == ["Uninstall.exe", "program"]

    for part in ("envs", "cache", "runs", "models"):
        (windows_tmp / "data" / part).mkdir()
        (windows_tmp / "data" / part / "file").write_text("content")
    remove(rig, target, "", data)
    assert sorted(path.name for path in (windows_tmp / "data").iterdir()) == ["models", "runs"]
    assert shortcuts(rig) == []


REMOVE = """
import os, subprocess, time
subprocess.run(os.environ["LINE"])
while os.path.exists(os.environ["FOLDER"]):
    time.sleep(0.1)
"""


def remove(rig: Rig, target: Path, arguments: str, data: dict[str, str]) -> None:
    """Run the uninstaller and wait until it is done.

    It starts a copy of itself and exits. The rig would kill that copy when the first process exits.
    """
    folder = rig.windows_path(target)
    variables = {"LINE": f'"{folder}\\Uninstall.exe" /S {arguments}', "FOLDER": folder}
    rig.python("-c", REMOVE, timeout_s=PATIENCE_S, **variables, **data)
    deadline = time.monotonic() + PATIENCE_S
    # The registry comes last.
    while registered(rig, *KEYS) != [None, None] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert registered(rig, *KEYS) == [None, None]
    assert not target.exists()


def test_removing_the_data_too_when_told(
    rig: Rig, small: Path, python_of_the_person: None, windows_tmp: Path, data: dict[str, str]
) -> None:
    target = windows_tmp / "T"
    assert silently(rig, small, rig.windows_path(target) + "\\", **data)[0] == 0
    before = registered(rig, KEY)
    assert rig.run([rig.windows_path(small), "/S"], PATIENCE_S, **data)[0] == 0, "an upgrade finds the folder itself"
    assert registered(rig, KEY) == before
    assert before[0] is not None
    assert before[0]["InstallLocation"] == rig.windows_path(target)
    (windows_tmp / "data" / "runs" / "one").mkdir(parents=True)
    remove(rig, target, "/DATA=remove", data)
    assert not (windows_tmp / "data" / "runs").exists()


@pytest.mark.long
def test_the_real_setup_brings_a_working_uv(
    rig: Rig, uv: Uv, tmp_path: Path, windows_tmp: Path, data: dict[str, str]
) -> None:
    """The whole thing as `python -m tunesmith_setup.build --python ARCHIVE exe` makes it."""
    wheel = sources.build_wheel(tmp_path / "wheel", uv, DATE_S)
    archive = python_archive(rig, tmp_path / "python.zip", set())
    build.make_program(tmp_path / "win", wheel, sources.fetch_uv(uv, "win", tmp_path / "uv"), "win", archive)
    setup = build_setup(rig, tmp_path / "win", tmp_path, "real.exe")
    target = windows_tmp / "Tunesmith 训练"
    name = rig.windows_path(target)
    assert by_command_line(rig, f"{rig.windows_path(setup)} /S /D={name}", **data) == (0, "")
    code, said = rig.run([f"{name}\\program\\tools\\uv.exe", "--version"], PATIENCE_S)
    assert (code, said.split()[:2]) == (0, ["uv", "0.13.8"])
    remove(rig, target, "", data)
    assert not target.exists()


@pytest.mark.long
def test_the_shortcut_opens_the_window(rig: Rig, uv: Uv, whole: Path, windows_tmp: Path, data: dict[str, str]) -> None:
    """As at a later start: the window's libraries are there. Wine follows shortcuts to plain English folders only."""
    target = windows_tmp / "Tunesmith"
    assert silently(rig, whole, rig.windows_path(target), **data) == (0, "")
    lock = "launcher-win-py311.txt"
    rig.environment("window", lock, uv)
    environment = rig.drive_c / "envs" / "window"
    shutil.copy(rig.drive_c / "python" / "Lib" / "venv" / "scripts" / "nt" / "pythonw.exe", environment / "Scripts")
    (environment / MANIFEST).write_text(json.dumps({"locks": {lock: files.sha256_file(LOCKS / lock)}}))
    (windows_tmp / "data" / "envs").mkdir()
    (windows_tmp / "data" / "envs" / "launcher.current").write_text(rig.windows_path(environment))
    with screen() as display:
        rig.kill_all()
        link = next(path for path in shortcuts(rig) if "Start Menu" in str(path))
        process = rig.start(["start", "/unix", str(link)], DISPLAY=display, **data)
        try:
            wait_for_window(display, "Tunesmith")
        finally:
            rig.kill_all()
            process.communicate(timeout=PATIENCE_S)
    remove(rig, target, "", data)
    assert not target.exists()
