"""Install the program's own files for this user, check them, or remove them and what can be built again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tunesmith_core.errors import EXIT_DONE, UserError
from tunesmith_core.messages import Message
from tunesmith_setup.installation import uninstall, user_program
from tunesmith_setup.progress import Progress

OWN_FOLDER = Path(__file__).resolve().parents[3]
"""The program folder that this module is part of; in a checkout the repository, which has no payload manifest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", type=Path, metavar="FOLDER", help="compare a program folder with its manifest")
    action.add_argument("--uninstall", action="store_true", help="remove program and environments, keep runs (Linux)")
    folder = Message("the program's folder (Linux; {folder})", folder=user_program.default_folder())
    parser.add_argument("--prefix", type=Path, help=folder)


def run(arguments: argparse.Namespace) -> int:
    """Install, check or remove the program."""
    progress = Progress()
    if arguments.check:
        user_program.check(arguments.check)
        progress.line("All program files are intact.")
        return EXIT_DONE
    if sys.platform == "win32":  # pragma: no cover
        raise UserError("usage", "On Windows, Tunesmith-Setup.exe installs and removes the program.")
    folder = (arguments.prefix or user_program.default_folder()).expanduser().absolute()
    if arguments.uninstall:
        return remove(folder, progress)
    user_program.install(OWN_FOLDER, folder, progress)
    progress.line(
        Message(
            "Tunesmith is installed in {folder}. Open it from the menu or with the command tunesmith.", folder=folder
        )
    )
    return EXIT_DONE


def remove(folder: Path, progress: Progress) -> int:
    """Remove the program in a folder and its environments; runs, models and settings are kept and named.

    Raises:
        UserError: `usage` when the folder holds no Tunesmith. EnvironmentProblem: `run-busy` while a run is live.
    """
    user_program.require_program(folder)
    planned = uninstall.plan(with_runs=False, with_models=False)
    left = uninstall.remove(planned, progress) if planned.removed else []
    user_program.uninstall(folder)
    progress.line("Tunesmith was removed.")
    for item in (*left, *planned.kept):
        progress.note(Message("Kept: {path} ({what})", path=item.path, what=item.what))
    return EXIT_DONE
