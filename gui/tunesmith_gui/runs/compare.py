"""Runs side by side: their loss curves over each other, and only the settings that differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QTreeWidget, QVBoxLayout, QWidget

from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.models.metric_series import Floats, smooth
from tunesmith_gui.plain_text import line, tree_item
from tunesmith_gui.runs.model import differing_settings
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.metric_plot import Line, MetricPlot
from tunesmith_gui.widgets.safe_label import SafeLabel

MAX_RUNS = 6
_SMOOTHING = 0.8


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run with its curves; arrays of shape (n,). Of one that learns from rewards these stand for its losses."""

    name: str
    spec: RunSpec
    steps: Floats
    losses: Floats
    eval_steps: Floats
    eval_losses: Floats
    is_rewarded: bool = False


def load_compared(runs: list[tuple[str, Run]]) -> list[ComparedRun]:
    """Read specs and journals of named runs; takes long, for a worker thread."""
    loaded = []
    for name, run in runs[:MAX_RUNS]:
        model = DashboardModel()
        model.apply(pack(read_journal(run.journal_path)))
        steps, evals = model.steps, model.evals
        measured = "reward" if model.has_rewards else "loss"
        (at, values), (eval_at, eval_values) = (
            (series.column("step").copy(), series.column(measured).copy()) for series in (steps, evals)
        )
        loaded.append(ComparedRun(name, run.load_spec(), at, values, eval_at, eval_values, model.has_rewards))
    return loaded


class CompareDialog(QDialog):
    """Curves and differing settings of two to six runs."""

    def __init__(self, runs: list[ComparedRun], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Compare runs"))
        self.resize(SPACE * 120, SPACE * 85)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(self.tr("Compare runs"), role="title", parent=self))
        of_rewards = all(run.is_rewarded for run in runs)
        title = self.tr("Loss, smoothed, with evaluation loss as dots")
        name, axis = self.tr("Loss of the compared runs"), self.tr("Loss")
        if of_rewards:
            title = self.tr("Reward, smoothed, with held-out reward as dots")
            name, axis = self.tr("Reward of the compared runs"), self.tr("Reward")
        card = Card(title, parent=self)
        self.plot = MetricPlot(name, y_title=axis, parent=card)
        self.plot.setMinimumHeight(SPACE * 25)
        # A reward beside a loss would say nothing.
        self.plot.set_lines(_lines([run for run in runs if run.is_rewarded is of_rewards]))
        card.body.addWidget(self.plot, 1)
        column.addWidget(card, 3)
        differences = differing_settings([run.spec for run in runs])
        self.table = QTreeWidget(self)
        self.table.setAccessibleName(self.tr("Settings that differ"))
        self.table.setRootIsDecorated(False)
        self.table.setHeaderLabels([self.tr("Setting"), *(line(run.name) for run in runs)])
        for difference in differences:
            self.table.addTopLevelItem(tree_item([core_text(difference.label), *difference.values]))
        for place in range(len(runs) + 1):
            self.table.resizeColumnToContents(place)
        words = self.tr("Settings that differ") if differences else self.tr("All settings are the same")
        column.addWidget(SafeLabel(words, role="heading", parent=self))
        self.table.setVisible(bool(differences))
        column.addWidget(self.table, 2)
        self.close_button = button(self.tr("Close"), self.accept, parent=self)
        column.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignRight)


def _lines(runs: list[ComparedRun]) -> list[Line]:
    lines = []
    for place, run in enumerate(runs):
        finite = np.isfinite(run.losses)
        steps, losses = run.steps[finite], smooth(run.losses[finite], _SMOOTHING)
        lines.append(Line(run.name, steps, losses, "smooth", place, dashed=True))
        if len(run.eval_steps):
            lines.append(
                Line(
                    fill(translate("CompareDialog", "%1, evaluation"), run.name),
                    run.eval_steps,
                    run.eval_losses,
                    "dots",
                    place,
                )
            )
    return lines
