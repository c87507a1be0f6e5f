"""How a run's state and phase look everywhere in the window: icon, tone and word together."""

from __future__ import annotations

from typing import NamedTuple

from tunesmith_core.runs import QUEUED_PHASE, RunState, RunStatus
from tunesmith_gui.tr import translate


class StateLook(NamedTuple):
    """Tone and icon of a state; the word comes from `state_word`."""

    tone: str
    icon_name: str


_LOOKS = {
    RunState.QUEUED: StateLook("neutral", "clock"),
    RunState.PREPARING: StateLook("accent", "clock"),
    RunState.RUNNING: StateLook("accent", "activity"),
    RunState.STOPPING: StateLook("warn", "stop"),
    RunState.FINALIZING: StateLook("accent", "checkpoint"),
    RunState.FINISHED: StateLook("ok", "check-circle"),
    RunState.STOPPED: StateLook("neutral", "stop"),
    RunState.FAILED: StateLook("error", "error"),
    RunState.INTERRUPTED: StateLook("warn", "warning"),
}


def state_look(state: RunState) -> StateLook:
    """Tone and icon of a state."""
    return _LOOKS[state]


def state_word(state: RunState) -> str:
    """The state in the language in force."""
    return {
        RunState.QUEUED: translate("RunState", "Waiting"),
        RunState.PREPARING: translate("RunState", "Preparing"),
        RunState.RUNNING: translate("RunState", "Running"),
        RunState.STOPPING: translate("RunState", "Stopping"),
        RunState.FINALIZING: translate("RunState", "Saving"),
        RunState.FINISHED: translate("RunState", "Finished"),
        RunState.STOPPED: translate("RunState", "Stopped"),
        RunState.FAILED: translate("RunState", "Failed"),
        RunState.INTERRUPTED: translate("RunState", "Interrupted"),
    }[state]


def phase_word(phase: str) -> str:
    """A phase in the language in force; an unknown one as it is."""
    words = {
        QUEUED_PHASE: translate("RunState", "Waiting"),
        "starting": translate("Phase", "Starting the engine"),
        "model": translate("Phase", "Loading the model"),
        "data": translate("Phase", "Reading the data"),
        "training": translate("Phase", "Training"),
        "evaluating": translate("Phase", "Evaluating"),
        "saving": translate("Phase", "Saving"),
    }
    return words.get(phase, phase)


def doing_word(status: RunStatus) -> str:
    """What a run does now: its phase while it prepares or trains, else its state."""
    busy = status.phase and status.state in (RunState.PREPARING, RunState.RUNNING)
    return phase_word(status.phase) if busy else state_word(status.state)
