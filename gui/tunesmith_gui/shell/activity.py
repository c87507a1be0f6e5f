"""The queue as a small panel over the rail: what runs, what waits, how far, and the way to each of them."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.operations.folder import OperationState
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.models.run_words import state_look, state_word, waiting_words
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.services.run_service import LiveRun
from tunesmith_gui.shell.popup import Popup
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_WIDTH_LETTERS = 46


def progress_words(run: LiveRun) -> str:
    """Step, total and time left in words, or what the run waits for, as far as that is known."""
    if run.state is RunState.QUEUED and run.place is not None:
        return waiting_words(run.place)
    if run.state is not RunState.RUNNING or not run.num_steps:
        return ""
    steps = tr.fill(tr.translate("Activity", "step %1 of %2"), tr.number(run.step), tr.number(run.num_steps))
    if run.eta_s is None:
        return steps
    left = tr.fill(tr.translate("Activity", "%1 left"), tr.duration(run.eta_s))
    return f"{steps} · {left}"


class _Row(QWidget):
    """One live run."""

    opened = Signal(str)

    def __init__(self, run: LiveRun, parent: QWidget) -> None:
        super().__init__(parent)
        self._id = run.id
        self.name = ElidedLabel(run.name, role="strong", parent=self)
        self.chip = StatusChip(parent=self)
        self.words = SafeLabel(role="caption", tone="muted", parent=self)
        self.meter = Meter(run.name, parent=self)
        self.open = button(self.tr("Open"), lambda: self.opened.emit(self._id), kind="link", parent=self)
        self.open.setAccessibleName(tr.fill(self.tr("Open %1"), run.name))
        head = QHBoxLayout()
        head.addWidget(self.name, 1)
        head.addWidget(self.chip)
        foot = QHBoxLayout()
        foot.addWidget(self.words, 1)
        foot.addWidget(self.open)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addLayout(head)
        column.addWidget(self.meter)
        column.addLayout(foot)
        self.show_run(run)

    def show_run(self, run: LiveRun) -> None:
        look = state_look(run.state)
        self.name.setText(run.name)
        self.chip.set_state(state_word(run.state), look.tone, icon_name=look.icon_name)
        self.meter.set_share(run.step / run.num_steps if run.num_steps else 0.0)
        self.words.setText(progress_words(run))


class _OperationRow(QWidget):
    """One short operation of this window."""

    def __init__(self, task: OperationTask, parent: QWidget) -> None:
        super().__init__(parent)
        title = tr.core_text(task.kind.title)
        self.task = task
        self.words = SafeLabel(role="caption", tone="muted", parent=self)
        self.meter = Meter(title, parent=self)
        self.cancel = button(self.tr("Cancel"), task.cancel, kind="link", parent=self)
        self.cancel.setAccessibleName(tr.fill(self.tr("Cancel: %1"), title))
        foot = QHBoxLayout()
        foot.addWidget(self.words, 1)
        foot.addWidget(self.cancel)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(ElidedLabel(title, role="strong", parent=self))
        column.addWidget(self.meter)
        column.addLayout(foot)
        self.show_progress()

    def show_progress(self) -> None:
        status = self.task.status
        self.meter.setVisible(status.share is not None)
        self.meter.set_share(status.share or 0.0)
        self.words.setText(tr.core_text(status.phase) if status.state is OperationState.RUNNING else "")
        self.cancel.setEnabled(not self.task.cancelled)


class ActivityPanel(Popup):
    """A pop-up that lists the live runs and operations; closes when the person clicks elsewhere or presses Esc.

    Signals:
        opened: (str run id) go to this run.
        new_run_asked: nothing runs and the person wants to begin.
    """

    opened = Signal(str)
    new_run_asked = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(tr.translate("ActivityPanel", "Activity"), parent)
        self._rows: dict[str, _Row] = {}
        self.operation_rows: list[_OperationRow] = []
        self.body.setContentsMargins(SPACE * 2, SPACE * 2, SPACE * 2, SPACE * 2)
        self.body.setSpacing(SPACE * 2)
        self.body.addWidget(SafeLabel(self.tr("Activity"), role="heading", parent=self))
        self._empty = SafeLabel(self.tr("Nothing is running."), tone="muted", parent=self)
        self._new = button(self.tr("New run"), self._ask_new, kind="primary", icon_name="plus", parent=self)
        self.body.addWidget(self._empty)
        self.body.addWidget(self._new, 0, Qt.AlignmentFlag.AlignLeft)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)
        operations().changed.connect(self.show_operations)
        self.show_operations()

    def show_operations(self) -> None:
        """Lists what this window does beside runs, keeping the rows that stay."""
        live = operations().live
        for row in [row for row in self.operation_rows if row.task not in live]:
            self.operation_rows.remove(row)
            row.deleteLater()
        shown = [row.task for row in self.operation_rows]
        for task in live:
            if task not in shown:
                self.operation_rows.append(_OperationRow(task, self))
                self.body.addWidget(self.operation_rows[-1])
        for row in self.operation_rows:
            row.show_progress()
        self._show_emptiness()

    def _show_emptiness(self) -> None:
        idle = not self._rows and not self.operation_rows
        self._empty.setVisible(idle)
        self._new.setVisible(idle)
        self.fit_height()

    def show_runs(self, runs: list[LiveRun]) -> None:
        """Lists the runs, keeping the rows that stay."""
        for run_id in self._rows.keys() - {run.id for run in runs}:
            self._rows.pop(run_id).deleteLater()
        for run in runs:
            if run.id in self._rows:
                self._rows[run.id].show_run(run)
            else:
                row = _Row(run, self)
                row.opened.connect(self._open)
                self._rows[run.id] = row
                self.body.addWidget(row)
        self._show_emptiness()

    def show_above(self, anchor: QWidget) -> None:
        """Opens the panel with its lower left corner beside a button."""
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(anchor.width() + SPACE, anchor.height()))
        self.move(corner.x(), max(corner.y() - self.height(), 0))
        self.show()

    def _open(self, run_id: str) -> None:
        self.hide()
        self.opened.emit(run_id)

    def _ask_new(self) -> None:
        self.hide()
        self.new_run_asked.emit()
