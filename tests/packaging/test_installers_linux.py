"""The .deb and the .run, built for real, installed, started on a screen, and removed without a trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.packages import DATE_S, VERSION, make_program, screen, wait_for_window
from tests.setup.conftest import script
from tunesmith_core import files
from tunesmith_core.environments import MANIFEST
from tunesmith_setup.build import debian, selfextracting
from tunesmith_setup.installation import program
from tunesmith_setup.packages import system_libraries
from tunesmith_setup.packages.uvtool import LOCKS

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCHER_LOCK = f"launcher-linux-py{sys.version_info[0]}{sys.version_info[1]}.txt"
FAKE_UV = """
if "--version" in args:
    print("uv 0.13.8")
else:
    target = args[args.index("--target") + 1] + "/bin"
    os.makedirs(target)
    open(target + "/uv", "w").write("#!/bin/sh\\necho uv 0.13.8\\n")
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program folder of the Linux packages."""
    return make_program(tmp_path_factory.mktemp("program"), "linux")


@pytest.fixture(scope="module")
def deb(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    return debian.build(packed, folder / "staging", folder, VERSION, DATE_S)


@pytest.fixture(scope="module")
def archive(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return selfextracting.build(packed, folder / "staging", folder, VERSION, DATE_S)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder whose data root holds a finished launcher environment: this Python, which has Qt."""
    folder = tmp_path / "person"
    environment = folder / "data" / "envs" / "launcher"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    locks = {LAUNCHER_LOCK: files.sha256_file(LOCKS / LAUNCHER_LOCK)}
    (environment / MANIFEST).write_text(json.dumps({"locks": locks}))
    (environment.parent / "launcher.current").write_text("launcher\n")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TUNESMITH_HOME", str(folder / "data"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    # makeself leaves an empty folder, named by its process number, where it refuses an archive.
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return folder


