"""What goes into the installers: the date, the wheel, uv and a Python for Windows; and programs that are missing."""

from __future__ import annotations

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_setup.build import __main__ as command_line
from tunesmith_setup.build import sources, tools
from tunesmith_setup.packages.uvtool import Uv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="installers are built on Linux")

DATE_S = 1_700_000_000
WHOLE = ("python.exe", "pythonw.exe", "python311.dll", "Lib/os.py", "include/Python.h", "Lib/__pycache__/os.pyc")

FAKE_UV = """
if args[0] == "build":
    open(args[args.index("--out-dir") + 1] + "/tunesmith-1.2.3-py3-none-any.whl", "w").close()
elif "--target" in args:
    target = args[args.index("--target") + 1]
    for name in ("bin/uv", "bin/uv.exe", "bin/uvx.exe", "uv-1.dist-info/licenses/LICENSE-MIT"):
        os.makedirs(os.path.dirname(target + "/" + name), exist_ok=True)
        open(target + "/" + name, "w").write(" ".join(args))
"""


def python_zip(path: Path, names: tuple[str, ...], root: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(root + name, name)
    return path


def test_the_date_is_the_last_commits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(tools.EPOCH_VARIABLE, raising=False)
    monkeypatch.setattr(sources, "REPOSITORY", tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    date = {"GIT_COMMITTER_DATE": f"{DATE_S} +0000", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], env=date, check=True)
    assert sources.source_date_s() == DATE_S
    monkeypatch.setenv(tools.EPOCH_VARIABLE, "12")
    assert sources.source_date_s() == 12


def test_sources_without_a_date_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tools.EPOCH_VARIABLE, "yesterday")
    monkeypatch.setattr(sources, "REPOSITORY", tmp_path)
    with pytest.raises(UserError, match="no commit") as caught:
        sources.source_date_s()
    assert tools.EPOCH_VARIABLE in caught.value.hint


def test_the_wheel_is_built_by_uv_where_hatchling_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = Uv(script(tmp_path / "uv", FAKE_UV))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert sources.build_wheel(tmp_path, uv, DATE_S).name == "tunesmith-1.2.3-py3-none-any.whl"


@pytest.mark.parametrize("system", ["win", "linux"])
def test_uv_is_fetched_for_the_system_and_checked_by_hash(home: Path, tmp_path: Path, system: str) -> None:
    uv = Uv(script(tmp_path / "uv", FAKE_UV))
    folder = sources.fetch_uv(uv, system, tmp_path / "fetched")
    assert {path.name for path in folder.iterdir()} == {sources.UV_PROGRAMS[system], "uv-LICENSE-MIT"}
    words = (folder / sources.UV_PROGRAMS[system]).read_text()
    assert "--require-hashes" in words
    assert sources.PLATFORMS[system] in words


