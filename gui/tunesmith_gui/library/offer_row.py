"""A model that can be had: what it is, whether it would fit, and the way to it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_gui.library.offers import Offer, offer_words
from tunesmith_gui.models.model_words import method_verdict
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.status_chip import StatusChip

_WORDS_LETTERS = 40


class OfferRow(Card):
    """One row.

    Signals:
        asked: (str hub id) the person wants to see it or have it.
        train_asked: (Path folder) the person wants to train it.
    """

    asked = Signal(str)
    train_asked = Signal(object)

    def __init__(self, offer: Offer, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.offer = offer
        self.setAccessibleName(offer.id)
        words = QWidget(self)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(ElidedLabel(offer.id, role="strong", parent=words))
        self.facts = SafeLabel(offer_words(offer), tone="muted", wrap=True, parent=words)
        column.addWidget(self.facts)
        self.chips = self._chips()
        if self.chips:
            column.addWidget(FlowRow(self.chips, words))
        self.get = button(
            self.tr("Train with it") if offer.folder else self.tr("Download…"),
            lambda: self.train_asked.emit(offer.folder) if offer.folder else self.asked.emit(offer.id),
            icon_name="train" if offer.folder else "download",
            parent=self,
        )
        named = self.tr("Train with %1") if offer.folder else self.tr("Download %1")
        self.get.setAccessibleName(fill(named, offer.id))
        self.body.addWidget(SideBySide(words, self.get, first_letters=_WORDS_LETTERS, parent=self))

    def set_offline(self, offline: bool) -> None:
        """Offers no download while the person works offline; what is here can be trained all the same."""
        reason = self.tr("You are working offline") if offline and not self.offer.folder else ""
        self.get.setEnabled(not reason)
        self.get.setAccessibleDescription(reason)
        set_tip(self.get, reason)

    def _chips(self) -> list[StatusChip]:
        offer = self.offer
        chips = [StatusChip(*method_verdict(*each), parent=self) for each in offer.fits.items()]
        if offer.gated:
            chips.append(StatusChip(self.tr("Access on request"), "neutral", parent=self))
        if offer.folder:
            chips.append(StatusChip(self.tr("On this computer"), "ok", parent=self))
        return chips
