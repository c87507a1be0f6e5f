"""What happens before Qt is loaded: a file for crashes, checks of versions and screen, and a way to say what is wrong.

Nothing here imports PySide6 at the top: a broken or missing Qt must end in words, not in a traceback.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from importlib.metadata import PackageNotFoundError, version

from tunesmith_core import files, paths, terminal
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, wrap
from tunesmith_core.messages import said

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)


def open_crash_file() -> None:
    """Lets the interpreter write the stacks of all threads to a file when the process crashes in native code."""
    paths.make_private()
    if paths.read_only_problem():
        return  # the window shows what is there, and says so
    path = files.private_folder(paths.logs_dir()) / "window-crash.log"
    file = path.open("a", encoding="utf-8")
    faulthandler.enable(file)


def check_versions() -> None:
    """Refuses what is known to crash.

    Raises:
        EnvironmentProblem: `python-unsupported` or `system-library-missing`.
    """
    python = sys.version_info[:2]
    if not OLDEST_PYTHON <= python <= NEWEST_PYTHON:
        raise EnvironmentProblem("python-unsupported", f"This is Python {python[0]}.{python[1]}.")
    if python >= (3, 12):
        return
    try:
        qt_version = version("PySide6_Essentials")
    except PackageNotFoundError:
        return  # importing it says what is missing
    if tuple(int(part) for part in qt_version.split(".")[:2]) >= (6, 12):
        raise EnvironmentProblem(
            "python-unsupported",
            f"PySide6 {qt_version} crashes on Python {python[0]}.{python[1]}.",
            hint="Use Python 3.12 or 3.13, or install PySide6-Essentials 6.11.3.",
        )


def check_screen() -> None:
    """Refuses to start on Linux without a screen, where Qt would abort the process.

    Raises:
        EnvironmentProblem: `display-missing`.
    """
    if sys.platform in ("win32", "darwin") or os.environ.get("QT_QPA_PLATFORM"):
        return
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        raise EnvironmentProblem("display-missing", "Neither DISPLAY nor WAYLAND_DISPLAY is set.")


def import_qt() -> None:
    """Loads Qt's widgets.

    Raises:
        EnvironmentProblem: `system-library-missing` with the library's name.
    """
    try:
        import PySide6.QtWidgets  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblem("system-library-missing", f"{error}.") from error


def show_problem(error: BaseException) -> int:
    """Tells the person why there is no window, by the first means that works: Qt, tkinter, the terminal.

    Returns:
        The exit code of the error.
    """
    problem = wrap(error)
    text = f"{said(problem.message)}\n\n{said(problem.hint)}"
    print_problem(problem)
    if os.environ.get("QT_QPA_PLATFORM") != "offscreen":
        _ = _show_with_qt(problem.title, text) or _show_with_tkinter(problem.title, text)
    return problem.exit_code


def print_problem(problem: TunesmithError) -> None:
    """Writes the error to standard error, which may be closed (a start by double click)."""
    terminal.note(f"{problem.title} [{problem.code}]\n{problem.message}\n{problem.hint}")


def _show_with_qt(title: str, text: str) -> bool:
    try:
        check_screen()
        from PySide6.QtWidgets import QApplication

        from tunesmith_gui.plain_text import message_box

        application = QApplication.instance() or QApplication([])
        message_box(title, text).exec()
        del application
    except Exception:
        return False
    return True


def _show_with_tkinter(title: str, text: str) -> bool:
    try:
        import tkinter
        from tkinter import messagebox

        root = tkinter.Tk()
        root.withdraw()
        messagebox.showerror(f"Tunesmith: {title}", text)
        root.destroy()
    except Exception:
        return False
    return True
