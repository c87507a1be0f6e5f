"""Widgets in a row that goes on in the next line where the width ends."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize
from PySide6.QtWidgets import QWidget
from superqt import QFlowLayout

from tunesmith_gui.tokens import SPACE


class FlowRow(QWidget):
    """Wants to be one line and can be narrower."""

    def __init__(self, widgets: Sequence[QWidget], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._widgets = self._shown = tuple(widgets)
        flow = self._flow = QFlowLayout(self)
        flow.setContentsMargins(0, 0, 0, 0)
        flow.setHorizontalSpacing(SPACE)
        flow.setVerticalSpacing(SPACE)
        for each in self._widgets:
            flow.addWidget(each)

    def show_only(self, shown: Sequence[QWidget]) -> None:
        """Shows these of its widgets; the others take no room."""
        wanted = tuple(each for each in self._widgets if each in shown)
        if wanted == self._shown:
            return
        self._shown = wanted
        for each in self._widgets:
            self._flow.removeWidget(each)
            each.setVisible(each in wanted)
        for each in wanted:
            self._flow.addWidget(each)
        self.updateGeometry()

    def event(self, event: QEvent) -> bool:
        """Gives all the height of the highest, so that words without a frame stand in the middle."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            for each in self._shown:
                each.setMinimumHeight(self.sizeHint().height())
        return super().event(event)

    def sizeHint(self) -> QSize:
        """One line."""
        hints = [each.sizeHint() for each in self._shown]
        width = sum(hint.width() + SPACE for hint in hints) - SPACE
        # The layout breaks a line that ends at its very last pixel.
        return QSize(max(width, 0) + 1, max((hint.height() for hint in hints), default=0))
