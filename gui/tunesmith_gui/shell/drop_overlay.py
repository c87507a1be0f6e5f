"""The frame over the page while files are held above the window."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from tunesmith_gui.icons import pixmap
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import SafeLabel


class DropOverlay(QFrame):
    """Covers its parent and says what dropping does; takes no mouse events itself."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._area = parent
        self.setProperty("drop", True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        column = QVBoxLayout(self)
        column.setSpacing(SPACE)
        column.addStretch(1)
        self._icon = SafeLabel(parent=self)
        column.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignHCenter)
        for words, role, tone in (
            (self.tr("Drop to start a new run with it"), "heading", "text"),
            (self.tr("A data file, a model folder or a run spec"), "body", "muted"),
        ):
            column.addWidget(SafeLabel(words, role=role, tone=tone, parent=self), 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(1)
        self.hide()

    def cover(self) -> None:
        """Shows the frame over the whole parent."""
        self._icon.setPixmap(pixmap("drop", "accent", SPACE * 5))
        self.setGeometry(self._area.rect().adjusted(SPACE, SPACE, -SPACE, -SPACE))
        self.show()
        self.raise_()
