"""What a chart is made of: its axis, its box with zoom and limits, its canvas under the mouse, its tool tip."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QMouseEvent, QPainter, QWheelEvent

from tunesmith_gui.plain_text import show_values
from tunesmith_gui.theme import font, tokens
from tunesmith_gui.tokens import SPACE

_FLAT_PX = 12
"""A box drawn flatter than this zooms horizontally only."""


def compact_number(value: float) -> str:
    """A number for an axis: 12k, 3.4M, 2e-04."""
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.6g}{suffix}"
    if 0 < size < 1e-3:
        return f"{value:.1e}"
    return f"{value:.4g}"


class Axis(pg.AxisItem):
    """An axis with short numbers."""

    whole = False
    """Whether it counts things that have no half, such as steps."""

    def __init__(self, orientation: str, **options: Any) -> None:  # Any: what pyqtgraph takes
        super().__init__(orientation, **options)
        # It would count in thousandths, with "(x0.001)" beside the title.
        self.enableAutoSIPrefix(False)

    def tickSpacing(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, float]]:
        """Leave out the halves of steps."""
        spacings: list[tuple[float, float]] = super().tickSpacing(minVal, maxVal, size)
        return [(max(spacing, 1.0), offset) for spacing, offset in spacings] if self.whole else spacings

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        """Write the numbers, with as many digits as tell them apart."""
        if self.logMode:
            return [compact_number(10**value) if abs(value - round(value)) < 0.5 else "" for value in values]
        labels = [compact_number(value * scale) for value in values]
        if len(set(labels)) == len(labels):
            return labels
        decimals = max(0, math.ceil(-math.log10(spacing * scale)))
        return [f"{value * scale:.{decimals}f}" for value in values]


class ZoomBox(pg.ViewBox):
    """Left drag zooms into a box; middle drag, or left with Shift, moves along the x axis."""

    def __init__(self) -> None:
        super().__init__(enableMenu=False)
        self.setMouseEnabled(x=True, y=False)

    def mouseDragEvent(self, ev: Any, axis: int | None = None) -> None:  # Any: pyqtgraph has no types
        """Zoom or move; the right button belongs to the chart's menu."""
        if ev.button() == Qt.MouseButton.RightButton:
            ev.ignore()
            return
        if ev.isStart():
            moves = ev.button() == Qt.MouseButton.MiddleButton or ev.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self.setMouseMode(self.PanMode if moves else self.RectMode)
        super().mouseDragEvent(ev, axis)

    def showAxRect(self, ax: QRectF, **kwargs: Any) -> None:  # Any: what setRange takes
        """Zoom to a box; one without height keeps the y range."""
        box = ax.normalized()
        if box.height() < _FLAT_PX * self.viewPixelSize()[1]:
            low, high = self.viewRange()[1]
            box.setTop(low)
            box.setBottom(high)
        super().showAxRect(box, padding=0, **kwargs)

    def restyle(self) -> None:
        """Take the colors of the theme."""
        soft = QColor(tokens().accent)
        soft.setAlpha(40)
        self.rbScaleBox.setPen(pg.mkPen(tokens().accent))
        self.rbScaleBox.setBrush(soft)


class Canvas(pg.PlotWidget):
    """Zooms with the wheel once it was clicked, else only with Ctrl, so that the page scrolls under the pointer."""

    double_clicked = Signal()

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: what PlotWidget takes
        super().__init__(*args, **kwargs)
        self.viewport().setFocusPolicy(Qt.FocusPolicy.NoFocus)  # also changes the canvas, so it comes first
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        """Asks for the whole chart again."""
        self.double_clicked.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zooms, or leaves the wheel to the page."""
        if self.hasFocus() or event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            super().wheelEvent(event)
            event.accept()
        else:
            event.ignore()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Shows that the wheel zooms now."""
        super().focusInEvent(event)
        self.getPlotItem().getViewBox().setBorder(pg.mkPen(tokens().focus))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Gives the wheel back to the page."""
        super().focusOutEvent(event)
        self.getPlotItem().getViewBox().setBorder(None)


class Sample(pg.ItemSample):
    """A legend's picture of a line; a click on it hides the line. The ground below the line is not part of it."""

    def paint(self, p: QPainter, *args: object) -> None:
        """Draws line and symbol."""
        options = self.item.opts
        level, options["fillLevel"] = options["fillLevel"], None
        super().paint(p, *args)
        options["fillLevel"] = level


class Tip(pg.TextItem):
    """Values beside the pointer, always whole inside the chart's box."""

    def __init__(self, box: ZoomBox) -> None:
        super().__init__()
        self.setParentItem(box)
        self.setZValue(1e6)
        self.hide()

    def show_at(self, place: QPointF, rows: Iterable[tuple[str, str, str]], below: float) -> None:
        """Tell values beside a place of the scene, on the side with room for them; nearer the top only if they must.

        Args:
            place: in the scene.
            rows: as of `plain_text.show_values`.
            below: the highest place that is free.
        """
        show_values(self.textItem, rows)
        room, size = self.parentItem().rect(), self.textItem.boundingRect()
        at = self.parentItem().mapFromScene(place)
        left = at.x() + SPACE if at.x() + SPACE + size.width() <= room.right() else at.x() - SPACE - size.width()
        top = min(max(at.y() - size.height() / 2, below), room.bottom() - size.height())
        self.setPos(max(left, room.left()), max(top, room.top()))

    def restyle(self) -> None:
        """Take the colors and the text size of the theme."""
        self.setFont(font("caption"))
        self.setColor(tokens().text)
        self.fill = pg.mkBrush(tokens().raised)
        self.border = pg.mkPen(tokens().outline)
