"""The card for what training aims at, and the run's name."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QWidget

from tunesmith_core import held_out
from tunesmith_core.runs import MAX_NAME_CHARS
from tunesmith_gui.new_run.form import BY_REWARD, EVALUATION_PERCENT, NewRunForm
from tunesmith_gui.new_run.setting_paths import GROUPS
from tunesmith_gui.new_run.setting_text import number_text
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import SafeLabel

COMBO_LETTERS = 16


class GoalCard(Card):
    """Share of held-out rows and its groups, early stopping and name."""

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("GoalCard", "Goal and name"), parent=parent)
        self._form = form
        self.evaluation = QCheckBox(self)
        self.evaluation.clicked.connect(form.set_keeps_evaluation_split)
        self.early = QCheckBox(self)
        self.early.clicked.connect(form.set_stops_early)
        self.name = QLineEdit(self)
        self.name.setMaxLength(MAX_NAME_CHARS)
        self.name.textEdited.connect(form.set_name)
        self.name.setPlaceholderText(self.tr("Named after data and model"))
        self.body.addWidget(self.evaluation)
        self.held_out = SafeLabel(role="caption", tone="warn", wrap=True, parent=self)
        self.held_out.hide()
        self.body.addWidget(self.held_out)
        self.hold_out = button("", self._hold_out_more, kind="link", parent=self)
        self.hold_out.hide()
        self.body.addWidget(self.hold_out, 0, Qt.AlignmentFlag.AlignLeft)
        self._advised: float | None = None
        self.groups = QComboBox(self)
        self.groups.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.groups.setMinimumContentsLength(COMBO_LETTERS)
        self.groups.activated.connect(lambda _index: form.set_value(GROUPS, self.groups.currentData()))
        help_words = self.tr("Rows with the same value there are all trained or all held out.")
        self._groups = Field(self.tr("Keep groups together by column"), self.groups, help_text=help_words, parent=self)
        self._columns: tuple[str, ...] = ()
        self.body.addWidget(self._groups)
        self.body.addWidget(self.early)
        self.body.addWidget(Field(self.tr("Name of the run"), self.name, parent=self))
        self.refresh()

    def refresh(self) -> None:
        """Shows the form's values."""
        form = self._form
        own_file = bool(form.value("evaluation.path"))
        percent = form.value("evaluation.percent") or EVALUATION_PERCENT
        words = fill(self.tr("Hold out %1% of the rows for evaluation"), number_text(percent))
        self.evaluation.setText(self.tr("Evaluate on the file named in the settings") if own_file else words)
        self.evaluation.setAccessibleName(self.evaluation.text())
        self.evaluation.setChecked(own_file or form.keeps_evaluation_split)
        self.evaluation.setEnabled(not own_file)
        self._show_groups()
        by_loss = self.tr("Stop when the evaluation loss no longer falls")
        by_reward = self.tr("Stop when the held-out reward no longer rises")
        self.early.setText(by_reward if form.way == BY_REWARD else by_loss)
        self.early.setChecked(form.stops_early)
        self.early.setEnabled(form.can_stop_early)
        if self.name.text().strip() != form.name:
            self.name.setText(form.name)

    def show_num_rows(self, num_rows: int | None) -> None:
        """Says where so many rows of data are too few for the share that is held out, and offers a larger one."""
        note = held_out.note(self._form.spec, num_rows)
        self.held_out.setText(core_text(note) if note else "")
        self.held_out.setVisible(note is not None)
        self._advised = held_out.advised_percent(self._form.spec, num_rows)
        if self._advised is None and self.hold_out.hasFocus():
            self.evaluation.setFocus()  # else Qt hands the keyboard to the side bar
        self.hold_out.setVisible(self._advised is not None)
        if self._advised is not None:
            self.hold_out.setText(core_text(held_out.action(self._advised)))
            self.hold_out.setAccessibleName(self.hold_out.text())

    def _hold_out_more(self) -> None:
        self._form.set_value("evaluation.percent", self._advised)

    def show_columns(self, columns: Sequence[str]) -> None:
        """Offers the columns of the data as groups; a row of one column has none."""
        self._columns = tuple(columns) if len(columns) > 1 else ()
        self._show_groups()

    def _show_groups(self) -> None:
        """Only where a share is held out, and where there is a column to choose or to take back."""
        form = self._form
        chosen = form.value(GROUPS)
        names = list(dict.fromkeys(["", *self._columns, chosen]))
        if [self.groups.itemData(place) for place in range(self.groups.count())] != names:
            self.groups.clear()
            for name in names:
                add_choice(self.groups, name or self.tr("No groups"), name)
        self.groups.setCurrentIndex(names.index(chosen))
        self._groups.set_error(form.problem(GROUPS))
        self._groups.setVisible(len(names) > 1 and form.keeps_evaluation_split and not form.value("evaluation.path"))
