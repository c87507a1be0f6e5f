"""What every page must keep: names for a screen reader, whole words, a way through by Tab."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel, QScrollArea, QWidget

from tunesmith_gui.widgets.safe_label import ElidedLabel

TOLERANCE_PX = 2
LAYOUT_TRIES, LAYOUT_WAIT_MS = 50, 20

INTERACTIVE = {
    QAccessible.Role.Button,
    QAccessible.Role.ButtonMenu,
    QAccessible.Role.CheckBox,
    QAccessible.Role.RadioButton,
    QAccessible.Role.ComboBox,
    QAccessible.Role.EditableText,
    QAccessible.Role.Slider,
    QAccessible.Role.SpinBox,
    QAccessible.Role.Table,
    QAccessible.Role.Tree,
    QAccessible.Role.List,
    QAccessible.Role.PageTab,
    QAccessible.Role.PageTabList,
}


def describe(widget: QWidget) -> str:
    """Class and words of a widget, for a failure message."""
    words = widget.text() if isinstance(widget, (QLabel, QAbstractButton)) else widget.accessibleName()
    return f"{type(widget).__name__} {words[:60]!r}"


def shown_widgets(root: QWidget) -> list[QWidget]:
    """The visible widgets below a root."""
    return [each for each in root.findChildren(QWidget) if each.isVisibleTo(root.window())]


def unnamed(root: QWidget) -> list[str]:
    """Controls that a screen reader could not name. Parts of a spin box or a combo box count with their owner."""
    result = []
    for widget in shown_widgets(root):
        interface = QAccessible.queryAccessibleInterface(widget)
        if interface is None or interface.role() not in INTERACTIVE:
            continue
        if widget.focusPolicy() == Qt.FocusPolicy.NoFocus and not isinstance(widget, QAbstractButton):
            continue
        if isinstance(widget.parent(), QWidget) and widget.parent().focusProxy() is widget:
            continue
        if not (interface.text(QAccessible.Text.Name).strip() or _named_by_owner(widget)):
            result.append(describe(widget))
    return result


def _named_by_owner(widget: QWidget) -> bool:
    parent = widget.parentWidget()
    return widget.objectName().startswith("qt_") and parent is not None and bool(parent.accessibleName())


def clipped(root: QWidget) -> list[str]:
    """Words that stay cut off: labels and buttons with less room than they ask for, and pages that are too wide.

    Words that have just changed are laid out by the events to come, which are given time.
    """
    for _ in range(LAYOUT_TRIES):
        if not clipped_now(root):
            return []
        QTest.qWait(LAYOUT_WAIT_MS)
    return clipped_now(root)


def clipped_now(root: QWidget) -> list[str]:
    """Return what `clipped` does, of this moment."""
    result = []
    for widget in shown_widgets(root):
        if isinstance(widget, QLabel) and not isinstance(widget, ElidedLabel) and widget.text():
            if widget.wordWrap():
                fits = widget.heightForWidth(widget.width()) <= widget.height() + TOLERANCE_PX
            else:
                fits = widget.sizeHint().width() <= widget.width() + TOLERANCE_PX
            fits = fits and widget.fontMetrics().height() <= widget.height() + TOLERANCE_PX
        elif isinstance(widget, QAbstractButton) and widget.text() and widget.property("kind") != "rail":
            fits = widget.sizeHint().width() <= widget.width() + TOLERANCE_PX
        elif isinstance(widget, QScrollArea) and widget.widget() is not None:
            fits = widget.widget().minimumSizeHint().width() <= widget.viewport().width() + TOLERANCE_PX
        else:
            continue
        if not fits:
            result.append(f"{describe(widget)} has {widget.size().toTuple()}, wants {widget.sizeHint().toTuple()}")
    return result


def tab_stops(window: QWidget, limit: int = 300) -> list[QWidget]:
    """The widgets that Tab visits from the start until it comes round; more than `limit` stops means a trap."""
    first = None
    stops: list[QWidget] = []
    for _ in range(limit):
        window.focusNextPrevChild(True)
        current = window.focusWidget()  # of this window, which need not be the active one
        if current is None or current is first:
            break
        first = first or current
        stops.append(current)
    return stops
