"""The first start gets the window's libraries where the person sees it; later starts only open the window."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.setup.conftest import script
from tunesmith_core import environments, files, paths
from tunesmith_core.environments import MANIFEST
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup import __main__ as command_line
from tunesmith_setup.environments import envs
from tunesmith_setup.installation import first_start
from tunesmith_setup.packages import system_libraries, uvtool
from tunesmith_setup.packages.uvtool import LOCKS
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals and scripts of Linux")

LOCK = "launcher-linux-py311.txt"


def make_launcher(home: Path, locks: dict[str, str]) -> Path:
    """Make a launcher environment whose Python writes its arguments to the file `started`."""
    folder = home / "envs" / "launcher-linux-py311-12345678"
    body = f"open({str(home / 'started')!r}, 'w').write(' '.join(args))"
    python = script(folder / "bin" / "python", body)
    (folder / MANIFEST).write_text(json.dumps({"locks": locks}))
    (home / "envs" / "launcher.current").write_text(folder.name)
    return python


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A display that nothing here opens a window on."""
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, home: Path, interpreter: Interpreter) -> list[str]:
    """Replaces the building of environments; holds the names of what was built."""
    names: list[str] = []
    monkeypatch.setattr(interpreters, "choose", lambda: interpreter)
    monkeypatch.setattr(system_libraries, "ensure", lambda _progress: None)
    monkeypatch.setattr(uvtool, "obtain", lambda _progress: None)

    def build(environment: envs.Environment, *_: Any, **__: Any) -> None:
        names.append(environment.kind)
        make_launcher(home, {LOCK: files.sha256_file(LOCKS / LOCK)}).rename(home / "python")
        environment.python.parent.mkdir(parents=True, exist_ok=True)
        (home / "python").rename(environment.python)

    monkeypatch.setattr(envs, "build", build)
    return names


def wait_for(path: Path) -> str:
    """Return what a process that was let go writes into a file."""
    deadline = time.monotonic() + 30
    while not path.is_file() or not path.read_text():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.01)
    return path.read_text()


def test_a_later_start_opens_the_window_at_once(home: Path, screen: None, built: list[str]) -> None:
    make_launcher(home, {LOCK: files.sha256_file(LOCKS / LOCK)})
    assert command_line.main(["start"]) == 0
    words = wait_for(home / "started").split()
    assert words[:3] == ["-I", "-X", "utf8"]
    assert words[-1] == "tunesmith_gui"
    assert built == []


@pytest.mark.parametrize("locks", [{}, {LOCK: "0" * 64}, {"launcher-linux-py399.txt": "0" * 64}])
def test_an_environment_of_another_version_does_not_count(home: Path, locks: dict[str, str]) -> None:
    make_launcher(home, locks)
    assert first_start.launcher_python() is None


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"locks": 3}'])
def test_an_incomplete_environment_does_not_count(home: Path, manifest: str | None) -> None:
    folder = make_launcher(home, {}).parents[1]
    (folder / MANIFEST).unlink()
    if manifest is not None:
        (folder / MANIFEST).write_text(manifest)
    assert first_start.launcher_python() is None


def test_the_first_start_in_a_terminal_builds_and_opens(
    home: Path, screen: None, built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_start, "has_terminal", lambda: True)
    assert command_line.main(["start"]) == 0
    assert built == ["launcher"]
    assert "tunesmith_gui" in wait_for(home / "started")
    shown = capsys.readouterr().out
    assert "First start" in shown
    assert str(paths.data_root()) in shown


def test_without_a_terminal_one_is_opened(
    home: Path, screen: None, built: list[str], programs: Path, tmp_path: Path
) -> None:
    note = tmp_path / "terminal"
    script(programs / "konsole", f"open({str(note)!r}, 'w').write(' '.join(args))")
    assert command_line.main(["start"]) == 0
    words = wait_for(note).split()
    assert words[0] == "-e"
    assert words[-3:] == ["tunesmith_setup", "start", "--own-terminal"]
    assert built == []


def test_a_terminal_that_was_opened_for_it_opens_no_other(
    home: Path, screen: None, built: list[str], programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(programs / "konsole", f"open({str(tmp_path / 'terminal')!r}, 'w').write('')")
    assert command_line.main(["start", "--own-terminal"]) == 0
    assert built == ["launcher"]
    wait_for(home / "started")
    assert not (tmp_path / "terminal").exists()


def test_without_any_terminal_it_is_built_nevertheless(
    home: Path, screen: None, built: list[str], programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["start"]) == 0
    assert built == ["launcher"]
    wait_for(home / "started")


def test_a_terminal_of_its_own_stays_until_the_error_is_read(
    home: Path,
    screen: None,
    built: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise EnvironmentProblem("environment-build-failed", "No connection to the package index.")

    pressed = io.StringIO("\n")
    monkeypatch.setattr(envs, "build", refuse)
    monkeypatch.setattr(sys, "stdin", pressed)
    assert command_line.main(["start", "--own-terminal"]) == 3
    assert pressed.read() == ""
    shown = capsys.readouterr()
    assert "Press Enter" in shown.out
    assert "No connection to the package index." in shown.err
    assert "Then start Tunesmith again. It continues where it stopped." in shown.err


def test_an_error_in_the_persons_terminal_asks_for_nothing(
    home: Path,
    screen: None,
    built: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(first_start, "has_terminal", lambda: True)
    monkeypatch.setattr(envs, "build", lambda *_: 1 // 0)
    assert command_line.main(["start"]) == 1
    assert "Press Enter" not in capsys.readouterr().out


def test_without_a_screen_nothing_is_fetched(
    home: Path, built: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert command_line.main(["start"]) == 3
    assert "[display-missing]" in capsys.readouterr().err
    assert built == []


@pytest.mark.skipif(sys.platform == "win32", reason="there a console is opened")
def test_a_terminal_lives_on_when_this_process_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, object]]] = []
    program, *before = first_start.TERMINALS[1]
    monkeypatch.setattr(first_start.shutil, "which", lambda name: f"/bin/{name}" if name == program else None)
    monkeypatch.setattr(first_start.subprocess, "Popen", lambda words, **more: started.append((words, more)))
    assert first_start.open_terminal(["start", "--own-terminal"])
    command = environments.own_command("tunesmith_setup", "start", "--own-terminal")
    assert started == [([f"/bin/{program}", *before, *command], {"start_new_session": True})]


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_what_nobody_reads_is_no_terminal(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    assert not first_start.has_terminal()


def test_the_first_words_of_a_package_without_any_python_are_clear(tmp_path: Path) -> None:
    """The start script of the Linux packages, on a system whose Pythons are all too old."""
    source = Path(__file__).resolve().parents[2] / "installers" / "linux" / "tunesmith"
    text = source.read_text(encoding="utf-8").replace("/usr/bin/python3", "/nowhere/python3")
    (tmp_path / "tunesmith").write_text(text, encoding="utf-8")
    for name in ("dirname", "readlink"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    script(tmp_path / "python3", "sys.exit(1)")
    answer = subprocess.run(
        ["/bin/sh", str(tmp_path / "tunesmith")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 3
    assert "Tunesmith needs Python 3.11, 3.12 or 3.13" in answer.stderr
