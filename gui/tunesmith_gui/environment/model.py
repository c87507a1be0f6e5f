"""What the Environment page and the first-run wizard know: this computer, the checks, what is installed, what goes on.

Folded from the events of the installer and doctor and from a few small files; nothing here touches a disk or a widget.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from PySide6.QtCore import QLocale

from tunesmith_core.actions import ACTIONS
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.machine import Gpu, Machine
from tunesmith_core.setup_messages import Finding, Fix, Plan, State
from tunesmith_gui.environment.setup_activity import Activity, Command
from tunesmith_gui.environment.setup_events import SetupEvent
from tunesmith_gui.tr import core_text, duration, fill, moment, number, size, translate

OPEN_STATES = ("waiting", "checking")
_GRAVITY = {"ok": 0, "waiting": 1, "checking": 1, "unknown": 2, "warning": 3, "failed": 4}
SMALL_GPU_BYTES = 6 * 2**30 * 0.9
"""GPUs with less memory train models under about 1 B parameters only; a 6 GiB card reports a little less than 6."""
BUSY_BYTES = 2**30
SEPARATOR = "  ·  "


ENVIRONMENT_CHECKS = ("training-", "torch", "triton", "bitsandbytes", "libraries", "proof")
"""Beginnings of the ids of checks of what runs need."""
WINDOW_CHECKS = ("program", "launcher-")
"""Of what the window itself needs. All others look at this computer."""


class Verdict(StrEnum):
    """The environment in one word."""

    UNKNOWN = "unknown"
    MISSING = "missing"
    CHECKING = "checking"
    WORKING = "working"
    HEALTHY = "healthy"
    WARNINGS = "warnings"
    OUTDATED = "outdated"
    WINDOW_BROKEN = "window_broken"
    COMPUTER = "computer"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Proof:
    """The record of what an environment was seen to do on this computer.

    Attributes:
        proven_at: seconds since 1970.
        gpu: name of the GPU, "" on the CPU.
        steps: what was tried and how long it took in seconds, None where it was not measured.
    """

    proven_at: float | None = None
    gpu: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    steps: tuple[tuple[str, bool, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """The training environment as its files say.

    Attributes:
        problem: why there is none, None when there is one.
        name: its folder's name.
        profile: such as "cu124".
        previous: name of the one before, to which one can go back; "" when there is none.
    """

    problem: TunesmithError | None = None
    name: str = ""
    profile: str = ""
    built_at: float | None = None
    proof: Proof | None = None
    previous: str = ""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """A part of the data folder: key, bytes, and whether it can be freed without losing work."""

    key: str
    num_bytes: int
    can_free: bool = False


class EnvironmentModel:
    """Everything that is known now.

    Attributes:
        machine: facts about this computer, None before the first probe.
        choice: why which build of PyTorch was chosen, "" when not known yet.
        checks: by id, in the order in which they were announced.
        installed: None before the files were read.
        activity: the command that goes on or ended last, None before the first.
        plan: what an installation would take, None before it was planned.
    """

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.machine_problem: TunesmithError | None = None
        self.profile = ""
        self.choice = ""
        self.choice_warnings: tuple[str, ...] = ()
        self.checks: dict[str, Finding] = {}
        self.installed: Installed | None = None
        self.disk: tuple[DiskUse, ...] = ()
        self.activity: Activity | None = None
        self.plan: Plan | None = None
        self.offline = False

    @property
    def busy(self) -> bool:
        """Whether a command goes on."""
        return self.activity is not None and self.activity.running

    @property
    def changing(self) -> bool:
        """Whether a command goes on that changes what is installed."""
        return self.activity is not None and self.activity.running and self.activity.command.changes

    def begin(self, activity: Activity) -> None:
        """A command starts: its checks wait again, at the places where they were."""
        self.activity = activity
        if activity.command in (Command.CHECK, Command.FULL_CHECK):
            self.checks = {
                name: Finding(State.WAITING, id=check.id, title=check.title) for name, check in self.checks.items()
            }

    def apply(self, event: SetupEvent, now_s: float) -> None:
        """Take in an event of the present command."""
        if self.activity is None or not self.activity.running:
            return
        self.activity.apply(event, now_s)
        if isinstance(event, Finding):
            self.checks[event.id] = event
        elif isinstance(event, Plan):
            self.plan = event
            self.profile = event.profile or self.profile
            self.choice = event.sentence or self.choice

    def end(self, error: TunesmithError | None, *, cancelled: bool = False) -> None:
        """The present command ended: what it did not get to is unknown, and a check that is gone is forgotten."""
        if self.activity is None or not self.activity.running:
            return
        command = self.activity.command
        self.activity.end(error, cancelled=cancelled)
        complete = error is None and not cancelled
        if command in (Command.CHECK, Command.FULL_CHECK) and complete:
            self.checks = {name: check for name, check in self.checks.items() if check.state != "waiting"}
        self.checks = {
            name: dataclasses.replace(check, state=State.UNKNOWN) if check.state in OPEN_STATES else check
            for name, check in self.checks.items()
        }

    def know_machine(self, answer: Any) -> None:  # Any: JSON values
        """Take what `probe --json` printed; raises ValueError when that is something else."""
        if not isinstance(answer, dict):
            raise ValueError("the answer of the probe is no JSON object")  # noqa: TRY004 - bad data, whatever its type
        self.machine = Machine.from_dict(answer.get("machine", answer))
        choice = answer.get("choice")
        if isinstance(choice, dict):
            profile = choice.get("profile")
            self.profile = str(profile.get("name") or "") if isinstance(profile, dict) else self.profile
            self.choice = str(choice.get("sentence") or self.choice)
            warnings = choice.get("warnings")
            self.choice_warnings = tuple(map(_text, warnings)) if isinstance(warnings, list) else ()

    @property
    def verdict(self) -> Verdict:
        """The environment in one word."""
        if self.changing:
            return Verdict.WORKING
        if self.installed is None:
            return Verdict.UNKNOWN
        if self.installed.problem is not None:
            return Verdict.MISSING
        if self.busy and self.worst in (*OPEN_STATES, "ok", "unknown", ""):
            return Verdict.CHECKING
        found = [check.code for check in self.checks.values() if check.state in ("failed", "warning")]
        if "protocol-mismatch" in found:
            return Verdict.OUTDATED
        if failed := [check.id for check in self.failed]:
            if any(each.startswith(ENVIRONMENT_CHECKS) for each in failed):
                return Verdict.BROKEN
            is_window = all(each.startswith(WINDOW_CHECKS) for each in failed)
            return Verdict.WINDOW_BROKEN if is_window else Verdict.COMPUTER
        return {"warning": Verdict.WARNINGS, "ok": Verdict.HEALTHY}.get(self.worst, Verdict.UNKNOWN)

    @property
    def failed(self) -> list[Finding]:
        """The checks that found a fault."""
        return [check for check in self.checks.values() if check.state == "failed"]

    @property
    def worst(self) -> str:
        """The gravest state among the checks, "" without any."""
        return max((check.state for check in self.checks.values()), key=_GRAVITY.__getitem__, default="")

    def gravest_first(self) -> list[Finding]:
        """The checks, faults before the rest and otherwise in their order."""
        return sorted(self.checks.values(), key=lambda check: -_GRAVITY[check.state])


def _text(warning: object) -> str:
    return str(warning.get("text") or "") if isinstance(warning, dict) else str(warning)


def verdict_words(verdict: Verdict) -> tuple[str, str]:
    """Word and tone of a verdict, for a chip."""
    table = {
        Verdict.UNKNOWN: (translate("Environment", "Not checked yet"), "neutral"),
        Verdict.MISSING: (translate("Environment", "Not installed"), "warn"),
        Verdict.CHECKING: (translate("Environment", "Checking"), "neutral"),
        Verdict.WORKING: (translate("Environment", "Working"), "neutral"),
        Verdict.HEALTHY: (translate("Environment", "Healthy"), "ok"),
        Verdict.WARNINGS: (translate("Environment", "Works, with warnings"), "warn"),
        Verdict.OUTDATED: (translate("Environment", "Needs an update"), "warn"),
        Verdict.WINDOW_BROKEN: (translate("Environment", "The window needs repair"), "warn"),
        Verdict.COMPUTER: (translate("Environment", "Works, but this computer has a problem"), "warn"),
        Verdict.BROKEN: (translate("Environment", "Needs repair"), "error"),
    }
    return table[verdict]


def check_words(check: Finding) -> str:
    """What a check found, in the window's language as far as that goes.

    The installer writes its sentences in English, with the values of this computer; elsewhere the translated cause of
    the code goes before them, and a check that is well needs no sentence.
    """
    message = core_text(check.message)
    if message != check.message or QLocale().language() == QLocale.Language.English:
        return message
    if check.state == "ok":
        return ""
    cause = core_text(CODES[check.code].cause) if check.code in CODES else ""
    return "\n".join(part for part in (cause, message) if part)


def fix_words(fix: Fix) -> str:
    """The words of a fix's button: the installer's own where they are in the window's language, else the action's."""
    words = core_text(fix.label)
    if words != fix.label or QLocale().language() == QLocale.Language.English or fix.action not in ACTIONS:
        return words
    return core_text(ACTIONS[fix.action].label)


def state_words(state: str) -> tuple[str, str, str]:
    """Word, tone and icon of a check's state."""
    table = {
        "waiting": (translate("Environment", "Waiting"), "neutral", "clock"),
        "checking": (translate("Environment", "Checking"), "neutral", "refresh"),
        "ok": (translate("Environment", "OK"), "ok", "check-circle"),
        "warning": (translate("Environment", "Warning"), "warn", "warning"),
        "failed": (translate("Environment", "Failed"), "error", "error"),
        "unknown": (translate("Environment", "Unknown"), "neutral", "help"),
    }
    return table[state]


