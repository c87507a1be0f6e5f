"""A raised area with an optional heading and actions; pages are columns of cards on the page surface."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import SafeLabel


class Card(QFrame):
    """A card. Add content to `body`; put small buttons at the right of the heading with `add_action`.

    Attributes:
        body: the vertical layout below the heading.
        heading: the heading label, empty and hidden without a title.
    """

    def __init__(self, title: str = "", *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", True)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(SPACE * 2, SPACE * 2, SPACE * 2, SPACE * 2)
        outer.setSpacing(SPACE + SPACE // 2)
        self._header = QWidget(self)
        self._header_row = QHBoxLayout(self._header)
        self._header_row.setContentsMargins(0, 0, 0, 0)
        self._header_row.setSpacing(SPACE)
        self.heading = SafeLabel(title, role="heading", wrap=True, parent=self._header)
        self._header_row.addWidget(self.heading, 1)
        self._header.setVisible(bool(title))
        outer.addWidget(self._header)
        self.body = QVBoxLayout()
        self.body.setContentsMargins(0, 0, 0, 0)
        self.body.setSpacing(SPACE + SPACE // 2)
        outer.addLayout(self.body)
        if title:
            self.setAccessibleName(title)

    def add_action(self, widget: QWidget) -> None:
        """Puts a widget at the right end of the heading row."""
        self._header_row.addWidget(widget)
        self._header.setVisible(True)


def line(parent: QWidget | None = None) -> QFrame:
    """A horizontal hairline between two parts of a card."""
    result = QFrame(parent)
    result.setProperty("line", True)
    result.setFixedHeight(1)
    return result
