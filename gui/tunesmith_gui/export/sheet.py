"""The export sheet of a run: choices, progress, and how it ended. Closing it leaves the export at work."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import restore_base
from tunesmith_core.operations.command import command_of
from tunesmith_core.operations.kinds.export import EXPORT
from tunesmith_core.plain_text import pasted
from tunesmith_core.runs import Run
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.export.form import ExportForm
from tunesmith_gui.export.model import Facts, look, progress_words
from tunesmith_gui.export.outcome import Outcome, Refusal
from tunesmith_gui.export.service import UNSUPPORTED, Export
from tunesmith_gui.page import Page
from tunesmith_gui.plain_text import window_title
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.announcer import Announcer
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel

_LETTERS, _LINES = 94, 36


def open_sheet(page: Page, run: Run, name: str) -> ExportSheet:
    """Open the sheet of a run over the window of a page and return it."""
    sheet = ExportSheet(page.context, run, name, page.window())
    sheet.notify.connect(page.notify)
    sheet.folder_asked.connect(page.open_folder)
    sheet.open()
    return sheet


class ExportSheet(QDialog):
    """Open it with `open()`; it deletes itself.

    Attributes:
        form: the choices, between a look at the run and the start.
        check: looks whether the proposed GGUF file can be written, None before.
        outcome: how the export ended that is shown.

    Signals:
        notify, folder_asked: see `Page.notify` and `Page.open_folder`.
    """

    notify = Signal(str, str)
    folder_asked = Signal(Path)

    def __init__(self, context: Context, run: Run, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._context, self._run = context, run
        self._export: Export | None = None
        self._fresh = False
        self.form: ExportForm | None = None
        self.outcome: QWidget | None = None
        self.check: OperationTask | None = None
        self._announcer = Announcer(self)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE * 2)
        self.heading = SafeLabel(role="heading", wrap=True, parent=self)
        self._set_name(name)
        column.addWidget(self.heading)
        self._area = QScrollArea(self)
        self._area.setWidgetResizable(True)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        column.addWidget(self._area, 1)
        self.room = SafeLabel(wrap=True, parent=self)
        column.addWidget(self.room)
        column.addLayout(self._build_buttons())
        self.resize(fitting_size(self, _LETTERS, _LINES))
        under_way = context.exports.of(str(run.path))
        if under_way is None:
            self._ask()
        else:
            self._follow(under_way)

    def _set_name(self, name: str) -> None:
        self._name = name
        title = fill(self.tr("Export “%1”"), name)
        self.setWindowTitle(window_title(title))
        self.heading.setText(title)

    def _build_buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.copy_command = button(self.tr("Copy as command"), self._copy_command, kind="quiet", parent=self)
        self.cancel = button(self.tr("Cancel export"), self._cancel, parent=self)
        self.again = button(self.tr("Export again…"), self._ask, parent=self)
        self.shut = button(self.tr("Close"), self.reject, parent=self)
        self.start = button(self.tr("Export"), self._start, kind="primary", parent=self)
        # Not where "Close" was a moment ago: a second click must not cancel.
        for each in (self.copy_command, self.cancel):
            row.addWidget(each)
        row.addStretch(1)
        for each in (self.again, self.shut, self.start):
            row.addWidget(each)
        return row

    def done(self, result: int) -> None:
        """The sheet closes, by its button, Esc or the window's frame: the export goes on."""
        self._let_go()
        super().done(result)

    def _show(self, body: QWidget, *shown: QWidget) -> None:
        self._area.setWidget(body)
        for each in (self.copy_command, self.cancel, self.again, self.start):
            each.setVisible(each in shown)
        self.room.setVisible(self.start in shown)

    def _let_go(self) -> None:
        """Whose end was shown here is not shown again."""
        export, self._export = self._export, None
        if export is not None:
            export.changed.disconnect(self._on_change)
            export.unwatch()
            self._context.exports.forget(export)

    def _ask(self) -> None:
        """Show the choices."""
        self._let_go()
        self.form = self.outcome = None
        self.start.setEnabled(False)
        self._show(SafeLabel(self.tr("Looking at the run…"), tone="muted", parent=self))
        Job.start(self, lambda: look(self._run), self._take_facts, self._take_problem)

    def _take_problem(self, error: TunesmithError) -> None:
        self._show_end(Refusal(error, self), core_text(error.title))
        self.again.hide()

    def _take_facts(self, facts: Facts) -> None:
        if not facts.saved:
            words = "The run {run} has no adapter and no checkpoint."
            self._take_problem(TunesmithError("nothing-to-export", words, run=self._run.id))
            return
        # A page may have been asked before it knew the name.
        self._set_name(facts.name)
        refused = self._context.exports.refused(str(self._run.path))
        self.form = ExportForm(facts, refused, self)
        if self.form.draft.format == "gguf" and facts.base_problem is None:
            self.check = self._context.exports.check_gguf(str(self._run.path), facts.spec, self.form)
            self.check.failed.connect(self._take_refusal)
        self.form.changed.connect(self._on_choice)
        self.form.restore_asked.connect(self._restore_base)
        self._fresh = True
        self._show(self.form, self.copy_command, self.start)
        self.start.setDefault(True)
        self._on_choice()

    def _take_refusal(self, error: TunesmithError) -> None:
        if self.form is not None and error.code == UNSUPPORTED:
            self.form.refuse_gguf(error)

    def _restore_base(self) -> None:
        Job.start(self, lambda: restore_base(self._run), lambda _nothing: self._ask(), self._take_problem)

    def _on_choice(self) -> None:
        if self.form is not None:
            self.room.setText(self.form.room)
            self.room.set_tone("muted" if self.form.can_start else "error")
            self.start.setEnabled(self.form.can_start)
            if self._fresh and self.form.can_start:
                # Enter exports as it is proposed.
                self._fresh = False
                self.start.setFocus(Qt.FocusReason.OtherFocusReason)

    def _start(self) -> None:
        if self.form is not None and self.form.can_start:
            self._follow(self._context.exports.start(self._name, self.form.draft.spec(), self.form.draft.push))

    def _follow(self, export: Export) -> None:
        self._export, self.form = export, None
        export.watched = True
        self.destroyed.connect(export.unwatch)
        export.changed.connect(self._on_change)
        self._progress = _Progress(self)
        self._show(self._progress, self.cancel)
        self.cancel.setEnabled(True)
        self.shut.setFocus(Qt.FocusReason.OtherFocusReason)
        self._on_change()

    def _on_change(self) -> None:
        export = self._export
        if export is None:
            return
        if export.live:
            self._progress.show_export(export)
        elif export.error is not None:
            # The choices come with the first format that was not refused.
            is_left = export.error.code == UNSUPPORTED and export.spec.format == "gguf"
            actions = ((self.tr("Export the merged model…"), self._ask),) if is_left else ()
            self._show_end(Refusal(export.error, self, actions), core_text(export.error.title))
        elif export.answer is not None:
            outcome = Outcome(export.answer, export.warnings, self.folder_asked.emit, self._copy, self)
            self._show_end(outcome, outcome.title)
        else:
            self._announcer.say(self.tr("The export was canceled."))
            self._ask()

    def _show_end(self, outcome: QWidget, words: str) -> None:
        self.outcome = outcome
        self._show(outcome, self.again, *([self.copy_command] if self._export else []))
        self.shut.setFocus(Qt.FocusReason.OtherFocusReason)
        self._announcer.say(words)

    def _cancel(self) -> None:
        export = self._export
        if export is not None:
            self.cancel.setEnabled(False)
            export.task.cancel()
            self._on_change()

    def _copy_command(self) -> None:
        if self._export:
            spec, push = self._export.spec, self._export.push
        elif self.form:
            spec, push = self.form.draft.spec(), self.form.draft.push
        else:
            return
        self._copy(pasted([*command_of(EXPORT, spec), *(push.words() if push else ())]))

    def _copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.notify.emit("ok", self.tr("Copied"))


class _Progress(QWidget):
    """How far an export is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.words = SafeLabel(role="strong", wrap=True, parent=self)
        self.meter = Meter(self.tr("Progress of the export"), height_px=SPACE, parent=self)
        note = self.tr("You can close this sheet. The export continues, and Activity shows how far it is.")
        column.addWidget(self.words)
        column.addWidget(self.meter)
        self._note = SafeLabel(note, tone="muted", wrap=True, parent=self)
        column.addWidget(self._note)
        column.addStretch(1)

    def show_export(self, export: Export) -> None:
        """Bring words and bar up to date."""
        self.words.setText(self.tr("Canceling…") if export.task.cancelled else progress_words(export.status))
        self._note.setVisible(not export.task.cancelled)
        self.meter.set_share(export.status.share or 0.0)
