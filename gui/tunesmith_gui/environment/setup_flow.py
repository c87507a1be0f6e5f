"""The first-run wizard as data: four steps, the ways between them, and what each step says. No widgets.

Every step can be left out and opened again: what a step shows is derived from the `EnvironmentModel` at any moment, so
that no order of events can make the wizard contradict the Environment page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.machine import Machine
from tunesmith_core.setup_messages import Finding
from tunesmith_gui.environment.model import (
    ENVIRONMENT_CHECKS,
    SEPARATOR,
    EnvironmentModel,
    gpu_notes,
    gpu_words,
    profile_words,
)
from tunesmith_gui.environment.setup_activity import Command, Stage
from tunesmith_gui.tr import core_text, duration, fill, number, size, translate

COMPUTER, FOLDER, ENVIRONMENT, TRY = "computer", "folder", "environment", "try"
STEPS = (COMPUTER, FOLDER, ENVIRONMENT, TRY)
NEXT = {COMPUTER: FOLDER, FOLDER: ENVIRONMENT, ENVIRONMENT: TRY, TRY: None}
BACK = {COMPUTER: None, FOLDER: COMPUTER, ENVIRONMENT: FOLDER, TRY: ENVIRONMENT}

MODELS_BYTES = 2 * 2**30
"""Room for a small base model and its runs, named beside the room for the environment."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for the data and what speaks against it.

    Attributes:
        problem: why it can't serve, "" when it can.
        note: what to know although it can serve, such as where the environments go instead.
        can_change: whether this program may choose another one; not when a variable of the shell names it.
    """

    folder: Path
    free_bytes: int | None = None
    problem: str = ""
    note: str = ""
    can_change: bool = True


@dataclass(frozen=True, slots=True)
class Fact:
    """A line such as "GPU: RTX 3060"; `tone` is neutral, ok, warn or error."""

    label: str
    value: str
    tone: str = "neutral"


class SetupFlow:
    """Where the person is in the wizard.

    Attributes:
        current: the step that is open.
        skipped: steps that were left out.
        place: the chosen folder, None before it was looked at.
        moving: the data are on their way to the chosen folder.
        trial: the check of the last step: "" before, "going", then the state at the run's end.
    """

    def __init__(self, model: EnvironmentModel) -> None:
        self.model = model
        self.current = COMPUTER
        self.skipped: set[str] = set()
        self.place: Place | None = None
        self.trial = ""
        self.moving = False

    # Ways

    def open(self, step: str) -> None:
        """Go to a step; one that was left out is not left out any more."""
        self.skipped.discard(step)
        self.current = step

    def next(self) -> bool:
        """Go on; False at the end, or when `blocked` says why not."""
        following = NEXT[self.current]
        if following is None or self.blocked():
            return False
        if self.state(self.current) in ("waiting", "unknown"):
            self.skipped.add(self.current)
        self.open(following)
        return True

    def back(self) -> bool:
        """Go back; False at the first step."""
        before = BACK[self.current]
        if before is None:
            return False
        self.open(before)
        return True

    def blocked(self) -> str:
        """Why one can't go on from the present step, "" when one can."""
        if self.moving:
            return translate("SetupFlow", "Wait until the folder is ready.")
        if self.current == FOLDER and self.place is not None and self.place.problem:
            return self.place.problem
        return ""

    # States

    def checks(self, step: str) -> list[Finding]:
        """The checks of a step, in their order."""
        if step not in (COMPUTER, ENVIRONMENT):
            return []
        wanted = step == ENVIRONMENT
        return [check for check in self.model.checks.values() if check.id.startswith(ENVIRONMENT_CHECKS) is wanted]

    def remarkable_checks(self, step: str) -> list[Finding]:
        """The checks of a step that ended otherwise than well: the others are only counted here."""
        return [check for check in self.checks(step) if check.state in ("warning", "failed", "unknown")]

    def state(self, step: str) -> str:
        """The state of a step, one of `setup_messages.State`."""
        if step == FOLDER:
            return self._folder_state()
        if step == ENVIRONMENT:
            return self._environment_state()
        if step == TRY:
            return self._try_state()
        states: set[str] = {check.state for check in self.checks(COMPUTER)}
        activity = self.model.activity
        if activity is not None and activity.running and activity.command is Command.PROBE:
            return "checking"
        if any(fact.tone == "warn" for fact in self.facts()):
            states.add("warning")
        for state in ("checking", "failed", "warning", "waiting"):
            if state in states:
                return "checking" if state == "waiting" and self.model.busy else state
        if self.model.machine_problem is not None:
            return "unknown"
        return "ok" if self.model.machine is not None else "waiting"

    def _folder_state(self) -> str:
        if self.place is None or self.moving:
            return "checking" if self.moving else "waiting"
        if self.place.problem:
            return "failed"
        free, needed = self.place.free_bytes, self.needed_bytes()
        return "warning" if free is not None and free < needed else "ok"

    def _environment_state(self) -> str:
        activity = self.model.activity
        if activity is not None and activity.command in (Command.INSTALL, Command.REPAIR, Command.ROLL_BACK):
            if activity.running:
                return "checking"
            if activity.stage is Stage.FAILED:
                return "failed"
        if self.model.installed is None or self.model.installed.problem is not None:
            return "waiting"
        states: set[str] = {check.state for check in self.checks(ENVIRONMENT)}
        for state in ("checking", "failed", "warning", "waiting"):
            if state in states:
                return "checking" if state == "waiting" else state
        return "ok" if "ok" in states else "unknown"

    def _try_state(self) -> str:
        return {"going": "checking", "finished": "ok", "failed": "failed", "interrupted": "failed"}.get(
            self.trial, "waiting"
        )

    @property
    def ready(self) -> bool:
        """Whether one can train."""
        return self.state(ENVIRONMENT) in ("ok", "warning")

    # Words

    def title(self, step: str) -> str:
        """Name of a step."""
        return {
            COMPUTER: translate("SetupFlow", "This computer"),
            FOLDER: translate("SetupFlow", "Where to keep things"),
            ENVIRONMENT: translate("SetupFlow", "Training environment"),
            TRY: translate("SetupFlow", "Try it"),
        }[step]

    def summary(self, step: str) -> str:
        """What a step came to, in one line."""
        if step in self.skipped:
            return translate("SetupFlow", "Skipped for now")
        if step == COMPUTER:
            return self.model.choice or (_first_gpu(self.model.machine) if self.model.machine else "")
        if step == FOLDER:
            return str(self.place.folder) if self.place else ""
        if step == ENVIRONMENT:
            installed = self.model.installed
            return profile_words(installed.profile) if installed is not None and installed.problem is None else ""
        return ""

    def state_words(self, step: str) -> str:
        """The state of a step in a word or two of its own."""
        if step in self.skipped:
            return translate("SetupFlow", "Skipped")
        state = self.state(step)
        if step == ENVIRONMENT and state == "waiting":
            missing = self.model.installed is not None and self.model.installed.problem is not None
            return translate("SetupFlow", "Not installed") if missing else translate("SetupFlow", "Waiting")
        if step == TRY and state == "waiting":
            return translate("SetupFlow", "Optional")
        return {
            "waiting": translate("SetupFlow", "Waiting"),
            "checking": translate("SetupFlow", "Working"),
            "ok": translate("SetupFlow", "OK"),
            "warning": translate("SetupFlow", "Warning"),
            "failed": translate("SetupFlow", "Failed"),
            "unknown": translate("SetupFlow", "Unknown"),
        }[state]

    def needed_bytes(self) -> int:
        """Room that the environment needs, and a small model with it."""
        plan = self.model.plan
        return (plan.disk_bytes if plan else 0) + MODELS_BYTES

    def folder_words(self) -> str:
        """Free and needed room in one sentence."""
        if self.moving:
            return translate("SetupFlow", "Getting the folder ready…")
        if self.place is None:
            return translate("SetupFlow", "Looking at the drive…")
        parts = []
        if self.place.free_bytes is not None:
            parts.append(fill(translate("SetupFlow", "%1 free"), size(self.place.free_bytes)))
        if self.model.plan is not None:
            needed = size(self.model.plan.disk_bytes)
            parts.append(fill(translate("SetupFlow", "needs %1 while installing, plus room for models"), needed))
        return SEPARATOR.join(parts)

    def plan_words(self) -> str:
        """Download, disk and time of the installation, each where it is known."""
        plan = self.model.plan
        if plan is None:
            return translate("SetupFlow", "Planning…")
        if not plan.disk_bytes and not plan.download_bytes:
            return translate("SetupFlow", "Everything is already installed. Nothing to download.")
        parts = [
            fill(translate("SetupFlow", "%1 to download"), size(plan.download_bytes)),
            fill(translate("SetupFlow", "%1 on the drive while installing"), size(plan.disk_bytes)),
        ]
        if plan.seconds:
            parts.append(fill(translate("SetupFlow", "about %1"), duration(plan.seconds)))
        return SEPARATOR.join(parts)

    def count_words(self, step: str) -> str:
        """How many checks of a step are done and well, in one line; "" without checks."""
        states: list[str] = [check.state for check in self.checks(step)]
        if not states:
            return ""
        num_done = sum(state not in ("waiting", "checking") for state in states)
        if num_done < len(states):
            return fill(translate("SetupFlow", "%1 of %2 checks done"), num_done, len(states))
        if states.count("ok") == len(states):
            return fill(translate("SetupFlow", "All %1 checks passed"), len(states))
        return fill(translate("SetupFlow", "%1 of %2 checks passed"), states.count("ok"), len(states))

    def facts(self) -> list[Fact]:
        """What is known about the computer, with the room on the chosen drive."""
        if self.model.machine is None:
            return []
        facts = machine_facts(self.model.machine)
        if self.place is not None and self.place.free_bytes is not None:
            words = fill(translate("SetupFlow", "%1 free at %2"), size(self.place.free_bytes), self.place.folder)
            facts.append(Fact(translate("SetupFlow", "Disk"), words))
        return facts


