"""A model on this computer: what it is, whether it fits, who uses it, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QVBoxLayout, QWidget

from tunesmith_gui.library.shelf import Placed, facts_words, notes_words, problem_words
from tunesmith_gui.models.model_words import method_verdict
from tunesmith_gui.plain_text import set_entry_tip, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.status_chip import StatusChip

_WORDS_LETTERS = 40


class ModelRow(Card):
    """One row.

    Attributes:
        main: the button of what one mostly wants.
        menu: everything else.
        entries: its entries by what they ask for.

    Signals:
        asked: (Placed, str) train, import, verify, reveal or delete.
    """

    asked = Signal(object, str)

    def __init__(self, placed: Placed, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.placed = placed
        self.setAccessibleName(placed.model.name)
        words = QWidget(self)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(ElidedLabel(placed.model.name, role="strong", parent=words))
        column.addWidget(SafeLabel(facts_words(placed), tone="muted", wrap=True, parent=words))
        # What other programs keep may be of any kind, so that it can't be trained is no fault.
        self.problem = self._caption(problem_words(placed), "error" if placed.is_ours else "muted", words)
        self.note = self._caption(notes_words(placed), "muted", words)
        column.addWidget(self.problem)
        column.addWidget(self.note)
        self.chips = [self._chip(method, verdict) for method, verdict in placed.fits.items()]
        if self.chips:
            column.addWidget(FlowRow(self.chips, words))
        self.body.addWidget(SideBySide(words, self._build_buttons(), first_letters=_WORDS_LETTERS, parent=self))

    def _chip(self, method: str, verdict: str) -> StatusChip:
        words, tone = method_verdict(method, verdict)
        return StatusChip(words, tone, parent=self)

    @staticmethod
    def _caption(words: str, tone: str, parent: QWidget) -> SafeLabel:
        result = SafeLabel(words, role="caption", tone=tone, wrap=True, parent=parent)
        result.setVisible(bool(words))
        return result

    def _build_buttons(self) -> QWidget:
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        name = self.placed.model.name
        if self.placed.is_gguf:
            self.main = button(self.tr("Import…"), lambda: self._ask("import"), parent=holder)
            self.main.setAccessibleName(fill(self.tr("Import %1"), name))
        else:
            self.main = button(self.tr("Train with it"), lambda: self._ask("train"), icon_name="train", parent=holder)
            self.main.setAccessibleName(fill(self.tr("Train with %1"), name))
            self.main.setEnabled(self.placed.model.problem is None)
        more = button(self.tr("More"), kind="quiet", icon_name="more", parent=holder)
        more.setAccessibleName(fill(self.tr("More for %1"), name))
        self.menu = self._build_menu(more)
        more.setMenu(self.menu)
        row.addWidget(self.main)
        row.addWidget(more)
        row.addStretch(1)
        return holder

    def _build_menu(self, parent: QWidget) -> QMenu:
        menu = QMenu(parent)
        entries = [("reveal", self.tr("Show in the file manager"))]
        if self.placed.is_ours:
            entries = [("verify", self.tr("Verify the files")), *entries, ("delete", self.tr("Delete…"))]
        self.entries = {action: menu.addAction(without_shortcut(words)) for action, words in entries}
        for action, entry in self.entries.items():
            entry.triggered.connect(lambda _on=False, each=action: self._ask(each))
        if self.placed.is_ours and self.placed.model.download is None:
            self.entries["verify"].setEnabled(False)
            reason = self.tr("It was not downloaded from a model hub, so there are no hashes to compare it with.")
            set_entry_tip(menu, self.entries["verify"], reason)
        return menu

    def _ask(self, action: str) -> None:
        self.asked.emit(self.placed, action)
