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
        self._words = SafeLabel(role="heading", parent=self)
        self._kinds = SafeLabel(tone="muted", parent=self)
        for label in (self._words, self._kinds):
            column.addWidget(label, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(1)
        self.hide()

    def cover(self, words: str = "") -> None:
        """Shows the frame over the whole parent, with words for what the page in front does with files."""
        self._words.setText(words or self.tr("Drop to start a new run with it"))
        self._kinds.setText("" if words else self.tr("A data file, a model folder or a run spec"))
        self._icon.setPixmap(pixmap("drop", "accent", SPACE * 5))
        self.setGeometry(self._area.rect().adjusted(SPACE, SPACE, -SPACE, -SPACE))
        self.show()
        self.raise_()
