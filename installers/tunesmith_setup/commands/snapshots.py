"""List the environments on this computer with their packages, or show how two of them differ.

Without words they are listed; `diff A B` compares two, by name, by its beginning, or "previous" and "current".
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE
from tunesmith_core.messages import Message, said
from tunesmith_setup.environments import snapshots
from tunesmith_setup.environments.snapshots import Snapshot
from tunesmith_setup.progress import size_text

MAIN_PACKAGES = ("torch", "triton", "transformers", "pyside6-essentials")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs, with every package")
    actions = parser.add_subparsers(dest="action", metavar="diff")
    diff = actions.add_parser("diff", help="show how two environments differ")
    diff.add_argument("before", metavar="A")
    diff.add_argument("after", metavar="B")


def run(arguments: argparse.Namespace) -> int:
    """List or compare. Raises UserError `usage` for a name that fits none or several."""
    if arguments.action == "diff":
        changes = snapshots.difference(snapshots.named(arguments.before), snapshots.named(arguments.after))
        rows = [{"package": name, "before": before, "after": after} for name, before, after in changes]
        lines = [f"{name:<28}{before or '-':<20}{after or '-'}" for name, before, after in changes]
        text = "\n".join(lines or [said(Message("They contain the same packages."))])
    else:
        found = snapshots.snapshots()
        rows = [asdict(snapshot) for snapshot in found]
        text = "\n".join([line(snapshot) for snapshot in found] or [said(Message("No environment is installed."))])
    if arguments.json:
        terminal.say_json(rows)
    else:
        terminal.say(text)
    return EXIT_DONE


def line(snapshot: Snapshot) -> str:
    """Return what a list says about a snapshot."""
    built = time.strftime("%Y-%m-%d %H:%M", time.localtime(snapshot.built_at)) if snapshot.built_at else "-"
    shown = [name for name in MAIN_PACKAGES if name in snapshot.packages]
    main = ", ".join(f"{name} {snapshot.packages[name]}" for name in shown)
    size, count = size_text(snapshot.num_bytes), said(Message("{count} packages", count=len(snapshot.packages)))
    return f"{snapshot.name:<36}{said(snapshot.role):<10}{built:<18}{size:>9}  {count}{f', {main}' if main else ''}"
