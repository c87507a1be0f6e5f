"""The Samples tab: ask the model in training something, and read what it wrote along the way."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel, Sample, SampleRequest
from tunesmith_gui.dashboard.samples_list import SamplesList
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

MAX_SHOWN = 40


class SamplesPane(QWidget):
    """A field for a prompt while the run is live, what became of it, and all samples, newest first.

    Signals:
        asked: (prompt) the person wants an answer to it.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 3 // 2)
        self._asking = QWidget(self)
        row = QHBoxLayout(self._asking)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        self.prompt = QLineEdit(self._asking)
        self.prompt.setAccessibleName(self.tr("Prompt"))
        self.prompt.setPlaceholderText(self.tr("Ask the model being trained"))
        self.prompt.textChanged.connect(lambda _text: self._enable())
        self.prompt.returnPressed.connect(self._ask)
        self.send = button(self.tr("Ask"), self._ask, icon_name="sample", parent=self._asking)
        row.addWidget(self.prompt, 1)
        row.addWidget(self.send)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        self.steps = QComboBox(self)
        self.steps.setAccessibleName(self.tr("Samples of which step"))
        self.steps.view().setAccessibleName(self.tr("Samples of which step"))
        self.steps.currentIndexChanged.connect(lambda _place: self._show_samples())
        self._samples: list[Sample] = []
        self._live = False
        self.rhythm = SafeLabel(
            self.tr("Held-out rows are asked before and after training, and in between while there is time for it."),
            role="caption",
            tone="muted",
            wrap=True,
            parent=self,
        )
        self.list = SamplesList(max_shown=MAX_SHOWN, parent=self)
        for widget in (self._asking, self.words):
            column.addWidget(widget)
        column.addWidget(self.rhythm)
        column.addWidget(self.steps, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.list)
        self._waiting = False
        self._enable()

    def show_model(self, model: DashboardModel) -> None:
        """Bring field, words and samples up to date."""
        request, state = model.sample_request, model.status.state
        self._asking.setVisible(state.live)
        self._waiting = state.live and request is not None and request.outcome == "waiting"
        self._enable()
        text, tone = ("", "muted") if request is None else _words(request, state)
        self.words.setText(text)
        self.words.set_tone(tone)
        self.words.setVisible(bool(text))
        self._samples, self._live = model.written(), state.live
        self.rhythm.setVisible(bool(self._samples) and not model.samples)
        self._offer_steps()
        self._show_samples()

    def _offer_steps(self) -> None:
        """Offers all steps and each one, the newest first; the chosen one stays."""
        steps = [None, *sorted({sample.step for sample in self._samples}, reverse=True)]
        if [self.steps.itemData(place) for place in range(self.steps.count())] == steps:
            return
        chosen = self.steps.currentData()
        with QSignalBlocker(self.steps):
            self.steps.clear()
            for step in steps:
                add_choice(self.steps, self.tr("All steps") if step is None else _step_words(step), step)
            self.steps.setCurrentIndex(steps.index(chosen) if chosen in steps else 0)
        self.steps.setVisible(len(steps) > 2)  # all, and more than one

    def _show_samples(self) -> None:
        chosen = self.steps.currentData()
        samples = [sample for sample in self._samples if chosen in (None, sample.step)]
        self.list.set_samples(samples, live=self._live)

    def begin(self) -> None:
        """Put the cursor into the field."""
        self.prompt.setFocus(Qt.FocusReason.OtherFocusReason)
        self.prompt.selectAll()

    def _enable(self) -> None:
        self.send.setEnabled(bool(self.prompt.text().strip()) and not self._waiting)

    def _ask(self) -> None:
        if self.send.isEnabled():
            self.asked.emit(self.prompt.text().strip())


def _step_words(step: int) -> str:
    if not step:
        return tr.translate("SamplesPane", "Before training")
    return tr.fill(tr.translate("SamplesPane", "Step %1"), tr.number(step))


def _words(request: SampleRequest, state: RunState) -> tuple[str, str]:
    if request.outcome == "answered":
        return tr.fill(tr.translate("SamplesPane", "Answered at step %1."), tr.number(request.step)), "ok"
    if request.outcome == "failed":
        return tr.fill(tr.translate("SamplesPane", "There is no answer. %1"), tr.core_text(request.reason)), "error"
    if not state.live:
        return tr.translate("SamplesPane", "The run ended before the model answered."), "error"
    if state is RunState.RUNNING:
        return tr.translate("SamplesPane", "The model answers after the current step…"), "muted"
    return tr.translate("SamplesPane", "The model answers once training has started…"), "muted"
