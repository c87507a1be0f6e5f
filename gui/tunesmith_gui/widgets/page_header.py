"""The top of a page: title, one muted line below it, actions at the right."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel


class PageHeader(QWidget):
    """Title and subtitle; `add_action` puts widgets at the right, in reading order."""

    def __init__(self, title: str, subtitle: str = "", *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        words = QVBoxLayout()
        words.setSpacing(2)
        self.title = ElidedLabel(title, role="title", parent=self)
        self.subtitle = SafeLabel(subtitle, tone="muted", wrap=True, parent=self)
        self.subtitle.setVisible(bool(subtitle))
        words.addWidget(self.title)
        words.addWidget(self.subtitle)
        row.addLayout(words, 1)
        self._actions = QHBoxLayout()
        self._actions.setSpacing(SPACE)
        row.addLayout(self._actions)
        row.setAlignment(self._actions, Qt.AlignmentFlag.AlignTop)

    def add_action(self, widget: QWidget) -> None:
        """Adds a widget at the right end."""
        self._actions.addWidget(widget)

    def set_subtitle(self, text: str) -> None:
        """Changes the muted line; an empty text hides it."""
        self.subtitle.setText(text)
        self.subtitle.setVisible(bool(text))
