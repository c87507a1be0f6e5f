"""What a person can do about the outcome of a run: another run with changed settings, or a look at its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunesmith_core import held_out
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import MOST_HELD_OUT_PERCENT

RATE_FACTOR = 5.0
MORE_FACTOR = 3
HELD_OUT_PERCENT = 10.0
LEAST_STEPS = 60
"""Fewer steps seldom teach anything."""
LOOK_AT_ROWS = "look-at-rows"
"""Name of the step that is no other run."""

Changes = dict[str, Any]
"""Setting path such as "optimizer.learning_rate" to its new value."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """One thing to do next.

    Attributes:
        name: "until-step", or a key of `_WORDS`.
        step: of the run where "until-step" ends.
    """

    name: str
    step: int = 0

    @property
    def label(self) -> Message:
        """The words of its button."""
        return _WORDS.get(self.name) or Message("Train until step {step}", step=self.step)

    def changes(self, spec: RunSpec, num_steps: int, num_rows: int) -> Changes:
        """Return what it changes in the settings of a run of so many steps and rows; nothing for a look at the rows.

        Rows are those that were trained and held out.
        """
        if self.name == "hold-out":
            return _hold_out(spec, num_rows)
        change = _CHANGES.get(self.name)
        return change(self, spec, num_steps) if change else {}


def _until_step(step: NextStep, _spec: RunSpec, _num_steps: int) -> Changes:
    return {"schedule.max_steps": step.step}


def _lower_rate(_step: NextStep, spec: RunSpec, _num_steps: int) -> Changes:
    return {"optimizer.learning_rate": float(f"{spec.optimizer.learning_rate / RATE_FACTOR:.3g}")}


def _higher_rate(_step: NextStep, spec: RunSpec, _num_steps: int) -> Changes:
    return {"optimizer.learning_rate": float(f"{min(1.0, spec.optimizer.learning_rate * RATE_FACTOR):.3g}")}


def _more_steps(_step: NextStep, _spec: RunSpec, num_steps: int) -> Changes:
    return {"schedule.max_steps": max(LEAST_STEPS, MORE_FACTOR * num_steps)}


def _fewer_epochs(_step: NextStep, _spec: RunSpec, num_steps: int) -> Changes:
    return {"schedule.max_steps": max(1, num_steps // MORE_FACTOR)}


def _hold_out(spec: RunSpec, num_rows: int) -> Changes:
    wanted = max(HELD_OUT_PERCENT, 2 * spec.evaluation.percent, held_out.least_percent(num_rows))
    changes: Changes = {"evaluation.percent": min(MOST_HELD_OUT_PERCENT, wanted)}
    # Beside a file of held-out rows a share has no effect.
    return changes | ({"evaluation.path": ""} if spec.evaluation.path else {})


_WORDS = {
    "lower-rate": Message("Train at a lower rate"),
    "higher-rate": Message("Train at a higher rate"),
    "more-steps": Message("Train for more steps"),
    "fewer-epochs": Message("Train for fewer steps"),
    "hold-out": Message("Hold out more rows"),
    LOOK_AT_ROWS: Message("Look at the rows"),
}
_CHANGES: dict[str, Callable[[NextStep, RunSpec, int], Changes]] = {
    "until-step": _until_step,
    "lower-rate": _lower_rate,
    "higher-rate": _higher_rate,
    "more-steps": _more_steps,
    "fewer-epochs": _fewer_epochs,
}
