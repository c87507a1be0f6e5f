"""Show what is known about this computer."""

from __future__ import annotations

import argparse
import json
import sys

from tunesmith_setup import probe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> int:
    """Write the facts to standard output."""
    machine = probe.machine()
    if arguments.json:
        sys.stdout.write(json.dumps(machine.to_dict(), indent=2, ensure_ascii=False) + "\n")
    return 0
