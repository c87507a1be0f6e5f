"""The Evaluation tab: what came of the run in one sentence, what to do next, and answers before and after."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from tunesmith_core.answered import Answered
from tunesmith_core.outcome import Verdict
from tunesmith_core.runs import RunState
from tunesmith_gui.dashboard.banners import MOST_NEXT_STEPS, next_actions, tells_verdict
from tunesmith_gui.dashboard.evaluation_card import EvaluationCard
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.dashboard.rate_card import RateCard
from tunesmith_gui.dashboard.samples_list import marks
from tunesmith_gui.dashboard.votes_card import VotesCard
from tunesmith_gui.models.answer_words import answer_words
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel, WrittenLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_LETTERS = 2000
_ENDED = (RunState.FINISHED, RunState.STOPPED)


class EvaluationPane(QWidget):
    """Rebuilt only when there is something new.

    Signals:
        asked: (action) see `DashboardPage.ask`.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE * 3 // 2)
        self._shown: object = None
        self._verdict = QWidget(self)
        self._content = QWidget(self)
        self.measured = EvaluationCard(self)
        self.rate = RateCard(self)
        self.rate.hide()
        self.votes = VotesCard(self)
        self.votes.wanted.connect(lambda: self.asked.emit("vote"))
        self.votes.train_asked.connect(lambda: self.asked.emit("train_on_votes"))
        for widget in (self._verdict, self.rate, self.measured, self.votes, self._content):
            self._column.addWidget(widget)
        self._column.addStretch(1)

    def show_model(self, model: DashboardModel) -> None:
        """Bring sentence, buttons and answers up to date."""
        verdict = model.verdict() if model.status.state in _ENDED else None
        answers = [each.to_dict() for each in model.answers]
        is_told = tells_verdict(model)
        shown = (verdict, is_told, answers, model.status.state.live, model.writes, self.rate.rates)
        if shown == self._shown:
            return
        self._shown = shown
        # What only scores or sorts writes no answers that could be compared.
        self.measured.setVisible(verdict is not None and model.writes)
        self.votes.setVisible(verdict is not None and model.writes)
        self.rate.setVisible(verdict is not None and self.rate.rates)
        old = self._verdict
        self._verdict = QWidget(self) if verdict is None else self._verdict_card(verdict, is_told, self)
        self._replace(old, self._verdict)
        self._verdict.setVisible(verdict is not None)
        fresh = QWidget(self)
        column = QVBoxLayout(fresh)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 3 // 2)
        for asked in model.answers:
            column.addWidget(self._answers_card(asked, fresh))
        if not model.answers:
            column.addWidget(SafeLabel(self._words_without(model), tone="muted", wrap=True, parent=fresh))
        old, self._content = self._content, fresh
        self._replace(old, fresh)

    def _replace(self, old: QWidget, fresh: QWidget) -> None:
        self._column.replaceWidget(old, fresh)
        old.setParent(None)
        old.deleteLater()

    def _words_without(self, model: DashboardModel) -> str:
        if not model.writes:
            return self.tr("This model writes no answers, so there are none to compare.")
        if model.setup.get("num_eval_rows") == 0:
            return self.tr(
                "This run holds out no rows, so there are no answers to compare. Hold out a share to see answers "
                "before and after training."
            )
        if model.status.state.live:
            return self.tr("Answers to held-out rows appear here, before and after training, side by side.")
        return self.tr("This run has no answers to compare.")

    def _verdict_card(self, verdict: Verdict, is_told: bool, parent: QWidget) -> Card:
        """The verdict; where the banner over the tabs tells it, only what that leaves out."""
        title = core_text(verdict.sentence)
        if is_told:
            title = self.tr("Evidence") if verdict.evidence else self.tr("Report")
        card = Card(title, parent=parent)
        for text in filter(None, (verdict.evidence, "" if is_told else verdict.advice)):
            card.body.addWidget(SafeLabel(core_text(text), wrap=True, selectable=True, parent=card))
        actions = next_actions(verdict, self.asked.emit)[MOST_NEXT_STEPS if is_told else 0 :]
        if not is_told:
            actions.append((self.tr("Report"), lambda: self.asked.emit("report")))
        actions.append((self.tr("Save as HTML…"), lambda: self.asked.emit("report_html")))
        actions.append((self.tr("Save as PDF…"), lambda: self.asked.emit("report_pdf")))
        card.body.addWidget(FlowRow([button(words, act, parent=card) for words, act in actions], card))
        return card

    def _answers_card(self, asked: Answered, parent: QWidget) -> Card:
        card = Card(parent=parent)
        card.setAccessibleName(asked.prompt[:_LETTERS])
        question = WrittenLabel(asked.prompt, role="strong", most=_LETTERS, parent=card)
        card.body.addWidget(question)
        grid = QGridLayout()
        grid.setHorizontalSpacing(SPACE * 2)
        grid.setVerticalSpacing(SPACE // 2)
        now = fill(self.tr("After step %1"), number(asked.last_step)) if asked.last_step else self.tr("After training")
        last = asked.last_step or None
        texts: tuple[tuple[str, str | None, list[StatusChip]], ...] = (
            (self.tr("Before"), asked.before, marks(asked.right.get(0), asked.cuts.get(0, 0), card)),
            (now, asked.now, marks(asked.right.get(last), asked.cuts.get(last, 0), card) if last else []),
            (self.tr("Expected"), asked.expected, []),
        )
        for place, (title, text, chips) in enumerate(texts):
            grid.setColumnStretch(place, 1)
            head = SafeLabel(title, tone="muted", parent=card)
            # Marks that have no room beside the title stand below it.
            grid.addWidget(FlowRow((head, *chips), card) if chips else head, 0, place)
            shown, tone = (self.tr("Not asked yet"), "muted") if text is None else answer_words(text)
            label = WrittenLabel(shown, tone=tone, most=_LETTERS, parent=card)
            grid.addWidget(label, 1, place, Qt.AlignmentFlag.AlignTop)
        card.body.addLayout(grid)
        return card
