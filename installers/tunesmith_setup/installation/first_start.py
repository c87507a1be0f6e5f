"""Opens the window; when its environment is not there, builds that one first, in a terminal where the person sees it.

Packages hold the program and uv, but not the window's libraries: they are fetched at the first start, by the person's
own account. The training environment is set up later, in the window.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tunesmith_core import environments, files, terminal
from tunesmith_core.environments import MANIFEST
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message, said
from tunesmith_setup.installation import install
from tunesmith_setup.packages.uvtool import LOCKS
from tunesmith_setup.progress import Progress

TERMINALS = (
    ("xdg-terminal-exec",),
    ("x-terminal-emulator", "-e"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("xfce4-terminal", "-x"),
    ("xterm", "-e"),
)
"""Programs that open a terminal on Linux, with the words before the command to run in it."""


def launcher_python() -> Path | None:
    """Return the Python of the window's environment when that is complete and from this program's locks."""
    try:
        folder = environments.pointed_environment(environments.LAUNCHER_POINTER)
        locks: dict[str, str] = dict(files.read_json(folder / MANIFEST)["locks"])
        fitting = all(files.sha256_file(LOCKS / name) == digest for name, digest in locks.items())
    except (EnvironmentProblem, OSError, ValueError, LookupError, TypeError):
        return None
    return environments.environment_python(folder) if fitting and locks else None


def build_launcher(progress: Progress) -> Path:
    """Build the window's environment and return its Python.

    Raises:
        EnvironmentProblem: what stopped it; the next start continues.
    """
    progress.line("First start: installing the libraries of Tunesmith's window.")
    try:
        launcher = install.install_window(progress)
    except EnvironmentProblem as problem:
        hint = Message("{step} Then start Tunesmith again. It continues where it stopped.", step=problem.hint)
        raise EnvironmentProblem(problem.code, problem.message, context=problem.context, hint=hint) from None
    return launcher.python


def open_window(python: Path) -> None:
    """Open the window as a process of its own, which outlives this one and any terminal."""
    flags = 0
    if sys.platform == "win32":  # pragma: no cover
        python = python.with_name("pythonw.exe")
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    subprocess.Popen(
        environments.module_command(python, "tunesmith_gui"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        creationflags=flags,
    )


def has_terminal() -> bool:
    """Return whether a person can read what this process writes."""
    return sys.stdout is not None and sys.stdout.isatty()


def open_terminal(arguments: list[str]) -> bool:
    """Run a command of tunesmith_setup in a terminal of its own; return False when no terminal is found."""
    if sys.platform == "win32":  # pragma: no cover
        console_python = Path(sys.executable).with_name("python.exe")
        command = environments.module_command(console_python, "tunesmith_setup", *arguments)
        subprocess.Popen(command, creationflags=subprocess.CREATE_NEW_CONSOLE)
        return True
    for program, *before in TERMINALS:
        found = shutil.which(program)
        if found:
            command = environments.own_command("tunesmith_setup", *arguments)
            subprocess.Popen([found, *before, *command], start_new_session=True)
            return True
    return False


def wait_for_person() -> None:
    """Keep a terminal open that would close with this process, until Enter is pressed."""
    terminal.say()
    terminal.ask(said(Message("Press Enter to close this window.")) + "\n")


def has_display() -> bool:
    """Return whether a window can be shown; a chosen Qt platform such as offscreen counts as one."""
    return install.has_display() or bool(os.environ.get("QT_QPA_PLATFORM"))
