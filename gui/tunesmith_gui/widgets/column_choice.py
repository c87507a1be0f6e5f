"""The choice of a column for one role, with what the chosen one holds."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QComboBox, QVBoxLayout, QWidget

from tunesmith_core.datafmt.guessing import examples_of
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import ElidedLabel

_COMBO_LETTERS = 8


class ColumnChoice(QWidget):
    """One role: its name, the list of columns, and below it what the chosen column holds.

    Attributes:
        combo: the list.
    """

    def __init__(
        self, words: str, nothing: str, head: Sequence[Row], parent: QWidget, *, num_examples: int = 1
    ) -> None:
        super().__init__(parent)
        self._head = head
        self.combo = QComboBox(self)
        self.combo.setMinimumContentsLength(_COMBO_LETTERS)
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        add_choice(self.combo, nothing, "")
        for name in dict.fromkeys(name for row in head for name in row):
            add_choice(self.combo, name, name)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(Field(words, self.combo, parent=self))
        self._examples = [ElidedLabel(role="caption", tone="muted", parent=self) for _ in range(num_examples)]
        for label in self._examples:
            column.addWidget(label)

    def choose(self, column: str) -> None:
        """Chooses a column, or none."""
        self.combo.setCurrentIndex(max(0, self.combo.findData(column)))
        self.show_examples()

    def show_examples(self) -> None:
        """Shows the first values of the chosen column."""
        found = examples_of(str(self.combo.currentData()), self._head)
        for place, label in enumerate(self._examples):
            label.setText(found[place] if place < len(found) else "")
            label.setVisible(place < len(found))
        words = fill(self.tr("For example: %1"), "; ".join(found)) if found else ""
        self.combo.setAccessibleDescription(words)
