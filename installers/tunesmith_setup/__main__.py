"""Command line of the installer: install and open the window, train the example, or run the tests."""

from __future__ import annotations

import argparse
import sys

from tunesmith_core.errors import EXIT_STOPPED, TunesmithError, wrap
from tunesmith_setup import install, profiles, test_runner

DESCRIPTION = """Installs Tunesmith for this user and opens its window; without a display it trains the bundled example
instead. The same command continues after an interruption, and needs no network when nothing is missing."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(prog="bootstrap.py", description=DESCRIPTION)
    result.add_argument("--demo", action="store_true", help="train the bundled example instead of opening the window")
    result.add_argument("--profile", choices=sorted(profiles.PROFILES), help="build of PyTorch; chosen by the GPU")
    commands = result.add_subparsers(dest="command", metavar="test")
    test = commands.add_parser("test", help="run the tests; further arguments go to pytest and select tests")
    test.add_argument("--long", action="store_true", help="also the long tests, and the others again on Python 3.12")
    return result


def main(argv: list[str] | None = None) -> int:
    """Run the installer and return its exit code."""
    arguments, rest = parser().parse_known_args(argv)
    if rest and arguments.command != "test":
        parser().error(f"unknown argument: {rest[0]}")
    try:
        if arguments.command == "test":
            return test_runner.run(rest, long=arguments.long)
        return install.run(arguments.profile, demo_wanted=arguments.demo)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. The same command continues; a run that has begun goes on.\n")
        return EXIT_STOPPED
    except Exception as error:
        failure = wrap(error)
        explain(failure)
        return failure.exit_code


def explain(failure: TunesmithError) -> None:
    """Write an error for the person: evidence, code, cause, next step."""
    if failure.context:
        sys.stderr.write(f"{failure.context.rstrip()}\n")
    sys.stderr.write(f"error: {failure.title} [{failure.code}]\n  {failure.message}\nhint: {failure.hint}\n")


if __name__ == "__main__":
    sys.exit(main())
