"""Switch back to the previous training environment, after checking it. The same command switches forward again.

Runs, models and settings are not touched, and a run in progress keeps its environment.
"""

from __future__ import annotations

import argparse

from tunesmith_core.errors import EXIT_DONE
from tunesmith_core.messages import Message
from tunesmith_setup.environments import snapshots
from tunesmith_setup.progress import add_argument, chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Go back, and say what is in use now. Raises EnvironmentProblem when there is nothing good to go back to."""
    progress = chosen(arguments)
    name = snapshots.go_back(progress)
    progress.line(Message("Runs now use {name}. Run the same command to switch back.", name=name))
    return EXIT_DONE
