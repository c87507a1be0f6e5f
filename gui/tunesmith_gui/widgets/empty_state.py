"""What a page shows before there is anything to show: one sentence, one primary button, one secondary."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.icons import pixmap
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

Action = tuple[str, Callable[[], object]]


class EmptyState(QWidget):
    """A centred icon, title and sentence with up to two buttons."""

    def __init__(
        self,
        icon_name: str,
        title: str,
        text: str = "",
        *,
        primary: Action | None = None,
        secondary: Action | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._icon_name = icon_name
        column = QVBoxLayout(self)
        column.setSpacing(SPACE)
        column.addStretch(2)
        self._icon = SafeLabel(parent=self)
        column.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addSpacing(SPACE)
        for words, role, tone in ((title, "heading", "text"), (text, "body", "muted")):
            label = SafeLabel(words, role=role, tone=tone, wrap=True, parent=self)
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setVisible(bool(words))
            column.addWidget(label)
        column.addSpacing(SPACE)
        row = QHBoxLayout()
        row.addStretch(1)
        self.primary = button(*primary, kind="primary", parent=self) if primary else None
        self.secondary = button(*secondary, parent=self) if secondary else None
        for each in (self.primary, self.secondary):
            if each is not None:
                row.addWidget(each)
        row.addStretch(1)
        column.addLayout(row)
        column.addStretch(3)
        theme().changed.connect(self._draw_icon)
        self._draw_icon()

    def _draw_icon(self) -> None:
        self._icon.setPixmap(pixmap(self._icon_name, "muted", round(40 * theme().font_scale)))
