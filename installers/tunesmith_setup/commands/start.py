"""Open the window. The first time, get the window's libraries before, in a terminal that shows the progress."""

from __future__ import annotations

import argparse

from tunesmith_core.errors import EXIT_DONE, EnvironmentProblem, wrap
from tunesmith_setup.installation import first_start
from tunesmith_setup.progress import Progress

OWN_TERMINAL = "--own-terminal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(OWN_TERMINAL, action="store_true", help="this terminal was opened for this command alone")


def run(arguments: argparse.Namespace) -> int:
    """Open the window."""
    if not first_start.has_display():
        raise EnvironmentProblem("display-missing", "Neither DISPLAY nor WAYLAND_DISPLAY is set.")
    python = first_start.launcher_python()
    if python is None:
        shown = arguments.own_terminal or first_start.has_terminal()
        if not shown and first_start.open_terminal(["start", OWN_TERMINAL]):
            return EXIT_DONE
        try:
            python = first_start.build_launcher(Progress())
        except Exception as error:
            if not arguments.own_terminal:
                raise
            failure = wrap(error)
            Progress().error(failure)
            first_start.wait_for_person()
            return failure.exit_code
    first_start.open_window(python)
    return EXIT_DONE
