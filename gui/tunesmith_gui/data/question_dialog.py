"""Asks which model writes questions about documents and where they are saved, and shows how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QSpinBox, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.questions import MOST_QUESTIONS, QUESTIONS, Begun, QuestionsSpec, begun, note_path
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.copy_name import ask_for_copy, usual_copy
from tunesmith_gui.plain_text import window_title
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import duration, fill, number
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

ADDITION = "-questions"
_WIDTH_LETTERS = 68
_USUAL_NUMBER = 3


class QuestionDialog(QDialog):
    """Open it with `open()`; closing it stops the model, and what is written stays.

    Args:
        source: the documents.
        models: that can be chosen; those without a chat template can't follow the request.
        model: path of the one that is proposed.
        parent: the window.

    Signals:
        written: (Path) the file is to be reviewed, whole or as far as it is.
        told: (str) what came of the passages, once it is whole.
    """

    written = Signal(object)
    told = Signal(str)
    addition = ADDITION

    def __init__(self, source: SourceSpec, models: Sequence[ModelCard], model: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._source = source
        self._target = usual_copy(Path(source.path), self.addition, lambda path: note_path(path).exists())
        self._replaces = False
        self.task: OperationTask | None = None
        self._error: QWidget | None = None
        title, words = self._introduction()
        self.setWindowTitle(window_title(title))
        self.setMinimumWidth(fitting_size(self, _WIDTH_LETTERS, 0).width())
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        self._column.setSpacing(SPACE * 2)
        self._column.addWidget(SafeLabel(title, role="heading", wrap=True, parent=self))
        self._column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self._column.addWidget(self._build_choices(models, model))
        self._column.addWidget(self._build_progress())
        self._column.addStretch(1)
        self._column.addLayout(self._build_buttons())
        self._show_target()
        QTimer.singleShot(0, self, self._fit)

    # What another dialog of this kind says otherwise

    def _introduction(self) -> tuple[str, str]:
        """The title, and what will be done."""
        return self.tr("Write questions from documents"), self.tr(
            "A model on this computer reads the text passage by passage and writes questions with answers. Nothing is "
            "sent anywhere. A model can be wrong, so you review each row afterwards."
        )

    def _model_help(self) -> str:
        return self.tr("Larger models write better questions. One without a chat template can't do it.")

    def _number_field(self) -> tuple[str, str]:
        """Name and help of the number, whose range and value are set."""
        self.number.setRange(1, MOST_QUESTIONS)
        self.number.setValue(_USUAL_NUMBER)
        help_text = self.tr("Too many make a small model repeat itself. 3 suits most documents.")
        return self.tr("Questions per passage"), help_text

    def _begin_word(self) -> str:
        return self.tr("Write questions")

    def _so_far_words(self, so_far: Begun) -> str:
        words = self.tr("%Ln question(s) so far, from %1 of %2 passages", "", so_far.questions)
        return fill(words, number(so_far.passages), number(so_far.total))

    def _make_task(self, run: RunSpec, target: AbsolutePath) -> OperationTask:
        spec = QuestionsSpec(run, target, self.number.value(), overwrite=self._replaces)
        return OperationTask(QUESTIONS, spec, parent=self)

    def _progress_words(self, data: Mapping[str, Any]) -> list[str]:  # Any: JSON values
        passages = fill(self.tr("%1 of %2 passages"), number(data["done_bytes"]), number(data["total_bytes"]))
        rate = fill(self.tr("%1 passages per minute"), number(60 * data["passages_per_s"], 1))
        return [passages, self.tr("%Ln question(s)", "", data["questions"]), rate]

    def _end_words(self, answer: Mapping[str, Any]) -> str:  # Any: JSON values
        words = fill(self.tr("%Ln question(s) written. Passages: %1.", "", answer["rows"]), number(answer["passages"]))
        if answer["silent"]:
            words += " " + self.tr("%Ln of them gave none.", "", answer["silent"])
        return words

    # Building

    def _build_choices(self, models: Sequence[ModelCard], model: str) -> QWidget:
        self.choices = QWidget(self)
        column = QVBoxLayout(self.choices)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        able = [PathChoice(card.name, str(card.path)) for card in models if card.has_chat_template]
        self.model = PathCombo(self.tr("Model"), self.tr("Choose an instruct model"), "models", parent=self)
        self.model.set_choices(able)
        paths = [choice.path for choice in able]
        self.model.show_path(model if model in paths else next(iter(paths), ""))
        self.model.path_chosen.connect(lambda _path: self._show_target())
        column.addWidget(Field(self.tr("Model"), self.model, help_text=self._model_help(), parent=self))
        self.number = QSpinBox(self)
        name, help_text = self._number_field()
        self.number.lineEdit().setTextMargins(SPACE - 2, 0, 0, 0)
        column.addWidget(Field(name, self.number, help_text=help_text, parent=self))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.target = ElidedLabel(mode=Qt.TextElideMode.ElideMiddle, parent=self)
        row.addWidget(self.target, 1)
        self.change = button(self.tr("Save elsewhere…"), self._ask_where, kind="link", parent=self)
        row.addWidget(self.change)
        column.addLayout(row)
        self.so_far = SafeLabel(tone="muted", wrap=True, parent=self)
        column.addWidget(self.so_far)
        return self.choices

    def _build_progress(self) -> QWidget:
        self.progress = QWidget(self)
        column = QVBoxLayout(self.progress)
        column.setContentsMargins(0, 0, 0, 0)
        self.words = SafeLabel(wrap=True, parent=self)
        column.addWidget(self.words)
        self.meter = Meter(self.tr("Passages that are done"), parent=self)
        column.addWidget(self.meter)
        self.progress.hide()
        return self.progress

    def _build_buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        self.stop = button(self.tr("Stop"), self._stop, icon_name="stop", parent=self)
        self.cancel = button(self.tr("Cancel"), self.reject, parent=self)
        self.see = button(self.tr("Review what is there"), self._see, parent=self)
        self.start = button(self._begin_word(), self._start, kind="primary", parent=self)
        self.start.setDefault(True)
        for each in (self.stop, self.cancel, self.see, self.start):
            row.addWidget(each)
        self.stop.hide()
        return row

    def _show_target(self) -> None:
        self.target.setText(fill(self.tr("Will be saved as %1"), self._target))
        is_begun = note_path(self._target).exists()
        words = self.tr("Continue") if is_begun and not self._replaces else self._begin_word()
        self.start.setText(words)
        self.start.setEnabled(bool(self.model.path))
        so_far = None if self._replaces else begun(self._target)
        self.so_far.setVisible(so_far is not None)
        if so_far is not None:
            self.so_far.setText(self._so_far_words(so_far))
        self.see.setVisible(is_begun and self._target.exists() and self._target.stat().st_size > 0)

    def _ask_where(self) -> None:
        path = ask_for_copy(self, self.tr("Save the rows as"), Path(self._source.path), self.addition)
        if path is not None:
            # One that is there and whole was asked about; one that was stopped is continued.
            self._target, self._replaces = path, path.exists() and not note_path(path).exists()
            self._show_target()

    # Writing

    def _start(self) -> None:
        self._put_error(None)
        run = RunSpec()
        run.model.path, run.data.sources = self.model.path, [self._source]
        self.task = self._make_task(run, AbsolutePath(str(self._target)))
        self.task.happened.connect(self._follow)
        self.task.succeeded.connect(self._succeed)
        self.task.failed.connect(self._fail)
        self.task.ended.connect(lambda _outcome: self._end())
        self._say(self.tr("Reading the data…"))
        so_far = None if self._replaces else begun(self._target)
        self.meter.set_share(so_far.passages / max(so_far.total, 1) if so_far else 0.0)
        self._show_working(True)
        self.task.start()

    def _show_working(self, works: bool) -> None:
        self.choices.setVisible(not works)
        self.progress.setVisible(works)
        self.stop.setVisible(works)
        self.stop.setEnabled(works)
        self.cancel.setVisible(not works)
        self.start.setVisible(not works)
        self.see.setVisible(False)
        if not works:
            self._replaces = False  # what was written since is continued
            self._show_target()
        # Once the layout knows what is shown now.
        QTimer.singleShot(0, self, self._fit)

    def _fit(self) -> None:
        layout = self.layout()
        if layout is not None:
            self.resize(self.width(), layout.totalHeightForWidth(self.width()))

    def _say(self, words: str) -> None:
        """Says how far it is; the dialog grows where that takes more lines."""
        self.words.setText(words)
        QTimer.singleShot(0, self, self._grow)

    def _grow(self) -> None:
        layout = self.layout()
        if layout is not None and self.height() < layout.totalHeightForWidth(self.width()):
            self._fit()

    def _follow(self, event: Event) -> None:
        data = event.data
        if event.type == "phase" and data.get("name") == "model":
            self._say(self.tr("Loading the model…"))
        if event.type != "progress":
            return
        self.meter.set_share(data["done_bytes"] / data["total_bytes"])
        left = fill(self.tr("about %1 left"), duration(data["remaining_s"])) if data["remaining_s"] else ""
        self._say("  ·  ".join(filter(None, (*self._progress_words(data), left))))

    def _stop(self) -> None:
        if self.task is not None:
            self.stop.setEnabled(False)
            self._say(self.tr("Stopping…"))
            self.task.cancel()

    def _end(self) -> None:
        """Offers what can be done next; only now nobody writes the file any more."""
        self.task = None
        self._show_working(False)

    def _succeed(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self.told.emit(self._end_words(answer))
        self.written.emit(Path(answer["path"]))
        self.accept()

    def _fail(self, error: TunesmithError) -> None:
        self._put_error(error_banner(error, dismissable=False, parent=self))

    def _put_error(self, banner: QWidget | None) -> None:
        if self._error is not None:
            self._error.hide()
            self._error.deleteLater()
        self._error = banner
        if banner is not None:
            self._column.insertWidget(2, banner)

    def _see(self) -> None:
        self.written.emit(self._target)
        self.accept()

    def done(self, result: int) -> None:
        """Stops the model; what it wrote can be continued."""
        if self.task is not None:
            self.task.cancel()
        super().done(result)
