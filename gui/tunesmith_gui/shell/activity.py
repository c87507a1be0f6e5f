"""The queue as a small panel over the rail: what runs, what waits, how far, what has ended, and the way to each."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from tunesmith_core.operations.folder import OperationState
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.export.model import notice
from tunesmith_gui.export.service import Export
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
_MOST_RUN_ENDS = 5


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
        self.name = SafeLabel(run.name, role="strong", wrap=True, parent=self)
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
        self.task = task
        self.name = ElidedLabel("", role="strong", parent=self)
        self.words = SafeLabel(role="caption", tone="muted", parent=self)
        self.meter = Meter("", parent=self)
        self.cancel = button("", task.cancel, kind="link", parent=self)
        foot = QHBoxLayout()
        foot.addWidget(self.words, 1)
        foot.addWidget(self.cancel)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(self.name)
        column.addWidget(self.meter)
        column.addLayout(foot)
        self.show_progress()

    def show_progress(self) -> None:
        status, rests, words = self.task.status, self.task.rests, self.task.words
        self.name.setText(words)
        self.meter.setAccessibleName(words)
        self.meter.setVisible(status.share is not None)
        self.meter.set_share(status.share or 0.0)
        says_phase = status.state is OperationState.RUNNING and not rests
        self.words.setText(tr.core_text(status.phase) if says_phase else "")
        ending = self.tr("Unload") if rests else self.tr("Cancel")
        self.cancel.setText(ending)
        self.cancel.setAccessibleName(tr.fill(self.tr("%1: %2"), ending, words))
        self.cancel.setEnabled(not self.task.cancelled)


class _EndRow(QWidget):
    """How an export ended that ran while its sheet was closed.

    Signals:
        folder_asked: the person wants to see its folder.
        dismissed: the person has read it.
    """

    folder_asked = Signal()
    dismissed = Signal()

    def __init__(self, export: Export, parent: QWidget) -> None:
        super().__init__(parent)
        self.export = export
        tone, self.words = notice(export.name, export.spec.label, export.answer, export.error)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(SafeLabel(self.words, role="strong", tone=tone, wrap=True, parent=self))
        foot = QHBoxLayout()
        told = "" if export.error is None else tr.core_text(export.error.message)
        foot.addWidget(SafeLabel(told, role="caption", tone="muted", wrap=True, parent=self), 1)
        self.show_folder = button(self.tr("Show in folder"), self.folder_asked.emit, kind="link", parent=self)
        self.show_folder.setAccessibleName(tr.fill(self.tr("Show in folder: %1"), export.name))
        self.show_folder.setVisible(export.answer is not None)
        self.dismiss = button(self.tr("Dismiss"), self.dismissed.emit, kind="link", parent=self)
        self.dismiss.setAccessibleName(tr.fill(self.tr("Dismiss: %1"), self.words))
        foot.addWidget(self.show_folder)
        foot.addWidget(self.dismiss)
        column.addLayout(foot)


class _RunEndRow(QWidget):
    """How a run ended while the window was open.

    Signals:
        opened: the person wants to see it.
        dismissed: the person has read it.
    """

    opened = Signal()
    dismissed = Signal()

    def __init__(self, name: str, state: RunState, parent: QWidget) -> None:
        super().__init__(parent)
        self.name, self.state = name, state
        self.words = tr.fill(self.tr("%1: %2"), state_word(state), name)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        self.label = SafeLabel(self.words, role="strong", wrap=True, parent=self)
        column.addWidget(self.label)
        row = QHBoxLayout()
        row.addStretch(1)
        column.addLayout(row)
        self.open = button(self.tr("Open"), self.opened.emit, kind="link", parent=self)
        self.open.setAccessibleName(tr.fill(self.tr("Open %1"), name))
        self.dismiss = button(self.tr("Dismiss"), self.dismissed.emit, kind="link", parent=self)
        self.dismiss.setAccessibleName(tr.fill(self.tr("Dismiss: %1"), self.words))
        row.addWidget(self.open)
        row.addWidget(self.dismiss)


class ActivityPanel(Popup):
    """A pop-up that lists what is live and what has ended; closes when the person clicks elsewhere or presses Esc.

    Signals:
        opened: (str run id) go to this run.
        new_run_asked: nothing runs and the person wants to begin.
        folder_asked: (Path) show what was exported.
        dismissed: (Export) the person has read how it ended.
        changed: `told` may say something else.
    """

    opened = Signal(str)
    new_run_asked = Signal()
    folder_asked = Signal(Path)
    dismissed = Signal(object)
    changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(tr.translate("ActivityPanel", "Activity"), parent)
        self._window = parent
        self._anchor: QWidget | None = None
        self._rows: dict[str, _Row] = {}
        self.operation_rows: list[_OperationRow] = []
        self.end_rows: list[_EndRow] = []
        self.run_ends: dict[str, _RunEndRow] = {}
        self.body.setContentsMargins(SPACE * 2, SPACE * 2, SPACE * 2, SPACE * 2)
        self.body.setSpacing(SPACE * 2)
        self.body.addWidget(SafeLabel(self.tr("Activity"), role="heading", parent=self))
        self._empty = SafeLabel(self.tr("Nothing is running."), tone="muted", parent=self)
        self._new = button(self.tr("New run"), self._ask_new, kind="primary", icon_name="plus", parent=self)
        self.body.addWidget(self._empty)
        self.body.addWidget(self._new, 0, Qt.AlignmentFlag.AlignLeft)
        self.area = QScrollArea(self)
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._holder = QWidget(self.area)
        self._list = QVBoxLayout(self._holder)
        self._list.setContentsMargins(0, 0, SPACE, 0)
        self._list.setSpacing(SPACE * 2)
        self.area.setWidget(self._holder)
        self.body.addWidget(self.area)
        self.setFixedWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)
        operations().changed.connect(self.show_operations)
        self.show_operations()

    @property
    def told(self) -> tuple[str, str]:
        """A few words about activity other than live runs, and the name in them; ("", "") for none.

        What works comes before what has ended, and that before what rests.
        """
        tasks = [row.task for row in self.operation_rows]
        works = [(task.words, task.run_name) for task in tasks if not task.rests]
        rests = [(task.words, task.run_name) for task in tasks if task.rests]
        exports = [(row.words, row.export.name) for row in self.end_rows]
        runs = [(row.words, row.name) for row in reversed(self.run_ends.values())]
        return next(iter([*works, *exports, *runs, *rests]), ("", ""))

    @property
    def ended_runs(self) -> list[tuple[str, str, RunState]]:
        """Id, name and state of the runs that are listed as ended, the oldest first."""
        return [(run_id, row.name, row.state) for run_id, row in self.run_ends.items()]

    def show_run_end(self, run_id: str, name: str, state: RunState) -> None:
        """Lists a run that has ended, until the person has opened or dismissed it."""
        self._forget_run_end(run_id)
        row = self.run_ends[run_id] = _RunEndRow(name, state, self._holder)
        row.opened.connect(lambda: self._open(run_id))
        row.dismissed.connect(lambda: self._forget_run_end(run_id))
        self._list.addWidget(row)
        for oldest in list(self.run_ends)[:-_MOST_RUN_ENDS]:
            self._forget_run_end(oldest)
        self._fit()

    def _forget_run_end(self, run_id: str) -> None:
        if run_id in self.run_ends:
            self._drop(self.run_ends.pop(run_id))
            self._fit()

    def show_operations(self) -> None:
        """Lists what this window does beside runs, keeping the rows that stay."""
        live = operations().live
        for row in [row for row in self.operation_rows if row.task not in live]:
            self.operation_rows.remove(row)
            self._drop(row)
        shown = [row.task for row in self.operation_rows]
        for task in live:
            if task not in shown:
                self.operation_rows.append(_OperationRow(task, self._holder))
                self._list.addWidget(self.operation_rows[-1])
        for row in self.operation_rows:
            row.show_progress()
        self._fit()

    def show_ended(self, exports: list[Export]) -> None:
        """Lists the exports that have ended and that nobody has seen since."""
        for row in [row for row in self.end_rows if row.export not in exports]:
            self.end_rows.remove(row)
            self._drop(row)
        shown = [row.export for row in self.end_rows]
        for export in exports:
            if export not in shown:
                row = _EndRow(export, self._holder)
                row.folder_asked.connect(lambda export=export: self._show_folder(export))
                row.dismissed.connect(lambda export=export: self.dismissed.emit(export))
                self.end_rows.append(row)
                self._list.addWidget(row)
        self._fit()

    def show_runs(self, runs: list[LiveRun]) -> None:
        """Lists the runs, keeping the rows that stay."""
        for run_id in self._rows.keys() - {run.id for run in runs}:
            self._drop(self._rows.pop(run_id))
        for run in runs:
            self._forget_run_end(run.id)
            if run.id in self._rows:
                self._rows[run.id].show_run(run)
            else:
                row = _Row(run, self._holder)
                row.opened.connect(self._open)
                self._rows[run.id] = row
                self._list.addWidget(row)
        self._fit()

    def show_above(self, anchor: QWidget) -> None:
        """Opens the panel with its lower left corner beside a button."""
        self._anchor = anchor
        self._fit()
        self.show()
        # Only now the rows know how high their words are.
        self._fit()

    def _drop(self, row: QWidget) -> None:
        self._list.removeWidget(row)
        row.hide()
        row.deleteLater()

    def _fit(self) -> None:
        """As high as the rows are, where the window has room for them, and always above the button."""
        idle = not (self._rows or self.operation_rows or self.end_rows or self.run_ends)
        self._empty.setVisible(idle)
        self._new.setVisible(idle)
        self.area.setVisible(not idle)
        room_px = self._window.height() - SPACE * 12
        self._list.activate()
        self.area.setFixedHeight(min(self._holder.sizeHint().height(), room_px))
        self.fit_height()
        if self._anchor is not None:
            corner = self._anchor.mapToGlobal(QPoint(self._anchor.width() + SPACE, self._anchor.height()))
            self.move(corner.x(), max(corner.y() - self.height(), 0))
        self.changed.emit()

    def _open(self, run_id: str) -> None:
        self.hide()
        self._forget_run_end(run_id)
        self.opened.emit(run_id)

    def _show_folder(self, export: Export) -> None:
        self.hide()
        if export.answer is not None:
            self.folder_asked.emit(Path(export.answer["path"]))

    def _ask_new(self) -> None:
        self.hide()
        self.new_run_asked.emit()
