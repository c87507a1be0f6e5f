"""The Samples tab: ask the model in training something, and read what it wrote along the way."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel, SampleRequest
from tunesmith_gui.dashboard.samples_list import SamplesList
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
        self.list = SamplesList(max_shown=MAX_SHOWN, parent=self)
        for widget in (self._asking, self.words, self.list):
            column.addWidget(widget)
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
        self.list.set_samples(model.written(), live=state.live)

    def begin(self) -> None:
        """Put the cursor into the field."""
        self.prompt.setFocus(Qt.FocusReason.OtherFocusReason)
        self.prompt.selectAll()

    def _enable(self) -> None:
        self.send.setEnabled(bool(self.prompt.text().strip()) and not self._waiting)

    def _ask(self) -> None:
        if self.send.isEnabled():
            self.asked.emit(self.prompt.text().strip())


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
