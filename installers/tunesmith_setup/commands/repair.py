"""Repair what the checks find, one fault at a time. Shows each repair first, asks, and checks it afterwards.

Runs, models and settings are never touched.
"""

from __future__ import annotations

import argparse
import sys

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE, EnvironmentProblem, UserError, wrap
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.setup_messages import Finding, State
from tunesmith_setup import checks, probe
from tunesmith_setup.checks.base import Check, verify
from tunesmith_setup.progress import Progress, add_argument, chosen

GOOD = (State.OK, State.UNKNOWN)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--yes", action="store_true", help="repair everything without asking")
    parser.add_argument("--check", metavar="ID", help="only the problem that this check found")
    parser.add_argument("--full", action="store_true", help="read every installed byte to find problems")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Mend fault after fault. Returns 3 when something that must be mended is left, else 0.

    Raises:
        UserError: `usage` for a check that does not exist.
    """
    progress = chosen(arguments)
    every = checks.all_checks(full=arguments.full)
    wanted = [check for check in every if arguments.check in (None, check.id)]
    if not wanted:
        raise UserError(
            "usage",
            "There is no check named {check}. Available: {every}.",
            check=arguments.check,
            every=", ".join(check.id for check in every),
        )
    machine = probe.machine()
    left = [
        check.title
        for check in wanted
        if machine.system in check.systems and not mend(check, machine, progress, asked=not arguments.yes)
    ]
    progress.line(
        Message("Not repaired: {titles}.", titles=joined([Message(title) for title in left], ", "))
        if left
        else Message("Nothing else needs repair.")
    )
    return EnvironmentProblem.exit_code if left else EXIT_DONE


def mend(check: Check, machine: Machine, progress: Progress, *, asked: bool) -> bool:
    """Mend what a check finds; return whether nothing that must be mended is left.

    Args:
        check: whose fault.
        machine: the facts.
        progress: takes what is done.
        asked: whether the person is asked first.
    """
    finding = verify(check, machine, progress)
    if finding.state in GOOD or finding.fix is None or not finding.fix.automatic:
        return finding.state is not State.FAILED
    if asked and not agreed(finding):
        return finding.state is not State.FAILED
    with progress.phase(Message("{title}: {label}", title=Message(check.title), label=Message(finding.fix.label))):
        try:
            check.fix(progress)
        except Exception as error:
            progress.error(wrap(error))
    after = verify(check, machine, progress)
    if after.state is finding.state is State.FAILED:
        progress.note("This did not help.")
    return after.state is not State.FAILED


def agreed(finding: Finding) -> bool:
    """Ask the person; no answer, or no terminal to answer at, is no."""
    if finding.fix is None or not sys.stdin.isatty():
        return False
    return terminal.ask(f"    {said(finding.fix.label)}? [y/N] ") in ("y", "yes")
