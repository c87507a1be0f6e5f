"""Labelled facts below each other: the label muted at the left, the value beside it, remarks in their tone."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from tunesmith_gui.environment.setup_flow import Fact
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import SafeLabel


class FactList(QWidget):
    """Shows facts; labels in one column, values in the other."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: tuple[Fact, ...] = ()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(SPACE * 2)
        self._grid.setVerticalSpacing(SPACE // 2)
        self._grid.setColumnStretch(1, 1)

    def show_facts(self, facts: Sequence[Fact]) -> None:
        """Shows these facts."""
        if tuple(facts) == self._facts:
            return
        self._facts = tuple(facts)
        while (item := self._grid.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for row, fact in enumerate(self._facts):
            if fact.label:
                label = SafeLabel(fact.label, tone="muted", parent=self)
                self._grid.addWidget(label, row, 0, Qt.AlignmentFlag.AlignTop)
            tone = "text" if fact.tone == "neutral" else fact.tone
            value = SafeLabel(fact.value, tone=tone, wrap=True, selectable=True, parent=self)
            self._grid.addWidget(value, row, 1)
