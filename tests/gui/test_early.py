"""Before Qt: what can't work ends in words, a code and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith_core.environments import own_command
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_gui import early


def test_this_machine_passes() -> None:
    early.check_versions()
    early.import_qt()


@pytest.mark.parametrize("python", [(3, 10), (3, 14)])
def test_other_pythons_are_refused(monkeypatch: pytest.MonkeyPatch, python: tuple[int, int]) -> None:
    monkeypatch.setattr(sys, "version_info", (*python, 0, "final", 0))
    with pytest.raises(EnvironmentProblem, match=f"Python 3.{python[1]}") as caught:
        early.check_versions()
    assert caught.value.code == "python-unsupported"


@pytest.mark.parametrize(
    ("python", "qt", "refused"),
    [((3, 11), "6.12.0", True), ((3, 11), "6.11.3", False), ((3, 11), "7.0.1", True), ((3, 12), "6.12.0", False)],
)
def test_qt_that_crashes_on_old_pythons_is_refused(
    monkeypatch: pytest.MonkeyPatch, python: tuple[int, int], qt: str, refused: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", (*python, 0, "final", 0))
    monkeypatch.setattr(early, "version", lambda _name: qt)
    if not refused:
        early.check_versions()
        return
    with pytest.raises(EnvironmentProblem, match="crashes") as caught:
        early.check_versions()
    assert "3.12" in caught.value.hint


@pytest.mark.skipif(sys.platform == "win32", reason="Windows always has a screen")
def test_no_screen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentProblem) as caught:
        early.check_screen()
    assert caught.value.code == "display-missing"
    monkeypatch.setenv("DISPLAY", ":9")
    early.check_screen()


def test_missing_system_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PySide6.QtWidgets", None)
    with pytest.raises(EnvironmentProblem) as caught:
        early.import_qt()
    assert caught.value.code == "system-library-missing"


def test_crash_in_native_code_leaves_the_stacks_in_a_file(home: Path) -> None:
    code = "import faulthandler, sys; sys.path[:0] = {}; from tunesmith_gui import early; early.open_crash_file()"
    subprocess.run([sys.executable, "-c", f"{code.format(sys.path)}; faulthandler._sigsegv()"], capture_output=True)
    assert "Segmentation fault" in (home / "logs" / "window-crash.log").read_text(encoding="utf-8")


def test_problem_without_any_screen_goes_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(early, "_show_with_qt", lambda _title, _text: False)
    monkeypatch.setattr(early, "_show_with_tkinter", lambda _title, _text: False)
    code = early.show_problem(EnvironmentProblem("python-unsupported", "This is Python 3.9."))
    assert code == 3
    written = capsys.readouterr().err
    assert "[python-unsupported]" in written
    assert "This is Python 3.9." in written
    assert "Traceback" not in written


def test_closed_standard_error_is_no_second_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    early.print_problem(EnvironmentProblem("display-missing", "no screen"))


def test_first_means_that_works_is_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    monkeypatch.setattr(early, "_show_with_qt", lambda _title, _text: asked.append("qt"))
    monkeypatch.setattr(early, "_show_with_tkinter", lambda _title, _text: asked.append("tkinter") or True)
    early.show_problem(ValueError("odd"))
    assert asked == ["qt", "tkinter"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows always has a screen")
def test_start_without_a_screen_ends_with_words_and_3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run(own_command("tunesmith_gui"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "[display-missing]" in done.stderr
    assert "Traceback" not in done.stderr
