"""Check this computer and the installed environments, and name the next step for every fault; changes nothing.

Ends with exit code 3 when something must be repaired.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict

from tunesmith_core import terminal
from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_core.errors import EXIT_DONE, EnvironmentProblem
from tunesmith_core.messages import Message, joined
from tunesmith_core.setup_messages import Finding, State
from tunesmith_setup import checks, probe
from tunesmith_setup.checks.base import verify_all
from tunesmith_setup.checks.environment import NAMES, is_uninstalled
from tunesmith_setup.progress import add_argument, chosen, duration_text

PROBE_TIMEOUT_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--full", action="store_true", help="read every installed byte, instead of sizes and times")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check everything. Returns 3 when something must be repaired, else 0."""
    progress = chosen(arguments)
    started = time.monotonic()
    machine = probe.machine(timeout_s=PROBE_TIMEOUT_S)
    findings = verify_all(checks.all_checks(full=arguments.full), machine, progress)
    num_faults = sum(finding.state is State.FAILED for finding in findings)
    code = EnvironmentProblem.exit_code if num_faults else EXIT_DONE
    seconds = time.monotonic() - started
    if arguments.json:
        answer = {"findings": [asdict(finding) for finding in findings], "machine": machine.to_dict()}
        terminal.say_json({"ok": code == EXIT_DONE, "seconds": seconds} | answer)
    else:
        progress.line(closing(findings, seconds))
    return code


def closing(findings: Sequence[Finding], seconds: float) -> str:
    """Return the last line for the person: how many faults, and what to do."""
    took, num_checks = duration_text(seconds), len(findings)
    faults = [finding for finding in findings if finding.state is State.FAILED]
    if not faults:
        return Message("No problems found ({num_checks} checks in {time}).", num_checks=num_checks, time=took)
    counted = Message(
        "Problems found: {num_faults} ({num_checks} checks in {time}).",
        num_faults=len(faults),
        num_checks=num_checks,
        time=took,
    )
    uninstalled = [finding for finding in faults if is_uninstalled(finding)]
    only_training = all(finding.id.startswith(NAMES[TRAINING_POINTER]) for finding in uninstalled)
    command = "tunesmith install" + (" --training-only" if only_training else "")
    to_repair = Message("To repair them: {command}", command="tunesmith repair")
    if not uninstalled:
        return joined([counted, to_repair])
    counted = joined([counted, Message("To install what is missing: {command}", command=command)])
    if len(faults) == len(uninstalled):
        return counted
    return joined([counted, Message("To repair the others: {command}", command="tunesmith repair")], "\n")
