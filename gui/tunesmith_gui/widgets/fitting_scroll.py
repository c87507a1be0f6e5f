"""A scroll area that is no higher than what it holds."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE


class FittingScroll(QScrollArea):
    """As high as what it holds where there is room."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        holder = QWidget()
        self._column = QVBoxLayout(holder)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)
        self._column.addStretch(1)
        self.setWidget(holder)

    def hold(self, card: QWidget) -> None:
        """Takes a widget in, above the others."""
        self._column.insertWidget(0, card)

    def sizeHint(self) -> QSize:
        """What is held needs at this width."""
        return QSize(self._column.sizeHint().width(), self._column.totalHeightForWidth(self.width()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follows the height of what is held."""
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may need another height."""
        super().resizeEvent(event)
        self.updateGeometry()
