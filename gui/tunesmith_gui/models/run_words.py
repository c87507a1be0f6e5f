"""How a run's state and phase look everywhere in the window: icon, tone and word together."""

from __future__ import annotations

from typing import NamedTuple

from tunesmith_core.run_queue import Place
from tunesmith_core.runs import PAUSED_PHASE, QUEUED_PHASE, RunState, RunStatus
from tunesmith_gui.tr import core_text, fill, number, translate


class StateLook(NamedTuple):
    """Tone and icon of a state; the word comes from `state_word`."""

    tone: str
    icon_name: str


_LOOKS = {
    RunState.QUEUED: StateLook("neutral", "clock"),
    RunState.PREPARING: StateLook("accent", "clock"),
    RunState.RUNNING: StateLook("accent", "activity"),
    RunState.PAUSED: StateLook("warn", "pause"),
    RunState.STOPPING: StateLook("warn", "stop"),
    RunState.FINALIZING: StateLook("accent", "checkpoint"),
    # Whether what came of it is good, the verdict says.
    RunState.FINISHED: StateLook("neutral", "check-circle"),
    RunState.STOPPED: StateLook("neutral", "stop"),
    RunState.FAILED: StateLook("error", "error"),
    RunState.INTERRUPTED: StateLook("warn", "warning"),
    RunState.DAMAGED: StateLook("error", "warning"),
}


def state_look(state: RunState) -> StateLook:
    """Tone and icon of a state."""
    return _LOOKS[state]


def state_word(state: RunState, obstacle: str = "") -> str:
    """The state in the language in force; of a paused run with what it waits for, see `RunStatus.obstacle`."""
    if state is RunState.PAUSED and obstacle:
        full = obstacle == "disk-full"
        return translate("RunState", "Paused: disk full") if full else translate("RunState", "Can’t save")
    return {
        RunState.QUEUED: translate("RunState", "Waiting"),
        RunState.PREPARING: translate("RunState", "Preparing"),
        RunState.RUNNING: translate("RunState", "Running"),
        RunState.PAUSED: translate("RunState", "Paused"),
        RunState.STOPPING: translate("RunState", "Stopping"),
        RunState.FINALIZING: translate("RunState", "Saving"),
        RunState.FINISHED: translate("RunState", "Finished"),
        RunState.STOPPED: translate("RunState", "Stopped"),
        RunState.FAILED: translate("RunState", "Failed"),
        RunState.INTERRUPTED: translate("RunState", "Interrupted"),
        RunState.DAMAGED: translate("RunState", "Damaged"),
    }[state]


def best_words(now: float | None, best: float | None, *, is_reward: bool = False) -> str:
    """The best evaluation of a run beside the newest one, "" where that is as good in the figures shown."""
    if now is None or best is None or (best <= now if is_reward else best >= now):
        return ""
    shown = number(best, 3)
    return "" if shown == number(now, 3) else fill(translate("RunWords", "best %1"), shown)


def phase_word(phase: str) -> str:
    """A phase in the language in force; one that is told in words of the core, in those."""
    words = {
        QUEUED_PHASE: translate("RunState", "Waiting"),
        "starting": translate("Phase", "Starting the engine"),
        "model": translate("Phase", "Loading the model"),
        "data": translate("Phase", "Reading the data"),
        "training": translate("Phase", "Training"),
        "evaluating": translate("Phase", "Evaluating"),
        "saving": translate("Phase", "Saving"),
        PAUSED_PHASE: translate("RunState", "Paused"),
    }
    return words.get(phase) or core_text(phase)


def doing_words(status: RunStatus, place: Place | None = None) -> str:
    """What a run does now: its phase while it prepares or trains, what it waits for, else its state."""
    if status.state is RunState.QUEUED and place is not None:
        return waiting_words(place)
    busy = status.phase and status.state in (RunState.PREPARING, RunState.RUNNING)
    return phase_word(status.phase) if busy else state_word(status.state, status.obstacle)


def waiting_words(place: Place) -> str:
    """What a run waits for: the device, who uses it, how many come before."""
    number = place.device.removeprefix("gpu-")
    device = fill(translate("RunState", "GPU %1"), number) if number.isdigit() else translate("RunState", "the CPU")
    words = fill(translate("RunState", "Waiting for %1"), device)
    if place.holder:
        words = fill(translate("RunState", "Waiting for %1, in use by “%2”"), device, place.holder)
    if not place.num_ahead:
        return words
    return fill(translate("RunState", "%1 · number %2 in the queue"), words, place.num_ahead + 1)
