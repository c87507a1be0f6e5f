"""How a run's state and phase look everywhere in the window: icon, tone and word together."""

from __future__ import annotations

from typing import NamedTuple

from tunesmith_core.runs import RunState
from tunesmith_gui.tr import translate

PHASES = ("starting", "model", "data", "training", "evaluating", "saving")
"""The phases of a run in their order, as the journal names them."""


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
        "starting": translate("Phase", "Starting"),
        "model": translate("Phase", "Model"),
        "data": translate("Phase", "Data"),
        "training": translate("Phase", "Training"),
        "evaluating": translate("Phase", "Evaluating"),
        "saving": translate("Phase", "Saving"),
    }
    return words.get(phase, phase)
