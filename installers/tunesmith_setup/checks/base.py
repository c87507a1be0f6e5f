"""What a check is: it looks at one thing, says in words what it found, and may know how to mend it.

One list of checks serves the first run, the window's page, `tunesmith doctor` and `tunesmith repair`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tunesmith_core.errors import BugError, wrap
from tunesmith_core.machine import Machine
from tunesmith_core.setup_messages import Finding, State
from tunesmith_setup.progress import Progress


class Check(ABC):
    """One thing that must be right.

    Attributes:
        id: stable name, for the command line and the window.
        title: name for the person.
        systems: where there is something to check.
    """

    id: str
    title: str
    systems: ClassVar[tuple[str, ...]] = ("windows", "linux")

    @abstractmethod
    def verify(self, machine: Machine, progress: Progress) -> Finding:
        """Return how the thing stands on a machine. Changes nothing."""

    def fix(self, progress: Progress) -> None:
        """Mend what `verify` found; called only after a finding whose fix is automatic.

        Raises:
            TunesmithError: when it can't be mended; what was there before is still there.
        """
        raise BugError("bug", "The check {check} has no repair ({kind}).", check=self.id, kind=type(progress).__name__)


def verify(check: Check, machine: Machine, progress: Progress) -> Finding:
    """Run one check and show it; a check that stumbles is unknown, with the reason, and stops no other."""
    progress.check(Finding(State.CHECKING, id=check.id, title=check.title))
    try:
        finding = check.verify(machine, progress)
    except Exception as error:
        failure = wrap(error)
        finding = Finding(State.UNKNOWN, failure.message, evidence=failure.context or "")
    finding = replace(finding, id=check.id, title=check.title)
    progress.check(finding)
    return finding


def verify_all(checks: Sequence[Check], machine: Machine, progress: Progress) -> list[Finding]:
    """Run the checks of this system in order; all are announced first, so that a window can list them."""
    present = [check for check in checks if machine.system in check.systems]
    for check in present:
        progress.check(Finding(State.WAITING, id=check.id, title=check.title))
    return [verify(check, machine, progress) for check in present]
