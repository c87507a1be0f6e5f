"""What small dialogs have in common: a title that is also their heading, their width and their margins."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QVBoxLayout

from tunesmith_gui.plain_text import window_title
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.safe_label import SafeLabel

_WIDTH_LETTERS = 68


def framed(dialog: QDialog, title: str) -> QVBoxLayout:
    """Give a dialog its title, width and heading; return the column below the heading."""
    dialog.setWindowTitle(window_title(title))
    dialog.setMinimumWidth(fitting_size(dialog, _WIDTH_LETTERS, 0).width())
    column = QVBoxLayout(dialog)
    column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
    column.setSpacing(SPACE * 2)
    column.addWidget(SafeLabel(title, role="heading", wrap=True, parent=dialog))
    return column
