"""Remove what Tunesmith wrote. Shows it first and asks; runs and models go only when named.

The program folder itself goes with its installer.
"""

from __future__ import annotations

import argparse
import sys

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, EnvironmentProblem
from tunesmith_core.messages import Message, said
from tunesmith_setup.installation import uninstall
from tunesmith_setup.progress import add_argument, chosen, size_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("--with-runs", action="store_true", help="also the runs, with checkpoints and adapters")
    parser.add_argument("--with-models", action="store_true", help="also the base models")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the plan, ask, remove. Returns 5 when the person says no, 3 when something could not be removed.

    Raises:
        EnvironmentProblem: `run-busy` while a run is live.
    """
    progress = chosen(arguments)
    planned = uninstall.plan(with_runs=arguments.with_runs, with_models=arguments.with_models)
    uninstall.show(planned, progress)
    if not planned.removed:
        progress.line("Nothing is installed.")
        return EXIT_DONE
    if not arguments.yes and not agreed(planned.num_bytes):
        progress.line("Nothing was removed. With --yes it is removed without asking.")
        return EXIT_STOPPED
    left = uninstall.remove(planned, progress)
    freed = planned.num_bytes - sum(item.num_bytes for item in left)
    progress.line(Message("Freed {size}.", size=size_text(freed)))
    if left:
        progress.line(Message("Not removed: {count}.", count=len(left)))
    return EnvironmentProblem.exit_code if left else EXIT_DONE


def agreed(num_bytes: int) -> bool:
    """Ask the person; no terminal to answer at is no."""
    if not sys.stdin.isatty():
        return False
    return terminal.ask(f"    {said(Message('Remove {size}', size=size_text(num_bytes)))}? [y/N] ") in ("y", "yes")