@pytest.mark.parametrize("root", ["", "python/", "a/b/"])
def test_a_whole_python_is_unpacked_wherever_its_root_is(tmp_path: Path, root: str) -> None:
    archive = python_zip(tmp_path / "python.zip", WHOLE, root)
    with zipfile.ZipFile(archive, "a") as more:
        more.writestr("readme.txt", "outside" if root else "inside")
        more.writestr(f"{root}Lib/venv/scripts/nt/python.exe", "template")
        more.writestr(f"{root}Lib/../../evil.txt", "evil")
        more.writestr(f"{root}empty/", "")
    sources.unpack_python(archive, tmp_path / "program" / "python")
    assert (tmp_path / "program/python/Lib/os.py").read_text() == "Lib/os.py"
    assert (tmp_path / "program/python/readme.txt").exists() == (not root)
    assert not (tmp_path / "program/python/Lib/__pycache__").exists()
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("readme.txt",), "holds no CPython"),
        (("python.exe", "pythonw.exe", "python310.dll", "Lib/os.py"), "holds no CPython"),
        (("python.exe", "python312.dll", "Lib/os.py", "include/Python.h"), "lacks pythonw.exe"),
        ((*WHOLE[:3], "python311._pth", "python311.zip"), "embeddable"),
        ((*WHOLE[:4],), "embeddable"),
    ],
)
def test_a_python_that_can_not_serve_is_refused(tmp_path: Path, names: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        sources.unpack_python(python_zip(tmp_path / "python.zip", names), tmp_path / "python")
    assert caught.value.code == "python-unsupported"


@pytest.mark.parametrize("exists", [True, False])
def test_what_is_no_zip_is_refused(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "python.zip").write_text("no zip")
    with pytest.raises(UserError, match="can't be read as a zip"):
        sources.unpack_python(tmp_path / "python.zip", tmp_path / "python")


def test_missing_programs_are_named_with_the_command_that_installs_them(
    home: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(programs / "dpkg-deb", "")
    assert command_line.main(["--output", str(tmp_path / "out")]) == 3
    shown = capsys.readouterr().err
    assert "these programs are missing: makensis, makeself" in shown
    assert "apt-get install --no-install-recommends nsis makeself\n" in shown
    assert not (tmp_path / "out").exists()
    tools.require(["dpkg-deb"])


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["build", "msi"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("tunesmith_setup.build", run_name="__main__", alter_sys=True)
    assert caught.value.code == 2
    assert "msi" in capsys.readouterr().err


def test_a_building_program_that_fails_is_quoted(tmp_path: Path) -> None:
    program = script(tmp_path / "makensis", "print('line 3: bad'); sys.exit(1)")
    with pytest.raises(EnvironmentProblem, match="makensis ended with exit code 1") as caught:
        tools.run([str(program)], tmp_path, DATE_S)
    assert "line 3: bad" in (caught.value.context or "")


def test_a_building_program_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "makensis", "import time; time.sleep(60)")
    monkeypatch.setattr(tools, "TIMEOUT_S", 0.2)
    with pytest.raises(EnvironmentProblem, match=r"makensis: .*timed out"):
        tools.run([str(program)], tmp_path, DATE_S)


def test_a_building_program_sees_the_date_and_no_setting_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    body = "open('seen', 'w').write(' '.join(os.environ[n] for n in ('SOURCE_DATE_EPOCH', 'TZ', 'LC_ALL')))\n"
    tools.run([str(script(tmp_path / "tool", body + "assert 'PYTHONPATH' not in os.environ"))], tmp_path, DATE_S)
    assert (tmp_path / "seen").read_text() == f"{DATE_S} UTC C.UTF-8"


def test_every_kind_asked_for_is_built_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: RecordedProgress
) -> None:
    """The flow around the packages: one wheel, one program folder per system, the sizes told."""
    made: list[tuple[str, bool]] = []

    def make(folder: Path, _wheel: Path, _tools: Path, system: str, python: Path | None) -> None:
        folder.mkdir()
        made.append((system, python is not None))

    def pack(folder: Path, staging: Path, output: Path, version: str, date_s: int) -> Path:
        result = output / f"{staging.name}-{folder.name}-{version}-{date_s}"
        result.write_bytes(bytes(3 * 1024**2))
        return result

    monkeypatch.setenv(tools.EPOCH_VARIABLE, str(DATE_S))
    monkeypatch.setattr(tools, "require", lambda _names: None)
    monkeypatch.setattr(command_line.uvtool, "obtain", lambda _progress: Uv(Path(sys.executable)))
    monkeypatch.setattr(sources, "build_wheel", lambda *_: tmp_path / "wheel")
    monkeypatch.setattr(sources, "fetch_uv", lambda *_: tmp_path / "tools")
    monkeypatch.setattr(command_line, "make_program", make)
    for kind, (system, program, _) in command_line.KINDS.items():
        monkeypatch.setitem(command_line.KINDS, kind, (system, program, pack))
    built = command_line.build(["exe", "deb", "run"], tmp_path / "out", None, progress)
    names = [path.name for path in built]
    assert names == [f"exe-win-0.1.0-{DATE_S}", f"deb-linux-0.1.0-{DATE_S}", f"run-linux-0.1.0-{DATE_S}"]
    assert made == [("win", False), ("linux", False)]
    assert "3 MiB" in progress.text
    assert "holds no Python" in progress.text
    made.clear()
    progress.lines.clear()
    command_line.build(["exe", "deb"], tmp_path / "out", tmp_path / "python.zip", progress)
    assert made == [("win", True), ("linux", False)]
    assert "holds no Python" not in progress.text
