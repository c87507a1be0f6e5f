"""What a check is: it looks at one thing, says in words what it found, and may know how to mend it.

One list of checks serves the first run, the window's page, `tunesmith doctor` and `tunesmith repair`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

from tunesmith_core.errors import BugError, wrap
from tunesmith_core.machine import Machine
from tunesmith_setup.progress import Progress


class State(StrEnum):
    """How a thing stands; "unknown" is what could not be found out, and never counts as a fault."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends a fault.

    Attributes:
        label: for a button, such as "Reinstall 1 package".
        action: stable name of the action, of tunesmith_core.actions.
        automatic: whether `Check.fix` does it; otherwise it is a step for the person.
        needs_network: whether something has to be fetched.
        bytes: what is fetched at most.
    """

    label: str
    action: str
    automatic: bool = True
    needs_network: bool = False
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        message: one or two sentences for the person, with the values of this computer.
        code: of error_codes, when something is at fault.
        evidence: more lines, such as the names of damaged files.
        fix: what to do about it, or None.
    """

    state: State
    message: str
    code: str | None = None
    evidence: str = ""
    fix: Fix | None = None


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
        raise BugError("bug", f"The check {self.id} has nothing to mend ({type(progress).__name__}).")


@dataclass(frozen=True, slots=True)
class Result:
    """A check with what it found."""

    check: Check
    finding: Finding

    @property
    def faulty(self) -> bool:
        """Whether something must be done before Tunesmith works."""
        return self.finding.state is State.FAILED

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the result as JSON values."""
        return {"id": self.check.id, "title": self.check.title} | asdict(self.finding)


def verify(check: Check, machine: Machine, progress: Progress) -> Finding:
    """Run one check and show it; a check that stumbles is unknown, with the reason, and stops no other."""
    progress.check(check.id, check.title, "checking")
    try:
        finding = check.verify(machine, progress)
    except Exception as error:
        failure = wrap(error)
        finding = Finding(State.UNKNOWN, failure.message, evidence=failure.context or "")
    show(check, finding, progress)
    return finding


def show(check: Check, finding: Finding, progress: Progress) -> None:
    """Show what a check found."""
    fix = asdict(finding.fix) if finding.fix else None
    progress.check(check.id, check.title, finding.state, finding.message, finding.code, fix)


def verify_all(checks: Sequence[Check], machine: Machine, progress: Progress) -> list[Result]:
    """Run the checks of this system in order; all are announced first, so that a window can list them."""
    present = [check for check in checks if machine.system in check.systems]
    for check in present:
        progress.check(check.id, check.title, "waiting")
    return [Result(check, verify(check, machine, progress)) for check in present]
