"""Open the window, which sets up training. Without a display, install everything and train the bundled example."""

from __future__ import annotations

import argparse
import dataclasses

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE
from tunesmith_setup import progress
from tunesmith_setup.environments import profiles
from tunesmith_setup.installation import install


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--demo", action="store_true", help="train the bundled example instead of opening the window")
    parser.add_argument(
        "--profile", choices=sorted(profiles.PROFILES), help="install everything first, with this build of PyTorch"
    )
    parser.add_argument("--plan", action="store_true", help="show what would be fetched and written, and write nothing")
    parser.add_argument("--json", action="store_true", help="with --plan: print JSON for programs")
    parser.add_argument("--training-only", action="store_true", help="install what training needs, without the window")
    progress.add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the plan; or install what is wanted, then open the window or train the example."""
    reporter = progress.chosen(arguments)
    if arguments.plan:
        plan = install.wanted(arguments.profile, reporter, training_only=arguments.training_only).plan()
        reporter.plan(plan)
        if arguments.json:
            terminal.say_json(dataclasses.asdict(plan))
        return EXIT_DONE
    if arguments.training_only:
        install.install(arguments.profile, reporter, window=False, training_only=True)
        return EXIT_DONE
    return install.run(arguments.profile, reporter, demo_wanted=arguments.demo)
