"""Run every check and test in a test environment of its own. Further arguments go to pytest and select tests."""

from __future__ import annotations

import argparse

from tunesmith_setup.build import test_runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command; what it does not know is left for pytest."""
    parser.add_argument("--long", action="store_true", help="also the long tests, and the others again on Python 3.12")
    parser.set_defaults(rest_allowed=True)


def run(arguments: argparse.Namespace) -> int:
    """Run the tests."""
    return test_runner.run(arguments.rest, long=arguments.long)
