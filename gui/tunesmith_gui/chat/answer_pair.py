"""Two answers without names, beside each other where they have room."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QSizePolicy, QWidget

from tunesmith_core.votes import Given
from tunesmith_gui import tr
from tunesmith_gui.chat.spoken_label import BESIDE_LETTERS, SpokenLabel
from tunesmith_gui.models.answer_words import answer_words
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.card import Card

LETTERS = ("A", "B")


class AnswerPair(QWidget):
    """Shows nothing that depends on who answered until `reveal`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._row = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(SPACE * 2)
        self.cards, self.texts = [], []
        for _letter in LETTERS:
            card = Card(" ", parent=self)
            # No word of one answer takes room from the other.
            card.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            text = SpokenLabel(parent=card)
            card.body.addWidget(text)
            card.body.addStretch(1)
            self._row.addWidget(card, 1)
            self.cards.append(card)
            self.texts.append(text)
        self.hide()

    def show_answers(self, shown: tuple[Given, Given]) -> None:
        """Show two answers as A and B."""
        for card, label, given, letter in zip(self.cards, self.texts, shown, LETTERS, strict=True):
            self._call(card, tr.fill(self.tr("Answer %1"), letter))
            words, tone = answer_words(given.text)
            label.setText(words)
            label.set_tone(tone)
        self.show()

    def reveal(self, shown: tuple[Given, Given]) -> None:
        """Tell who answered."""
        for card, given, letter in zip(self.cards, shown, LETTERS, strict=True):
            self._call(card, tr.fill(self.tr("%1: %2"), letter, core_text(given.name)))

    def _call(self, card: Card, name: str) -> None:
        card.heading.setText(name)
        card.setAccessibleName(name)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Puts the answers beside each other where they have room."""
        super().resizeEvent(event)
        beside = self.width() >= BESIDE_LETTERS * self.fontMetrics().averageCharWidth()
        self._row.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
