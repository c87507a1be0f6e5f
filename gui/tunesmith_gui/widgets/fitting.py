"""The size of a dialog: what its words ask for at the present text size, within the window it belongs to."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QWidget

from tunesmith_gui.tokens import SPACE

_MARGIN_PX = SPACE * 6


def fitting_size(dialog: QWidget, letters: int, lines: int) -> QSize:
    """Room for lines of so many letters, but no more than the dialog's window has."""
    metrics = dialog.fontMetrics()
    wanted = QSize(metrics.averageCharWidth() * letters, metrics.lineSpacing() * lines)
    parent = dialog.parentWidget()
    if parent is None:
        return wanted
    room = parent.window().size()
    return wanted.boundedTo(QSize(room.width() - _MARGIN_PX, room.height() - _MARGIN_PX))
