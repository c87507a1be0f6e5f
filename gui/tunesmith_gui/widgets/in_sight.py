"""Bringing a control of a long page into sight."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QScrollArea, QWidget

_STAY_MS = 1500
"""In which what a page learns, of a model or data, still moves the control."""


class InSight(QObject):
    """Scrolls to a control, and again while the page round it grows; a person who reads on isn't pulled back."""

    def __init__(self, area: QScrollArea, wanted: QWidget) -> None:
        super().__init__(wanted)
        self._area, self._wanted = area, wanted
        # The control has its place once the page is laid out.
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._show)
        self._soon.start(0)
        area.verticalScrollBar().rangeChanged.connect(self._follow)
        QTimer.singleShot(_STAY_MS, self, self.deleteLater)

    def _follow(self, _low: int, _high: int) -> None:
        self._soon.start(0)

    def _show(self) -> None:
        self._area.ensureWidgetVisible(self._wanted, 0, self._wanted.height())
