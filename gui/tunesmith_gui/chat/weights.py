"""Which weights of a run can answer, and the box to choose among them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from PySide6.QtWidgets import QComboBox, QWidget

from tunesmith_core.checkpoint_manifest import step_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import chosen_weights
from tunesmith_core.runs import Run
from tunesmith_gui import tr
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.widgets.field import guard_wheel


@dataclass(frozen=True, slots=True)
class Weights:
    """What is in the folder of a run.

    Attributes:
        has_adapter: whether there is a finished adapter.
        steps: of checkpoints, newest first.
        newest: the step of the finished adapter, or of the newest checkpoint; 0 for none.
    """

    has_adapter: bool = False
    steps: tuple[int, ...] = ()
    newest: int = 0


def find_weights(run: Run) -> Weights:
    """Return which weights of a run can answer."""
    saved = sorted((step_of(path) for path in run.checkpoints_path.glob("step-*")), reverse=True)
    newest = 0
    with contextlib.suppress(TunesmithError):
        newest, _folder = chosen_weights(run, 0)
    return Weights(run.adapter_path.is_dir(), tuple(saved), newest)


class WeightsBox(QComboBox):
    """A box whose data is the step of a checkpoint; its first entry has 0."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        guard_wheel(self)

    @property
    def step(self) -> int:
        """Of the checkpoint that is chosen, 0 for the first entry."""
        return int(self.currentData() or 0)

    def show_weights(self, weights: Weights, chosen: int = 0, first: str = "") -> None:
        """Offer the weights of a run.

        Args:
            weights: what there is.
            chosen: the step that is chosen.
            first: words of the entry before the checkpoints, "" for the newest weights.
        """
        self.clear()
        newest = self.tr("Finished adapter") if weights.has_adapter else self.tr("Newest checkpoint")
        if weights.newest:
            newest = tr.fill(self.tr("%1, step %2"), newest, tr.number(weights.newest))
        add_choice(self, first or newest, 0)
        for step in weights.steps:
            add_choice(self, tr.fill(self.tr("Step %1"), tr.number(step)), step)
        self.setCurrentIndex(max(0, self.findData(chosen)))