def profile_words(name: str) -> str:
    """What people call a build; an unknown one by its own name."""
    return {
        "cu124": translate("Profile", "PyTorch for CUDA 12.4"),
        "cu128": translate("Profile", "PyTorch for CUDA 12.8"),
        "cpu": translate("Profile", "PyTorch for the processor"),
    }.get(name, name)


def gpu_words(gpu: Gpu) -> str:
    """Name, memory and compute capability of a GPU in one line."""
    parts = [gpu.name]
    if gpu.total_bytes is not None:
        free = fill(translate("Environment", "%1 free"), size(gpu.free_bytes)) if gpu.free_bytes is not None else ""
        parts.append(f"{size(gpu.total_bytes)} ({free})" if free else size(gpu.total_bytes))
    if gpu.compute_capability is not None:
        parts.append(fill(translate("Environment", "compute %1"), ".".join(map(str, gpu.compute_capability))))
    return SEPARATOR.join(parts)


def gpu_notes(gpu: Gpu) -> list[tuple[str, str]]:
    """(tone, sentence) about a GPU that is small or in use by others."""
    notes = []
    if gpu.total_bytes is not None and gpu.total_bytes < SMALL_GPU_BYTES:
        words = translate("Environment", "%1 of VRAM is enough for models up to about 1B parameters.")
        notes.append(("warn", fill(words, size(gpu.total_bytes))))
    for process in gpu.processes or ():
        name = process.name or fill(translate("Environment", "process %1"), process.pid)
        if process.used_bytes is not None and process.used_bytes >= BUSY_BYTES:
            words = translate("Environment", "Another program uses %1 (%2).")
            notes.append(("warn", fill(words, size(process.used_bytes), name)))
    return notes


def proof_words(proof: Proof | None, built_at: float | None) -> str:
    """When and on what the environment was seen to work."""
    if proof is not None and proof.proven_at is not None:
        place = proof.gpu or translate("Environment", "the processor")
        return fill(translate("Environment", "Tested on %1 on %2"), moment(proof.proven_at), place)
    if built_at is not None:
        return fill(translate("Environment", "Built on %1, not tested on this computer yet"), moment(built_at))
    return translate("Environment", "Not tested on this computer yet")


def seconds_words(seconds: float) -> str:
    """A short time with its tenths, a longer one rounded."""
    return fill(translate("Duration", "%1 s"), number(seconds, 1)) if seconds < 10 else duration(seconds)


def proof_steps(proof: Proof) -> str:
    """Everything that was tried, for the diagnostics."""
    steps = []
    for name, ok, seconds in proof.steps:
        took = f", {seconds_words(seconds)}" if seconds else ""
        steps.append(f"{name}: {'ok' if ok else 'failed'}{took}")
    return "\n".join(steps)
