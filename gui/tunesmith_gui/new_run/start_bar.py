"""Start, whose label names what is missing, and "Copy as" below it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.new_run.form import Missing
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel


def missing_word(missing: Missing) -> str:
    """The label of Start."""
    return {
        Missing.NOTHING: translate("StartBar", "Start run"),
        Missing.ENVIRONMENT: translate("StartBar", "Training is not set up"),
        Missing.MODEL: translate("StartBar", "Choose a model"),
        Missing.MODEL_BROKEN: translate("StartBar", "The model can't be used"),
        Missing.DATA: translate("StartBar", "Choose data"),
        Missing.DATA_BROKEN: translate("StartBar", "The data can't be used"),
        Missing.SETTING: translate("StartBar", "Correct a setting"),
        Missing.MEMORY: translate("StartBar", "Does not fit: see plan"),
        Missing.STARTING: translate("StartBar", "Starting…"),
    }[missing]


class StartBar(QWidget):
    """Start and "Copy as".

    Signals:
        start_asked, copy_command_asked, copy_json_asked, save_asked: the person chose that.
    """

    start_asked = Signal()
    copy_command_asked = Signal()
    copy_json_asked = Signal()
    save_asked = Signal()

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE * 2)
        self.plan = SafeLabel(role="strong", wrap=True, parent=self)
        row.addWidget(self.plan, 1)
        column = QVBoxLayout()
        column.setSpacing(SPACE)
        row.addLayout(column, 1)
        self.reason = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        self.reason.hide()
        self.copy_as = button(self.tr("Copy as…"), kind="quiet", icon_name="copy", parent=self)
        menu = QMenu(self.copy_as)
        menu.addAction(self.tr("Copy as command")).triggered.connect(self.copy_command_asked)
        menu.addAction(self.tr("Copy spec as JSON")).triggered.connect(self.copy_json_asked)
        menu.addAction(self.tr("Save spec…")).triggered.connect(self.save_asked)
        self.copy_as.setMenu(menu)
        self.start = button("", self.start_asked.emit, kind="primary", icon_name="play", parent=self)
        self.start.setMinimumHeight(SPACE * 5)
        for widget in (self.reason, self.start, self.copy_as):
            column.addWidget(widget)
        self.show_missing(Missing.MODEL, "")

    def set_beside_plan(self, beside: bool) -> None:
        """Away from the plan its verdict stands beside Start."""
        self.plan.setVisible(not beside)

    def show_missing(self, missing: Missing, reason: str) -> None:
        """Names what is missing on the button; `reason` says it in full above it."""
        words = missing_word(missing)
        ready = missing is Missing.NOTHING
        self.start.setText(f"{words}   Ctrl+Enter" if ready else words)
        self.start.setAccessibleName(words)
        self.start.setEnabled(ready)
        self.start.setAccessibleDescription(reason)
        self.start.setToolTip(reason)
        self.reason.setText(reason)
        self.reason.setVisible(bool(reason))
