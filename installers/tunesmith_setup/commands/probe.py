"""Show what is known about this computer, and which build of PyTorch it gets."""

from __future__ import annotations

import argparse
import dataclasses

from tunesmith_core import terminal
from tunesmith_setup import probe
from tunesmith_setup.commands import probe_report
from tunesmith_setup.environments import profiles
from tunesmith_setup.progress import add_argument, chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the facts to standard output: the fields of `Machine`, and `choice`."""
    machine = probe.machine()
    choice = profiles.choose(machine)
    if arguments.json or arguments.operation:
        chosen(arguments).answer(machine.to_dict() | {"choice": dataclasses.asdict(choice)})
        return 0
    terminal.say("\n".join(probe_report.lines(machine, choice)))
    return 0
