"""One short line over the bottom of the window for some seconds; what needs an answer is a banner instead."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QRect, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QHideEvent, QMouseEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from tunesmith_gui.icons import pixmap
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import ICON_PX, SPACE
from tunesmith_gui.widgets.banner import TONE_ICONS
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

SHOWN_MS = 5000
_CONTROLS = (QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit, QPlainTextEdit)
_MAX_WIDTH_SHARE = 0.8


_STEP_PX = SPACE * 2
_WATCH_MS = 200
_PRIMARY_WEIGHT = 1000
"""How much worse it is to lie over a primary button than over another control."""


class Toast(QFrame):
    """Lies over its parent where no control is, a click takes it away; `show_message` shows and announces the line."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._area = parent
        self.setProperty("toast", True)
        row = QHBoxLayout(self)
        row.setContentsMargins(SPACE * 2, SPACE, SPACE * 2, SPACE)
        row.setSpacing(SPACE)
        self._icon = SafeLabel(parent=self)
        self.label = SafeLabel(wrap=True, parent=self)
        self.action = button("", self._act, kind="quiet", parent=self)
        self._work: Callable[[], object] | None = None
        row.addWidget(self._icon)
        row.addWidget(self.label, 1)
        row.addWidget(self.action)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        self._watch = QTimer(self)
        self._watch.setInterval(_WATCH_MS)
        self._watch.timeout.connect(self._avoid)
        parent.installEventFilter(self)
        self.hide()

    def show_message(self, tone: str, text: str) -> None:
        """Shows a line for five seconds, an error twice as long: it has its next step with it."""
        self._show(tone, text, SHOWN_MS * 2 if tone == "error" else SHOWN_MS)

    def show_offer(self, text: str, action: str, work: Callable[[], object]) -> None:
        """Shows a line with a button for ten seconds, in which it is reached by the keyboard, too."""
        self._show("ok", text, SHOWN_MS * 2, action, work)

    def _show(
        self, tone: str, text: str, shown_ms: int, action: str = "", work: Callable[[], object] | None = None
    ) -> None:
        self._work = work
        self.action.setText(action)
        self.action.setAccessibleName(action)
        self.action.setVisible(bool(action))
        self._icon.setPixmap(pixmap(TONE_ICONS[tone], "surface", round(ICON_PX * theme().font_scale)))
        self.label.setText(text)
        self._place()
        self.show()
        self.raise_()
        self._watch.start()
        self._timer.start(shown_ms)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follows the size of the parent."""
        if event.type() == QEvent.Type.Resize and watched is self._area and self.isVisible():
            self._place()
        return False

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Goes away."""
        event.accept()
        self.hide()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nothing is to be avoided any more."""
        super().hideEvent(event)
        self._watch.stop()

    def _act(self) -> None:
        work, self._work = self._work, None
        self.hide()
        if work is not None:
            work()

    def _avoid(self) -> None:
        """Looks for another place where a control lies below now, as of a page that was still being filled."""
        if any(_covered(self.geometry(), *each) for each in self._controls()):
            self._place()

    def _place(self) -> None:
        area = self._area.rect()
        self.label.setWordWrap(False)
        width = min(self.sizeHint().width(), round(area.width() * _MAX_WIDTH_SHARE))
        self.label.setWordWrap(True)
        height = max(self.heightForWidth(width), self.sizeHint().height())
        gap = SPACE * 3
        right = area.width() - width
        columns = (right // 2, max(right - gap, 0), min(gap, right))
        lowest = max(area.height() - height - gap, 0)
        places = [QRect(x, y, width, height) for y in range(lowest, -1, -_STEP_PX) for x in columns]
        controls = self._controls()
        # The first of the best, which is the lowest in the middle.
        self.setGeometry(min(places, key=lambda place: sum(_covered(place, *each) for each in controls)))

    def _controls(self) -> list[tuple[QRect, int]]:
        """Where what can be clicked or written into is in sight, and how bad it is to cover it."""
        found = []
        for each in self._area.findChildren(QWidget):
            is_control = isinstance(each, _CONTROLS) and each is not self.action
            if is_control and each.isVisible() and not getattr(each, "isReadOnly", bool)():
                weight = _PRIMARY_WEIGHT if each.property("kind") == "primary" else 1
                found.append((self._in_sight(each), weight))
        return found

    def _in_sight(self, widget: QWidget) -> QRect:
        """What of a widget its parents show, in this one's parent."""
        rect = widget.rect()
        while widget is not self._area:
            rect = QRect(widget.mapToParent(rect.topLeft()), rect.size())
            widget = widget.parentWidget() or self._area
            rect &= widget.rect()
        return rect


def _covered(place: QRect, control: QRect, weight: int) -> int:
    common = place & control
    return 0 if common.isEmpty() else weight * common.width() * common.height()
