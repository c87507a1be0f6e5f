"""The Answers tab of a run that learns from rewards: the newest group, so that a person sees what is rewarded."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.models.answer_words import answer_words
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, number
from tunesmith_gui.widgets.card import Card, line
from tunesmith_gui.widgets.safe_label import SafeLabel, WrittenLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_LETTERS = 2000
_MOST_SHOWN = 64


class RolloutsPane(QWidget):
    """Rebuilt only when there is a newer group."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE * 3 // 2)
        words = self.tr(
            "What the model wrote to the first prompt of the newest step, best first. Answers with more reward than "
            "the others become more likely. Check that what is rewarded is what you want."
        )
        self._column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self._shown: dict[str, Any] | None = None  # Any: JSON values
        self._content = QWidget(self)
        self._column.addWidget(self._content)
        self._column.addStretch(1)

    def show_model(self, model: DashboardModel) -> None:
        """Show the newest group."""
        if model.group == self._shown:
            return
        self._shown = model.group
        fresh = self._group_card(model.group) if model.group.get("group") else self._nothing()
        self._column.replaceWidget(self._content, fresh)
        self._content.setParent(None)
        self._content.deleteLater()
        self._content = fresh

    def _nothing(self) -> QWidget:
        return SafeLabel(self.tr("No answers yet."), tone="muted", wrap=True, parent=self)

    def _group_card(self, group: dict[str, Any]) -> Card:  # Any: JSON values
        card = Card(fill(self.tr("Step %1"), number(group.get("step") or 0)), parent=self)
        card.body.addWidget(
            WrittenLabel(str(group.get("prompt") or ""), role="strong", most=_LETTERS, parent=card)
        )
        if group.get("expected"):
            expected = fill(self.tr("Expected: %1"), str(group["expected"]))
            card.body.addWidget(WrittenLabel(expected, tone="muted", most=_LETTERS, parent=card))
        answers = sorted(group["group"], key=lambda each: -each["reward"])
        best, worst = answers[0]["reward"], answers[-1]["reward"]
        if best == worst:
            words = self.tr("All answers got the same reward, so this prompt teaches nothing.")
            card.body.addWidget(SafeLabel(words, tone="warn", wrap=True, parent=card))
        for each in answers[:_MOST_SHOWN]:
            card.body.addWidget(line(card))
            card.body.addWidget(self._answer(each, each["reward"] == best != worst, card))
        return card

    def _answer(self, answer: dict[str, Any], is_best: bool, card: Card) -> QWidget:  # Any: JSON values
        holder = QWidget(card)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        reward = fill(self.tr("reward %1"), number(answer["reward"], 2))
        row.addWidget(StatusChip(reward, "ok" if is_best else "neutral", parent=holder))
        if answer.get("is_cut"):
            row.addWidget(StatusChip(self.tr("cut"), "warn", parent=holder))
        row.addStretch(1)
        column.addLayout(row)
        text, tone = answer_words(str(answer.get("text") or ""))
        column.addWidget(WrittenLabel(text, tone=tone, most=_LETTERS, parent=holder))
        return holder
