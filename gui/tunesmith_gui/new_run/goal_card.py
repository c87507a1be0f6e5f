"""The card for what training aims at, and the run's name."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox, QLineEdit, QWidget

from tunesmith_core.runs import MAX_NAME_CHARS
from tunesmith_gui.new_run.form import EVALUATION_PERCENT, NewRunForm
from tunesmith_gui.new_run.setting_text import number_text
from tunesmith_gui.tr import fill, translate
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import Field


class GoalCard(Card):
    """Evaluation split, early stopping and name."""

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("GoalCard", "Goal and name"), parent=parent)
        self._form = form
        self.evaluation = QCheckBox(self)
        self.evaluation.clicked.connect(form.set_keeps_evaluation_split)
        self.early = QCheckBox(self.tr("Stop when the evaluation loss no longer falls"), self)
        self.early.clicked.connect(form.set_stops_early)
        self.name = QLineEdit(self)
        self.name.setMaxLength(MAX_NAME_CHARS)
        self.name.textEdited.connect(form.set_name)
        self.name.setPlaceholderText(self.tr("Named after data and model"))
        self.body.addWidget(self.evaluation)
        self.body.addWidget(self.early)
        self.body.addWidget(Field(self.tr("Name of the run"), self.name, parent=self))
        self.refresh()

    def refresh(self) -> None:
        """Shows the form's values."""
        form = self._form
        own_file = bool(form.value("evaluation.path"))
        percent = form.value("evaluation.percent") or EVALUATION_PERCENT
        words = fill(self.tr("Keep %1% of the examples for evaluation"), number_text(percent))
        self.evaluation.setText(self.tr("Evaluate on the file named in the settings") if own_file else words)
        self.evaluation.setAccessibleName(self.evaluation.text())
        self.evaluation.setChecked(own_file or form.keeps_evaluation_split)
        self.evaluation.setEnabled(not own_file)
        self.early.setChecked(form.stops_early)
        self.early.setEnabled(form.can_stop_early)
        if self.name.text().strip() != form.name:
            self.name.setText(form.name)
