"""One short line over the bottom of the window for some seconds; what needs an answer is a banner instead."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from tunesmith_gui.icons import pixmap
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import ICON_PX, SPACE
from tunesmith_gui.widgets.banner import TONE_ICONS
from tunesmith_gui.widgets.safe_label import SafeLabel

SHOWN_MS = 5000
_MAX_WIDTH_SHARE = 0.8


class Toast(QFrame):
    """Lies over its parent; `show_message` shows, replaces and announces the line."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._area = parent
        self.setProperty("toast", True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        row = QHBoxLayout(self)
        row.setContentsMargins(SPACE * 2, SPACE, SPACE * 2, SPACE)
        row.setSpacing(SPACE)
        self._icon = SafeLabel(parent=self)
        self.label = SafeLabel(wrap=True, parent=self)
        row.addWidget(self._icon)
        row.addWidget(self.label, 1)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        parent.installEventFilter(self)
        self.hide()

    def show_message(self, tone: str, text: str) -> None:
        """Shows a line for five seconds, an error twice as long: it has its next step with it."""
        self._icon.setPixmap(pixmap(TONE_ICONS[tone], "surface", round(ICON_PX * theme().font_scale)))
        self.label.setText(text)
        self._place()
        self.show()
        self.raise_()
        self._timer.start(SHOWN_MS * 2 if tone == "error" else SHOWN_MS)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follows the size of the parent."""
        if event.type() == QEvent.Type.Resize and watched is self._area and self.isVisible():
            self._place()
        return False

    def _place(self) -> None:
        area = self._area.rect()
        self.label.setWordWrap(False)
        width = min(self.sizeHint().width(), round(area.width() * _MAX_WIDTH_SHARE))
        self.label.setWordWrap(True)
        height = max(self.heightForWidth(width), self.sizeHint().height())
        self.setGeometry((area.width() - width) // 2, area.height() - height - SPACE * 3, width, height)
