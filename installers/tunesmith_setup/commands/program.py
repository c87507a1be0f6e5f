"""Install the program's own files for this person, check or remove them; environments and runs are not touched."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tunesmith_core import paths
from tunesmith_core.errors import EXIT_DONE, UserError
from tunesmith_setup import user_program
from tunesmith_setup.progress import Progress

OWN_FOLDER = Path(__file__).resolve().parents[3]
"""The program folder that this module is part of; in a checkout the repository, which has no payload manifest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", type=Path, metavar="FOLDER", help="compare a program folder with its manifest")
    action.add_argument("--uninstall", action="store_true", help="remove the program (Linux; your data is kept)")
    parser.add_argument("--prefix", type=Path, help=f"the program's folder (Linux; {user_program.default_folder()})")


def run(arguments: argparse.Namespace) -> int:
    """Install, check or remove the program."""
    progress = Progress()
    if arguments.check:
        user_program.check(arguments.check)
        progress.line("The program's files are as they were packed.")
        return EXIT_DONE
    if sys.platform == "win32":  # pragma: no cover
        raise UserError("usage", "On Windows, Tunesmith-Setup.exe installs and removes the program.")
    folder = (arguments.prefix or user_program.default_folder()).expanduser().absolute()
    if arguments.uninstall:
        user_program.uninstall(folder)
        progress.line(f"Tunesmith is removed. Your environments, models and runs are kept in {paths.data_root()}.")
        return EXIT_DONE
    user_program.install(OWN_FOLDER, folder, progress)
    progress.line(f"Tunesmith is installed in {folder}: open it from the menu, or with the command tunesmith.")
    return EXIT_DONE
