"""A line chart over pyqtgraph that stays quick with a hundred thousand points and can be read without seeing it.

Importing this module imports pyqtgraph, which takes most of a second: pages do so on a worker thread. Lines are thinned
to two points per pixel before they are drawn. A raw line is one pixel wide and not antialiased: a thick antialiased one
takes longer than a whole frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPoint, QPointF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QImage, QMouseEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_gui.models.metric_series import Floats, decimate, thin
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import CHART_DASHES
from tunesmith_gui.tr import fill

SMOOTH_POINTS = 500
_NEAR_PX = 6
"""A dot this close to the pointer's step is read out."""
_FADE = 90
"""Opacity of a raw line behind a smoothed one, of 255."""

Look = Literal["raw", "smooth", "line", "dots"]


@dataclass(slots=True)
class Line:
    """One curve.

    Attributes:
        name: words for the legend, the table and the CSV header.
        x, y: shape (n,), x rising; NaN is a gap.
        look: raw (faint, thin), smooth (2 px), line (1 px, full colour) or dots.
        colour: place in the chart palette; also picks the dash pattern of smooth lines.
    """

    name: str
    x: Floats
    y: Floats
    look: Look = "line"
    colour: int = 0
    dashed: bool = False


def compact_number(value: float) -> str:
    """A number for an axis: 12k, 3.4M, 2e-04."""
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):g}{suffix}"
    if 0 < size < 1e-3:
        return f"{value:.1e}"
    return f"{value:.4g}"


class _Axis(pg.AxisItem):
    ticks = "%1"
    """How a number is written below the chart, e.g. "%1 s"."""

    whole = False
    """Whether it counts things that have no half, such as steps."""

    def tickSpacing(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, float]]:
        spacings: list[tuple[float, float]] = super().tickSpacing(minVal, maxVal, size)
        return [(max(spacing, 1.0), offset) for spacing, offset in spacings] if self.whole else spacings

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if self.logMode:
            return [compact_number(10**value) if abs(value - round(value)) < 0.5 else "" for value in values]
        del spacing
        return [fill(self.ticks, compact_number(value * scale)) for value in values]


class _Canvas(pg.PlotWidget):
    """Zooms with Ctrl and the wheel only, so that the page scrolls under the pointer as everywhere else."""

    double_clicked = Signal()

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        """Asks for the whole chart again."""
        self.double_clicked.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            super().wheelEvent(event)
        else:
            event.ignore()