def _first_gpu(machine: Machine) -> str:
    return machine.gpus[0].name if machine.gpus else translate("SetupFlow", "No NVIDIA GPU")


def machine_facts(machine: Machine) -> list[Fact]:
    """GPUs, driver, memory and system as labelled lines; what is unknown says so."""
    unknown = translate("SetupFlow", "Unknown, no response in time")
    facts = []
    gpu_label = translate("SetupFlow", "GPU")
    if machine.gpus is None:
        facts.append(Fact(gpu_label, unknown))
    for gpu in machine.gpus or ():
        label = f"{gpu_label} {gpu.index}" if len(machine.gpus or ()) > 1 else gpu_label
        facts.append(Fact(label, gpu_words(gpu)))
        facts.extend(Fact("", words, tone) for tone, words in gpu_notes(gpu))
    if machine.gpus == ():
        words = translate("SetupFlow", "No NVIDIA GPU found. Training will use the processor, which is slow.")
        facts.append(Fact(gpu_label, words, "warn"))
        facts.extend(Fact(translate("SetupFlow", "Other GPU"), name) for name in machine.other_gpus or ())
    if machine.driver is not None:
        cuda = machine.driver.cuda_version
        served = fill(translate("SetupFlow", "supports CUDA %1"), ".".join(map(str, cuda))) if cuda else ""
        facts.append(
            Fact(translate("SetupFlow", "Driver"), SEPARATOR.join(filter(None, (machine.driver.version, served))))
        )
    if machine.ram_total_bytes is not None:
        free = machine.ram_free_bytes
        words = fill(translate("SetupFlow", "%1 free"), size(free)) if free is not None else ""
        total = size(machine.ram_total_bytes)
        facts.append(Fact(translate("SetupFlow", "Memory"), f"{total} ({words})" if words else total))
    if machine.cpu_name or machine.cpu_threads:
        threads = fill(translate("SetupFlow", "%1 threads"), number(machine.cpu_threads)) if machine.cpu_threads else ""
        words = SEPARATOR.join(filter(None, (machine.cpu_name, threads)))
        facts.append(Fact(translate("SetupFlow", "Processor"), words))
    system = machine.system_name or core_text(machine.system.capitalize())
    facts.append(Fact(translate("SetupFlow", "System"), system))
    return facts
