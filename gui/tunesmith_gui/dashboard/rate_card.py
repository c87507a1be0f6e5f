"""A text of one's own, rated by a model that scores answers, sorts texts or checks steps."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.objectives import FROM_LABELS, FROM_STEPS, HEADS
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import AnsweringDevice
from tunesmith_core.operations.kinds.rate import RATE, RateSpec
from tunesmith_core.rated import words
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import error_words
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel

QUESTION_LINES, TEXT_LINES = 2, 4


class _Box(QPlainTextEdit):
    """A text of some lines, as high as these in any size of letters."""

    def __init__(self, lines: int, parent: QWidget) -> None:
        super().__init__(parent)
        self._lines = lines
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Room for the lines."""
        return QSize(super().sizeHint().width(), self.fontMetrics().lineSpacing() * self._lines + SPACE * 5 // 2)

    def minimumSizeHint(self) -> QSize:
        """As much: Qt's own is more than two lines."""
        return QSize(super().minimumSizeHint().width(), self.sizeHint().height())


class RateCard(Card):
    """Loads the model for each text and lets it go again: nothing stays in memory that nobody asks."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("Try it on a text of your own"), parent=parent)
        self.run: Run | None = None
        self._spec = RunSpec()
        self._task: OperationTask | None = None
        self._labels = [SafeLabel(role="caption", tone="muted", wrap=True, parent=self) for _ in range(2)]
        self.question, self.text = _Box(QUESTION_LINES, self), _Box(TEXT_LINES, self)
        for label, box in zip(self._labels, (self.question, self.text), strict=True):
            label.setBuddy(box)
            box.textChanged.connect(self._show_state)
            self.body.addWidget(label)
            self.body.addWidget(box)
        self.go = button("", self._begin, kind="primary", parent=self)
        self.cancel = button(self.tr("Cancel"), self._cancel, parent=self)
        self.body.addWidget(FlowRow((self.go, self.cancel), self))
        self.result = SafeLabel(wrap=True, selectable=True, parent=self)
        self.body.addWidget(self.result)
        self._name_parts()

    @property
    def rates(self) -> bool:
        """Whether the model of the run rates texts."""
        return self.run is not None and self._spec.objective.kind in HEADS

    def show_run(self, run: Run, spec: RunSpec) -> None:
        """Take the run whose model rates; what was written for another one goes."""
        if self.run != run:
            self._cancel()
            self.question.clear()
            self.text.clear()
            self._say("")
        self.run, self._spec = run, spec
        self._name_parts()

    def _name_parts(self) -> None:
        kind = self._spec.objective.kind
        if kind in FROM_STEPS:
            go = self.tr("Check the steps")
            names = (self.tr("Problem"), self.tr("Solution, a step on each line"))
        elif kind in FROM_LABELS:
            go = self.tr("Predict the number") if self._spec.objective.regression else self.tr("Sort the text")
            names = (self.tr("Question, if your data has one"), self.tr("Text"))
        else:
            go = self.tr("Score the answer")
            names = (self.tr("Question"), self.tr("Answer"))
        self.go.setText(go)
        self.go.setAccessibleName(go)
        for label, box, name in zip(self._labels, (self.question, self.text), names, strict=True):
            label.setText(name)
            box.setAccessibleName(name)
        self._show_state()

    def _begin(self) -> None:
        self._rate("auto")

    def _rate(self, device: AnsweringDevice) -> None:
        assert self.run is not None
        asked = RateSpec(
            RunFolder(str(self.run.path)), self.text.toPlainText(), self.question.toPlainText().strip(), device=device
        )
        task = self._task = OperationTask(RATE, asked, self)
        task.succeeded.connect(self._take)
        task.failed.connect(lambda error: self._fail(error, device))
        task.start()
        self._say(self.tr("Loading the model and reading the text…"), "muted")
        self._show_state()
        self.cancel.setFocus(Qt.FocusReason.OtherFocusReason)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._say("")
            self._end()

    def _take(self, answer: object) -> None:
        assert isinstance(answer, dict)
        self._say("\n".join(map(core_text, words(answer))))
        self._end()

    def _fail(self, error: TunesmithError, device: AnsweringDevice) -> None:
        if error.code == "gpu-busy" and device == "auto":
            # A text takes the processor some seconds only.
            self._rate("cpu")
            return
        self._say(error_words(error), "error")
        self._end()

    def _end(self) -> None:
        had_focus = self.cancel.hasFocus()
        self._task = None
        self._show_state()
        if had_focus:
            self.text.setFocus(Qt.FocusReason.OtherFocusReason)

    def _say(self, text: str, tone: str = "text") -> None:
        self.result.setText(text)
        self.result.set_tone(tone)
        self.result.setVisible(bool(text))

    def _show_state(self) -> None:
        is_busy = self._task is not None
        needs_question = self._spec.objective.kind not in FROM_LABELS
        is_asked = bool(self.question.toPlainText().strip()) or not needs_question
        self.go.setEnabled(bool(self.text.toPlainText().strip()) and is_asked)
        self.go.setVisible(not is_busy)
        self.cancel.setVisible(is_busy)
        for box in (self.question, self.text):
            box.setReadOnly(is_busy)
