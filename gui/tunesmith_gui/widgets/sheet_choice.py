"""The choice of a sheet of a workbook that has several."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QWidget

from tunesmith_gui.plain_text import add_choice, line
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.tr import fill, listed
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import SafeLabel

_COMBO_LETTERS = 12
_MOST_LETTERS = 60
"""Of the name of a sheet."""


class SheetChoice(QWidget):
    """Hidden while there is nothing to choose.

    Signals:
        chosen: (str) the name of a sheet.

    Attributes:
        combo: the list.
        others: which sheets are not read.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.combo = QComboBox(self)
        self.combo.setMinimumContentsLength(_COMBO_LETTERS)
        self.combo.activated.connect(lambda _index: self.chosen.emit(self.combo.currentData()))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(Field(self.tr("Sheet"), self.combo, inline=True, parent=self))
        self.others = SafeLabel(tone="muted", wrap=True, parent=self)
        row.addWidget(self.others, 1)
        self.hide()

    def show_data(self, data: DataFacts | None) -> None:
        """Lists the sheets of a file, with the one that is read chosen."""
        sheets = data.sheets if data else ()
        # A hidden sheet is read only by its name, and stays in the list while it is.
        names = list(dict.fromkeys([*sheets, *([data.sheet] if data and data.sheet else [])]))
        if [self.combo.itemData(place) for place in range(self.combo.count())] != names:
            self.combo.clear()
            for name in names:
                add_choice(self.combo, name, name)
        if data is not None and names:
            self.combo.setCurrentIndex(names.index(data.sheet) if data.sheet else 0)
        unread = [name for place, name in enumerate(names) if place != self.combo.currentIndex()]
        self.others.setText(fill(self.tr("Not read: %1"), listed(line(name, _MOST_LETTERS) for name in unread)))
        self.setVisible(len(names) > 1)