def everything_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def run(*command: str | Path, code: int = 0) -> str:
    """Run a command and return what it said."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def start_and_see_the_window(command: Path) -> None:
    with screen() as display:
        environment = os.environ | {"DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}
        done = subprocess.run([str(command)], env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        wait_for_window(display, "Tunesmith")


def dpkg(root: Path, *arguments: str | Path) -> str:
    """Run dpkg on a system of its own below a folder; the packages it depends on are not there."""
    options = ["--force-not-root", "--force-depends", "--force-script-chrootless", "--force-bad-path"]
    return run("dpkg", f"--root={root}", f"--log={root}/dpkg.log", *options, *arguments)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """An empty system for dpkg."""
    root = tmp_path / "system"
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    return root


def test_the_deb_is_installed_started_and_purged(deb: Path, system: Path, person: Path) -> None:
    before = everything_below(person)
    dpkg(system, "--install", deb)
    query = ["dpkg-query", f"--admindir={system}/var/lib/dpkg", "-W", "-f=${Status}", "tunesmith"]
    assert "install ok installed" in run(*query)
    assert program.damaged_files(system / debian.PROGRAM) == []
    command = system / "usr/bin/tunesmith"
    assert f"Tunesmith {VERSION}" in run(command, "version")
    (system / debian.PROGRAM / "app/tunesmith_core/__pycache__").mkdir(exist_ok=True)
    (system / debian.PROGRAM / "app/tunesmith_core/__pycache__/left.pyc").touch()
    assert everything_below(person) == before, "a package writes nothing for the person before the first start"
    start_and_see_the_window(command)
    assert {name.partition("/")[0] for name in everything_below(person)} == {"data"}
    dpkg(system, "--install", deb)
    dpkg(system, "--purge", "tunesmith")
    assert {name for name in everything_below(system) if name.startswith("usr")} == set()
    assert not (system / "usr/lib/tunesmith").exists()


def test_the_deb_holds_what_a_desktop_looks_for(deb: Path, tmp_path: Path) -> None:
    run("dpkg-deb", "--extract", deb, tmp_path)
    share = tmp_path / "usr/share"
    assert (share / "icons/hicolor/scalable/apps/tunesmith.svg").is_file()
    assert (share / "icons/hicolor/256x256/apps/tunesmith.png").read_bytes().startswith(b"\x89PNG")
    for tool, *words in (
        ("desktop-file-validate", share / "applications/tunesmith.desktop"),
        ("appstreamcli", "validate", "--no-net", share / "metainfo/org.tunesmith.Tunesmith.metainfo.xml"),
    ):
        if shutil.which(tool):
            run(tool, *words)
    assert {path.stat().st_mtime for path in tmp_path.rglob("*") if path.is_file()} == {DATE_S}
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()}
    assert modes == {0o644, 0o755}
    assert not list(tmp_path.rglob("dev-linux-*.txt"))
    assert not list(tmp_path.rglob("*-win-*.txt"))


def test_the_deb_names_everything_that_the_window_loads(deb: Path) -> None:
    fields = run("dpkg-deb", "--field", deb)
    for package in system_libraries.WINDOW_LIBRARIES.values():
        assert f" {package}" in fields
    assert "python3 (>= 3.11), python3 (<< 3.14)" in fields
    assert f"Version: {VERSION}" in fields


def test_the_run_installs_starts_upgrades_and_leaves_nothing(archive: Path, person: Path, tmp_path: Path) -> None:
    before = everything_below(person)
    prefix = person / "my programs" / "Tunesmith 训练"
    for _ in range(2):
        said = run("sh", archive, "--quiet", "--", "--prefix", prefix)
        assert str(prefix) in said
        assert program.damaged_files(prefix) == []
    written = {name.partition("/")[0] for name in everything_below(person) - before}
    assert written == {".local", "my programs"}
    assert f"Tunesmith {VERSION}" in run(person / ".local/bin/tunesmith", "version")
    start_and_see_the_window(person / ".local/bin/tunesmith")
    (person / "data/runs/one").mkdir(parents=True, exist_ok=True)
    (person / "data/runs/one/spec.json").touch()
    assert "Kept: " in run("sh", archive, "--quiet", "--", "--uninstall", "--prefix", prefix)
    left = everything_below(person)
    assert "data/runs/one/spec.json" in left
    assert not [name for name in left if not name.startswith(("data/runs/", "data/config/", "data/models/"))]


def test_a_flipped_byte_in_the_run_is_refused(archive: Path, person: Path, tmp_path: Path) -> None:
    run("sh", archive, "--check")
    content = bytearray(archive.read_bytes())
    content[-2000] ^= 1
    damaged = tmp_path / "damaged.run"
    damaged.write_bytes(content)
    assert "checksum" in run("sh", damaged, "--check", code=2).lower()
    run("sh", damaged, "--quiet", code=2)
    assert not (person / ".local").exists()


def test_the_run_refuses_a_folder_that_is_not_its_own(archive: Path, person: Path) -> None:
    (person / "diary").mkdir()
    (person / "diary" / "today.txt").write_text("mine")
    said = run("sh", archive, "--quiet", "--", "--prefix", person / "diary", code=2)
    assert "contains something other than Tunesmith" in said
    assert os.listdir(person / "diary") == ["today.txt"]


@pytest.mark.long
def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    """Assembled twice, in other folders and at another time."""
    folders = [tmp_path / "first", tmp_path / "and the second"]
    programs = [make_program(folder, "linux") for folder in folders]
    wheels = [next((folder / "wheel").iterdir()).read_bytes() for folder in folders]
    assert wheels[0] == wheels[1]
    for builder in (debian, selfextracting):
        parts = [(packed, folder / builder.__name__, folder) for packed, folder in zip(programs, folders, strict=True)]
        first, second = (builder.build(*part, VERSION, DATE_S) for part in parts)
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes(), f"{first.name} differs"


def test_one_command_builds_them(tmp_path: Path, person: Path) -> None:
    """The command of CONTRIBUTING.md, with a uv that has nothing to fetch."""
    script(tmp_path / "programs" / "uv", FAKE_UV)
    environment = os.environ | {
        "PATH": f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / name) for name in ("engine", "installers", "assets")),
    }
    command = [sys.executable, "-m", "tunesmith_setup.build", "--output", str(tmp_path / "out"), "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path / "out") == [f"Tunesmith-{VERSION}.run"]
    assert f"Tunesmith-{VERSION}.run" in done.stdout
