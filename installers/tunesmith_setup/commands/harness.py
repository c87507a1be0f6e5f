"""Install lm-evaluation-harness, which `tunesmith evaluate RUN --harness TASKS` runs.

Its packages get a folder of their own. How much is downloaded is said first, and nothing is done without a yes.
"""

from __future__ import annotations

import argparse

from tunesmith_setup.environments import kinds
from tunesmith_setup.installation import optional
from tunesmith_setup.probe import interpreters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    optional.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Install what is missing after a yes."""
    return optional.run(arguments, kinds.harness_environment(interpreters.choose()), "lm-evaluation-harness")
