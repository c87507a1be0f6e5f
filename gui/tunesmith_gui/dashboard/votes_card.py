"""How the blind votes on a run stand, and the button that takes more of them."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from tunesmith_core.votes import Kept, pairs
from tunesmith_gui.tr import core_text, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel


class VotesCard(Card):
    """Tells what a person found better without knowing whose answers they were.

    Signals:
        wanted: more votes.
        train_asked: a run that learns from these.
    """

    wanted = Signal()
    train_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("Blind votes"), parent=parent)
        self.train = button(
            translate("VotePage", "Train on these votes"), self.train_asked.emit, icon_name="train", parent=self
        )
        self.add_action(self.train)
        self.add_action(button(self.tr("Vote"), self.wanted.emit, parent=self))
        self.words = SafeLabel(tone="muted", wrap=True, selectable=True, parent=self)
        self.body.addWidget(self.words)
        self.show_votes(Kept())

    def show_votes(self, kept: Kept) -> None:
        """Show how the votes stand."""
        counts = kept.counts()
        self.train.setVisible(bool(pairs(kept.counted())))
        if len(counts) == 1:
            texts = [" ".join(map(core_text, counts[0].words))]
        else:
            texts = [" ".join(map(core_text, (f"{core_text(each.title)}:", *each.words))) for each in counts]
        texts = texts or [self.tr("Read two answers without knowing whose they are, and say which one is better.")]
        if kept.warning:
            texts.append(core_text(kept.warning))
        self.words.setText("\n".join(texts))
        self.words.set_tone("text" if counts else "muted")
