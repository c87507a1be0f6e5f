"""A line chart over pyqtgraph that stays quick with a hundred thousand points and can be read without seeing it.

Importing this module imports pyqtgraph, which takes most of a second: pages do so on a worker thread. Lines are thinned
to two points per pixel before they are drawn. A raw line is not antialiased: a thick antialiased one takes longer than
a whole frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPoint, QPointF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QBrush, QColor, QImage, QLinearGradient, QPen
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_gui.models.metric_series import Floats, decimate, nearest, thin
from tunesmith_gui.plain_text import for_html
from tunesmith_gui.stylesheet import mix
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import CHART_DASHES, SPACE
from tunesmith_gui.tr import fill, number
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.plot_parts import Axis, Canvas, Sample, Tip, ZoomBox, compact_number
from tunesmith_gui.widgets.safe_label import SafeLabel

SMOOTH_POINTS = 500
"""Points of a smoothed line 2 px wide; a wider one gets fewer, for its painting takes as long as its area is large."""
_FADE = 0.5
"""How much of its color a raw line behind a smoothed one keeps. Opaque: a wide translucent line takes seconds."""
_MARGIN = 0.02
"""Share of the width that stays free on both sides."""
_FILL = 60
"""Opacity of the ground under a line at its highest point, of 255."""

Look = Literal["raw", "smooth", "line", "dots", "best", "saved"]
_SYMBOLS = {"dots": ("o", 8.0), "best": ("star", 16.0), "saved": ("d", 13.0)}
"""Symbol and size in pixels of the looks that are points."""


@dataclass(slots=True)
class Line:
    """One curve.

    Attributes:
        name: words for the legend, the table and the CSV header.
        x, y: shape (n,), x rising; NaN is a gap.
        look: raw (faint, thin), smooth (2 px), line (1 px, full color), or points: dots, best (a star), saved (hollow).
        colour: place in the chart palette; also picks the dash pattern of smooth lines.
        filled: the ground below it is shaded.
    """

    name: str
    x: Floats
    y: Floats
    look: Look = "line"
    colour: int = 0
    dashed: bool = False
    filled: bool = False

    @property
    def style(self) -> tuple[str, Look, int, bool, bool]:
        """What a drawn item depends on, apart from its numbers."""
        return self.name, self.look, self.colour, self.dashed, self.filled


class MetricPlot(QWidget):
    """Curves over one x axis. Dragging zooms into a box, a double click shows everything again.

    Args:
        name: accessible name.
        y_title: what stands beside the y axis.

    Attributes:
        y_span: lowest and highest value that there can be, which are always shown; None for those of the lines.

    Signals:
        pointed: (x or None) the pointer is over this place, or left.
        lines_changed: `lines` is another list.
    """

    pointed = Signal(object)
    lines_changed = Signal()

    def __init__(self, name: str, *, y_title: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lines: list[Line] = []
        self.x_title, self.x_whole, self.x_end = self.tr("Step"), True, 0.0
        self.live: bool | None = None
        self.log = False
        self.y_span: tuple[float, float] | None = None
        self._drawn: list[Floats] = []
        self._items: list[Any] = []  # Any: pyqtgraph has no types
        self._styles: list[tuple[str, Look, int, bool, bool]] = []
        self._zoomed = False
        self._pointer: QPointF | None = None
        self._box = ZoomBox()
        self._canvas = Canvas(
            self,
            viewBox=self._box,
            axisItems={side: Axis(orientation=side) for side in ("left", "bottom")},
            enableMenu=False,
        )
        self._canvas.setAccessibleName(name)
        self.setAccessibleName(name)
        self.y_title = y_title
        self._plot = self._canvas.getPlotItem()
        # pyqtgraph leaves its menu without a parent: it would outlive the chart. As a child its many unnamed
        # widgets would count as parts of the page.
        self.destroyed.connect(self._plot.ctrlMenu.deleteLater)
        self._plot.hideButtons()
        self._plot.getAxis("bottom").whole = True
        self._legend = pg.LegendItem(offset=None, frame=False, colCount=8, sampleType=Sample)
        self._legend.layout.setContentsMargins(0, 0, 0, 0)
        self._plot.layout.removeItem(self._plot.titleLabel)
        self._plot.layout.addItem(self._legend, 0, 1, Qt.AlignmentFlag.AlignLeft)
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        self._spots = pg.ScatterPlotItem()
        for item in (self._cursor, self._spots):
            self._plot.addItem(item, ignoreBounds=True)
        self._tip = Tip(self._box)
        self._empty = SafeLabel("", tone="muted", parent=self)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._canvas)
        column.addWidget(self._empty, 1)
        self._chip = button("", self.fit, parent=self)
        self._chip.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # charts are no stops of Tab; their menu does the same
        self._redraw_soon = QTimer(self)
        self._redraw_soon.setSingleShot(True)
        self._redraw_soon.setInterval(16)
        self._redraw_soon.timeout.connect(self._redraw)
        self._box.sigResized.connect(self._on_resized)
        self._box.sigRangeChanged.connect(self._on_range)
        self._box.sigRangeChangedManually.connect(self._on_zoomed)
        self._canvas.scene().sigMouseMoved.connect(self._on_pointer)
        self._canvas.double_clicked.connect(self.fit)
        self._canvas.viewport().installEventFilter(self)
        theme().changed.connect(self._restyle)
        self._restyle()
        self.set_live(False)
        self.fit()

    def sizeHint(self) -> QSize:
        """The least height: pyqtgraph's own hint grows with the window and never shrinks again."""
        return QSize(240, self.minimumHeight())

    def set_lines(self, lines: list[Line]) -> None:
        """Show other curves; the view follows them unless the person has zoomed in."""
        self.lines = lines
        if [line.style for line in lines] != self._styles:
            self._rebuild()
        self._redraw()
        if not self._zoomed:
            self._show_everything()
        self.lines_changed.emit()

    def set_x(self, title: str, *, whole: bool = True, end: float = 0.0) -> None:
        """Name the x axis, which begins at 0.

        Args:
            title: what it counts, with its unit, for the axis, the tool tip, the table and the CSV.
            whole: it counts things that have no half, such as steps.
            end: the axis reaches at least this far.
        """
        is_other = title != self.x_title
        self.x_title, self.x_whole, self.x_end = title, whole, end
        axis = self._plot.getAxis("bottom")
        axis.whole = whole
        if is_other:
            axis.setLabel(for_html(title))
            self.fit()

    def set_live(self, live: bool | None) -> None:
        """Tell whether more is to come: an empty chart and the way back from a zoom say so."""
        if live is self.live:
            return
        self.live = live
        self._empty.setText(self.tr("No data yet") if live else self.tr("No data"))
        words = self.tr("Follow the run") if live else self.tr("Show the whole run")
        self._chip.setText(words)
        self._chip.setAccessibleName(words)
        self._arrange()

    def set_log(self, log: bool) -> None:
        """Switch the y axis between linear and logarithmic."""
        self.log = log
        self._plot.setLogMode(x=False, y=log)
        self.fit()

    def copy_from(self, other: MetricPlot) -> None:
        """Show what another chart shows."""
        self.set_x(other.x_title, whole=other.x_whole, end=other.x_end)
        self.set_live(other.live)
        if self.log != other.log:
            self.set_log(other.log)
        self.set_lines(other.lines)

    def fit(self) -> None:
        """Show everything again and follow what comes."""
        self._zoomed = False
        self._chip.hide()
        self._redraw()
        self._show_everything()

    def point_at(self, x: float | None, beside: QPointF | None = None) -> None:
        """Mark a place of the x axis and tell the values there; None marks nothing.

        Args:
            x: the place; the nearest point of a curve is taken.
            beside: where the pointer is in the scene; None when it is over another chart.
        """
        shown = [line for item, line in zip(self._items, self.lines, strict=True) if item.isVisible() and len(line.x)]
        curves = [line for line in shown if line.look not in _SYMBOLS] or shown
        for item in (self._cursor, self._spots, self._tip):
            item.setVisible(x is not None and bool(curves))
        if x is None or not curves:
            return
        shown_x = min((float(line.x[nearest(line.x, x)]) for line in curves), key=lambda place: abs(place - x))
        rows, spots = [], []
        if beside is not None:  # the chart under the pointer says where that is; its neighbors only tell their values
            rows.append(("", self.x_title, self._place_text(shown_x)))
        for line in shown:
            # A value of another place is told with that place; a mark counts only where it is.
            index = int(np.searchsorted(line.x, shown_x, side="right")) - 1
            is_here = index >= 0 and line.x[index] == shown_x
            if index < 0 or not (is_here or line.look not in ("best", "saved")):
                continue
            y = float(line.y[index])
            text = compact_number(y)
            if not is_here:
                text = fill(self.tr("%1 (at %2)"), text, self._place_text(line.x[index]))
            ink = self._shade(line)
            rows.append((ink, line.name, text))
            if is_here and np.isfinite(y) and (y > 0 or not self.log):
                spots.append({"pos": (shown_x, np.log10(y) if self.log else y), "brush": ink})
        self._cursor.setPos(shown_x)
        self._spots.setData(spots)
        at_x = self._box.mapViewToScene(QPointF(shown_x, 0.0)).x()
        below = self._chip.height() + SPACE if self._chip.isVisible() else 0
        self._tip.show_at(QPointF(at_x, beside.y() if beside else 0.0), rows, below)

    def image(self) -> QImage:
        """The chart as it is on the screen, on the card's background, without what follows the mouse."""
        self.point_at(None)
        return self._canvas.grab().toImage()

    def eventFilter(self, _watched: object, event: QEvent) -> bool:
        """Takes the marks away when the pointer leaves."""
        if event.type() == QEvent.Type.Leave:
            self._on_pointer(QPointF(-1.0, -1.0))
        return False

    def event(self, event: QEvent) -> bool:
        """Keeps the width of the lines on a screen with other pixels."""
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self._rebuild()
            self._redraw()
        return super().event(event)

    def _arrange(self) -> None:
        """Gives the legend as many columns as fit, and puts the chip into the corner of the box."""
        widths = [sample.width() + label.itemRect().width() + SPACE * 2 for sample, label in self._legend.items]
        if widths:
            room = self._box.width()
            self._legend.setColumnCount(len(widths) if sum(widths) <= room else max(int(room // max(widths)), 1))
        self._chip.adjustSize()
        corner = self._box.sceneBoundingRect().topRight().toPoint()
        self._chip.move(corner - QPoint(self._chip.width() + SPACE // 2, -SPACE // 2))

    def _place_text(self, x: float) -> str:
        return number(x) if self.x_whole else compact_number(x)

    def _ink(self, colour: int) -> str:
        palette = tokens().chart
        return palette[colour % len(palette)]

    def _shade(self, line: Line) -> str:
        ink = self._ink(line.colour)
        return mix(ink, tokens().raised, _FADE) if line.look == "raw" else ink

    def _px(self, width: float) -> float:
        """A width at 100 % as cosmetic pens want it: in pixels of the device, at the present text size."""
        return width * theme().font_scale * self.devicePixelRatioF()

    def _rebuild(self) -> None:
        hidden = {style[0] for style, item in zip(self._styles, self._items, strict=True) if not item.isVisible()}
        for item in self._items:
            self._plot.removeItem(item)
        self._styles = [line.style for line in self.lines]
        self._items = [self._make(line) for line in self.lines]
        self._legend.clear()
        self._legend.setLabelTextSize(f"{font('caption').pointSizeF()}pt")
        self._legend.setLabelTextColor(tokens().muted)
        for item, line in zip(self._items, self.lines, strict=True):
            self._plot.addItem(item)
            item.setVisible(line.name not in hidden)
            if len(self.lines) > 1:
                self._legend.addItem(item, for_html(line.name))
        self._arrange()

    def _make(self, line: Line) -> Any:  # Any: pyqtgraph has no types
        ink = QColor(self._ink(line.colour))
        if line.look in _SYMBOLS:
            symbol, size = _SYMBOLS[line.look]
            # A checkpoint often falls on an evaluation: the empty mark leaves that in sight.
            inside, edge = (None, ink) if line.look == "saved" else (ink, tokens().raised)
            return pg.PlotDataItem(
                pen=None,
                symbol=symbol,
                symbolSize=size * theme().font_scale,
                symbolBrush=inside,
                symbolPen=pg.mkPen(edge, width=1.5 * theme().font_scale),
                antialias=True,
            )
        pen = QPen(QColor(self._shade(line)))
        pen.setCosmetic(True)
        pen.setWidthF(self._px(2.0 if line.look == "smooth" else 1.0))
        pattern = CHART_DASHES[line.colour % len(CHART_DASHES)]
        if line.dashed and pattern:
            pen.setDashPattern(list(pattern))
        brush, edge = pg.mkBrush(self._shade(line)), pg.mkPen(None)
        return pg.PlotDataItem(
            pen=pen,
            antialias=line.look == "smooth",
            connect="finite",
            symbolBrush=brush,
            symbolPen=edge,
            symbolSize=6 * theme().font_scale,
        )

    def _redraw(self) -> None:
        width_px = max(self._canvas.width(), 100)
        num_smooth = round(SMOOTH_POINTS * 2.0 / max(self._px(2.0), 2.0))
        (left, right), _ = self._box.viewRange()
        self._drawn = []
        for item, line in zip(self._items, self.lines, strict=True):
            x, y = line.x, line.y
            if self._zoomed and len(x):
                first, end = np.searchsorted(x, (left, right))
                x, y = x[max(first - 1, 0) : end + 1], y[max(first - 1, 0) : end + 1]
            if self.log:
                y = np.where(y > 0, y, np.nan)
            if line.look in _SYMBOLS:
                x, y = x[np.isfinite(y)], y[np.isfinite(y)]
            x, y = thin(x, y, num_smooth) if line.look == "smooth" else decimate(x, y, width_px)
            if line.look in _SYMBOLS:
                item.setData(x, y)
            else:
                # A single point is no line yet.
                item.setData(x, y, symbol="o" if np.isfinite(y).sum() == 1 else None)
            self._drawn.append(y)

    def _show_everything(self) -> None:
        # The thinned lines hold every extreme of the raw ones.
        finite = [y[np.isfinite(y)] for y in self._drawn]
        extremes = [(float(np.min(y)), float(np.max(y))) for y in finite if len(y)]
        self._canvas.setVisible(bool(extremes))
        self._empty.setVisible(not extremes)
        if not extremes:
            self.point_at(None)
            return
        right = max([self.x_end, 1e-9, *(float(line.x[-1]) for line in self.lines if len(line.x))])
        # The symbol of a first point at 0 needs room before the axis.
        first, last = -_MARGIN * right, (1 + _MARGIN) * right
        self._box.setLimits(xMin=first, xMax=last, minXRange=min(2.0, right) if self.x_whole else right / 1000)
        self._box.setXRange(first, last, padding=0)
        low, high = float(min(pair[0] for pair in extremes)), float(max(pair[1] for pair in extremes))
        if self.log:
            low, high = np.log10(max(low, 1e-12)), np.log10(max(high, 1e-12))
        if self.y_span:
            low, high = self.y_span
        if high - low < 1e-12:
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        room = 0.06 * (high - low)
        if self.y_span:
            # Both ends are told, which needs room for half of their numbers in a low chart.
            room = 0.2 * (high - low)
            ends = (low, (low + high) / 2, high)
            self._plot.getAxis("left").setTicks([[(value, compact_number(value)) for value in ends]])
        self._box.setYRange(low - room, high + room, padding=0)
        self._fill(low - room, high)

    def _fill(self, low: float, high: float) -> None:
        for item, line in zip(self._items, self.lines, strict=True):
            if line.filled:
                top, bottom = QColor(self._ink(line.colour)), QColor(self._ink(line.colour))
                top.setAlpha(_FILL)
                bottom.setAlpha(0)
                gradient = QLinearGradient(0.0, high, 0.0, low)
                gradient.setColorAt(0.0, top)
                gradient.setColorAt(1.0, bottom)
                item.opts["fillLevel"] = low  # setFillLevel would draw once more
                item.setFillBrush(QBrush(gradient))

    def _on_resized(self, *_box: object) -> None:
        self._arrange()
        self._redraw_soon.start()  # a wider chart shows more points

    def _on_zoomed(self, *_which: object) -> None:
        self._zoomed = True
        self._chip.show()
        self._redraw_soon.start()

    def _on_range(self, *_ranges: object) -> None:
        if self._pointer is not None:
            self._on_pointer(self._pointer)  # another step is under it now

    def _on_pointer(self, place: QPointF) -> None:
        inside = self._box.sceneBoundingRect().contains(place)
        self._pointer = place if inside else None
        x = self._box.mapSceneToView(place).x() if inside else None
        self.point_at(x, place)
        self.pointed.emit(x)

    def _restyle(self) -> None:
        colours = tokens()
        self._canvas.setBackground(colours.raised)
        self._cursor.setPen(pg.mkPen(colours.outline, width=self._px(1.0)))
        self._spots.setPen(pg.mkPen(colours.raised, width=theme().font_scale))
        self._spots.setSize(7.0 * theme().font_scale)
        self._tip.restyle()
        self._box.restyle()
        height = self.fontMetrics().height()
        for side, title in (("left", self.y_title), ("bottom", self.x_title)):
            axis = self._plot.getAxis(side)
            axis.setPen(pg.mkPen(colours.outline if side == "left" else colours.border))
            axis.setTextPen(pg.mkPen(colours.muted))
            axis.setTickFont(font("caption"))
            axis.label.setFont(font("caption"))
            axis.setLabel(for_html(title), color=colours.muted)
            axis.setStyle(tickLength=0, tickTextOffset=6, maxTickLevel=0, hideOverlappingLabels=True)
        axis = self._plot.getAxis("left")
        axis.setWidth(self.fontMetrics().horizontalAdvance("0.0000") + 10 + (height if self.y_title else 0))
        self._plot.getAxis("bottom").setHeight(2 * height + 8)
        self._plot.showGrid(x=False, y=True, alpha=0.35)
        self._rebuild()
        self._redraw()