class MetricPlot(QWidget):
    """Curves over one x axis.

    Args:
        name: accessible name.

    Signals:
        hovered: (words) what is under the pointer; "" when it left.
        lines_changed: `lines` is another list.
    """

    hovered = Signal(str)
    lines_changed = Signal()

    def __init__(self, name: str, *, x_word: str = "step", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lines: list[Line] = []
        self.x_word = x_word
        self.x_ticks = "%1"
        self.x_start: float | None = None
        self._drawn: list[Floats] = []
        self._items: list[Any] = []  # Any: pyqtgraph has no types
        self._looks: list[tuple[Look, int, bool]] = []
        self._zoomed = False
        self._log = False
        self._canvas = _Canvas(
            self, axisItems={side: _Axis(orientation=side) for side in ("left", "bottom")}, enableMenu=False
        )
        for widget in (self._canvas, self._canvas.viewport()):
            widget.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._canvas.setAccessibleName(name)
        self.setAccessibleName(name)
        self._plot = self._canvas.getPlotItem()
        # pyqtgraph leaves its menu without a parent: it would outlive the chart. As a child its many unnamed
        # widgets would count as parts of the page.
        self.destroyed.connect(self._plot.ctrlMenu.deleteLater)
        self._plot.hideButtons()
        self._box = self._plot.getViewBox()
        self._box.setMouseEnabled(x=True, y=False)
        self._box.setDefaultPadding(0.02)
        self._box.setLimits(xMin=0.0)  # Steps, tokens and times all count from 0.
        self._plot.getAxis("bottom").whole = True
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        self._cursor.hide()
        self._plot.addItem(self._cursor, ignoreBounds=True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._canvas)
        self._redraw_soon = QTimer(self)
        self._redraw_soon.setSingleShot(True)
        self._redraw_soon.setInterval(16)
        self._redraw_soon.timeout.connect(self._redraw)
        self._box.sigRangeChangedManually.connect(self._on_zoomed)
        self._canvas.scene().sigMouseMoved.connect(self._on_pointer)
        self._canvas.double_clicked.connect(self.fit)
        self._canvas.viewport().installEventFilter(self)
        theme().changed.connect(self._theme_changed)
        self._theme_changed()

    def sizeHint(self) -> QSize:
        """The least height: pyqtgraph's own hint grows with the window and never shrinks again."""
        return QSize(240, self.minimumHeight())

    def set_lines(self, lines: list[Line]) -> None:
        """Show other curves; the view follows them unless the person has zoomed in."""
        self.lines = lines
        looks = [(line.look, line.colour, line.dashed) for line in lines]
        if looks != self._looks:
            self._rebuild(looks)
        self._redraw()
        if not self._zoomed:
            self._show_everything()
        self.lines_changed.emit()

    def set_x(self, word: str, *, ticks: str = "%1", start: float | None = None) -> None:
        """Name the x axis.

        Args:
            word: what it counts, for readout, table and CSV.
            ticks: how its numbers are written, "%1" being the number.
            start: where the axis begins; None for the first point.
        """
        if (word, ticks, start) == (self.x_word, self.x_ticks, self.x_start):
            return
        self.x_word, self.x_ticks, self.x_start = word, ticks, start
        axis = self._plot.getAxis("bottom")
        axis.ticks, axis.whole = ticks, ticks == "%1"
        self.fit()

    def set_log(self, log: bool) -> None:
        """Switch the y axis between linear and logarithmic."""
        self._log = log
        self._plot.setLogMode(x=False, y=log)
        self.fit()

    @property
    def log(self) -> bool:
        """Whether the y axis is logarithmic."""
        return self._log

    def fit(self) -> None:
        """Show everything again and follow what comes."""
        self._zoomed = False
        self._redraw()
        self._show_everything()

    def image(self) -> QImage:
        """The chart as it is on the screen, on the card's background."""
        image = QImage(self.size() * self.devicePixelRatioF(), QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(self.devicePixelRatioF())
        image.fill(QColor(tokens().raised))
        self.render(image, QPoint(), renderFlags=QWidget.RenderFlag.DrawChildren)
        return image

    def eventFilter(self, _watched: object, event: QEvent) -> bool:
        """Takes the cursor line away when the pointer leaves."""
        if event.type() == QEvent.Type.Leave:
            self._cursor.hide()
            self.hovered.emit("")
        return False

    def _rebuild(self, looks: list[tuple[Look, int, bool]]) -> None:
        for item in self._items:
            self._plot.removeItem(item)
        self._looks = looks
        self._items = [self._make(*look) for look in looks]
        for item in self._items:
            self._plot.addItem(item)

    def _make(self, look: Look, colour: int, dashed: bool) -> Any:  # Any: pyqtgraph has no types
        palette = tokens().chart
        ink = QColor(palette[colour % len(palette)])
        if look == "dots":
            edge = pg.mkPen(tokens().raised, width=1.5)
            return pg.PlotDataItem(pen=None, symbol="o", symbolSize=8, symbolBrush=ink, symbolPen=edge, antialias=True)
        pen = QPen(ink)
        pen.setCosmetic(True)
        pen.setWidthF(2.0 if look == "smooth" else 1.0)
        if look == "raw":
            ink.setAlpha(_FADE)
            pen.setColor(ink)
        if dashed:
            pattern = CHART_DASHES[colour % len(CHART_DASHES)]
            if pattern:
                pen.setDashPattern(list(pattern))
        return pg.PlotDataItem(pen=pen, antialias=look == "smooth", connect="finite")

    def _redraw(self) -> None:
        width_px = max(self._canvas.width(), 100)
        (left, right), _ = self._box.viewRange()
        self._drawn = []
        for item, line in zip(self._items, self.lines, strict=True):
            x, y = line.x, line.y
            if self._zoomed and len(x):
                first, end = np.searchsorted(x, (left, right))
                x, y = x[max(first - 1, 0) : end + 1], y[max(first - 1, 0) : end + 1]
            if self._log:
                y = np.where(y > 0, y, np.nan)
            x, y = thin(x, y, SMOOTH_POINTS) if line.look == "smooth" else decimate(x, y, width_px)
            item.setData(x, y)
            self._drawn.append(y)

    def _show_everything(self) -> None:
        xs = [line.x[[0, -1]] for line in self.lines if len(line.x)]
        if not xs:
            return
        ends = np.concatenate(xs)
        # The thinned lines hold every extreme of the raw ones.
        finite = [y[np.isfinite(y)] for y in self._drawn]
        extremes = [(float(np.min(y)), float(np.max(y))) for y in finite if len(y)]
        left = float(np.min(ends)) if self.x_start is None else self.x_start
        right = float(np.max(ends))
        self._box.setXRange(left, right if right - left > 1e-9 else left + 1.0, padding=0.02)
        if not extremes:
            return
        low, high = float(min(pair[0] for pair in extremes)), float(max(pair[1] for pair in extremes))
        if self._log:
            low, high = np.log10(max(low, 1e-12)), np.log10(max(high, 1e-12))
        if high - low < 1e-12:
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        self._box.setYRange(low, high, padding=0.06)

    def _on_zoomed(self, *_which: object) -> None:
        self._zoomed = True
        self._redraw_soon.start()

    def _on_pointer(self, place: QPointF) -> None:
        lines = [line for line in self.lines if len(line.x)]
        if not lines or not self._plot.sceneBoundingRect().contains(place):
            return
        x = self._box.mapSceneToView(place).x()
        words, shown_x = [], x
        for line in lines:
            index = int(np.clip(np.searchsorted(line.x, x), 0, len(line.x) - 1))
            if index and abs(line.x[index - 1] - x) < abs(line.x[index] - x):
                index -= 1
            if line is lines[0]:
                shown_x = float(line.x[index])
                words.append(f"{self.x_word} {compact_number(shown_x)}")
            if line.look == "dots" and abs(float(line.x[index]) - shown_x) > _NEAR_PX * self._box.viewPixelSize()[0]:
                continue
            words.append(f"{line.name} {compact_number(float(line.y[index]))}")
        self._cursor.setPos(shown_x)
        self._cursor.show()
        self.hovered.emit("   ".join(words))

    def _theme_changed(self) -> None:
        self._canvas.setBackground(tokens().raised)
        self._cursor.setPen(pg.mkPen(tokens().outline, width=1))
        for side in ("left", "bottom"):
            axis = self._plot.getAxis(side)
            axis.setPen(pg.mkPen(tokens().border))
            axis.setTextPen(pg.mkPen(tokens().muted))
            axis.setTickFont(font("caption"))
            axis.setStyle(tickLength=0, tickTextOffset=6, maxTickLevel=0, hideOverlappingLabels=True)
        axis = self._plot.getAxis("left")
        axis.setWidth(self.fontMetrics().horizontalAdvance("0.0000") + 10)
        self._plot.getAxis("bottom").setHeight(self.fontMetrics().height() + 8)
        self._plot.showGrid(x=False, y=True, alpha=0.35)
        axis.setPen(pg.mkPen(tokens().outline))
        self._rebuild(self._looks)
        self._redraw()
