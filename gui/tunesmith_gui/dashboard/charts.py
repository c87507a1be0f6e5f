"""The Charts tab of a run: loss, device, learning rate, gradient norm, memory and the newest samples.

Importing this module imports pyqtgraph; the page does that on a worker thread.
"""

from __future__ import annotations

import time

import numpy as np
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QCheckBox, QGridLayout, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from tunesmith_gui import tr
from tunesmith_gui.dashboard.chart_card import ChartCard
from tunesmith_gui.dashboard.device_card import DeviceCard
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.dashboard.samples_list import SamplesList
from tunesmith_gui.models.metric_series import Floats, MetricSeries, smooth
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.metric_plot import Line, MetricPlot
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented
from tunesmith_gui.widgets.side_by_side import SideBySide

DESCRIPTION_EVERY_S = 30.0
_GIB = float(2**30)
_TWO_COLUMNS_FROM_PX = 680
_SECOND_S, _MINUTE_S, _HOUR_S = 1.0, 60.0, 3600.0
_TIME_UNITS = ((2 * _MINUTE_S, _SECOND_S), (2 * _HOUR_S, _MINUTE_S))
"""Runs shorter than the first number are shown in the second, longer ones in hours."""


class LossCard(ChartCard):
    """The loss with its smoothing, its x axis and a logarithmic switch."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("Loss"), x_word="step", height_px=200, parent=parent)
        self._drawn: tuple[object, ...] = ()
        self._described_at = 0.0
        axes = (("step", self.tr("Step")), ("time", self.tr("Time")), ("tokens", self.tr("Tokens")))
        self.axis = Segmented(self.tr("Horizontal axis"), axes, parent=self)
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setRange(0, 99)
        self.slider.setValue(60)
        self.slider.setFixedWidth(SPACE * 16)
        self.slider.setAccessibleName(self.tr("Smoothing"))
        guard_wheel(self.slider)
        self._weight = SafeLabel("0.60", role="caption", parent=self)
        self.log = QCheckBox(self.tr("Log"), self)
        self.log.setAccessibleName(self.tr("Logarithmic loss axis"))
        self.body.addWidget(SideBySide(self.axis, self._build_view_controls(), parent=self))
        self._model: DashboardModel | None = None
        self.slider.valueChanged.connect(self._redraw)
        self.axis.changed.connect(self._change_axis)
        self.log.toggled.connect(self.plot.set_log)

    def _build_view_controls(self) -> QWidget:
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        row.addWidget(SafeLabel(self.tr("Smoothing"), role="caption", tone="muted", parent=holder))
        row.addWidget(self.slider)
        row.addWidget(self._weight)
        row.addWidget(self.log)
        row.addWidget(button(self.tr("Fit"), self.plot.fit, kind="quiet", parent=holder))
        return holder

    def show_model(self, model: DashboardModel) -> None:
        """Draw the curves of a run when they changed."""
        self._model = model
        self._redraw()
        if time.monotonic() - self._described_at > DESCRIPTION_EVERY_S:
            self._described_at = time.monotonic()
            self.plot.setAccessibleDescription(self.describe(model))

    def describe(self, model: DashboardModel) -> str:
        """The curve in one sentence."""
        change = model.loss_change()
        if change is None:
            return self.tr("No loss yet")
        first, last = change
        text = (
            self.tr("Loss %1, down from %2, step %3 of %4")
            if last < first
            else self.tr("Loss %1, up from %2, step %3 of %4")
        )
        total = model.status.total_steps or "?"
        return tr.fill(text, tr.number(last, 2), tr.number(first, 2), model.status.step, total)

    def _change_axis(self, _axis: str) -> None:
        self._redraw()
        self.plot.fit()

    def _redraw(self, *_changed: object) -> None:
        model, weight = self._model, self.slider.value() / 100
        if model is None:
            return
        state = (id(model), model.steps.revision, model.evals.revision, weight, self.axis.value)
        if state == self._drawn:
            return
        self._drawn = state
        self._weight.setText(f"{weight:.2f}")
        losses = model.steps.column("loss")
        times = _Time(model) if self.axis.value == "time" else None
        x = self._x(times, model.steps)
        lines = [Line(self.tr("loss"), x, losses, "raw" if weight else "line")]
        if weight:
            lines.append(Line(self.tr("smoothed"), x, smooth(losses, weight), "smooth"))
        if len(model.evals):
            lines.append(Line(self.tr("eval"), self._x(times, model.evals), model.evals.column("loss"), "dots", 1))
        if times is not None:
            times.name_axis(self.plot)
        else:
            self.plot.set_x(self.tr("step") if self.axis.value == "step" else self.tr("tokens"))
        self.plot.set_lines(lines)

    def _x(self, times: _Time | None, series: MetricSeries) -> Floats:
        return series.column(self.axis.value) if times is None else times.since_start(series.column("t"))


class _Time:
    """The time axis of a run: from its first event, in a unit that suits its length."""

    def __init__(self, model: DashboardModel) -> None:
        self._began_at = model.began_at
        lasted_s = model.known_s
        self._unit_s = next((unit_s for limit_s, unit_s in _TIME_UNITS if lasted_s < limit_s), _HOUR_S)

    def since_start(self, times: Floats) -> Floats:
        """Times since 1970 as places on the axis."""
        return (times - self._began_at) / self._unit_s

    def name_axis(self, plot: MetricPlot) -> None:
        """Tell a chart what its axis counts."""
        if self._unit_s == _SECOND_S:
            plot.set_x(tr.translate("Charts", "second"), ticks=tr.translate("Duration", "%1 s"), start=0.0)
        elif self._unit_s == _MINUTE_S:
            plot.set_x(tr.translate("Charts", "minute"), ticks=tr.translate("Duration", "%1 min"), start=0.0)
        else:
            plot.set_x(tr.translate("Charts", "hour"), ticks=tr.translate("Duration", "%1 h"), start=0.0)


class DashboardCharts(QWidget):
    """All cards of the Charts tab; two columns where there is room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(SPACE * 2)
        self.loss = LossCard(self)
        self.device = DeviceCard(self)
        self.rate = ChartCard(self.tr("Learning rate"), x_word=self.tr("step"), height_px=120, parent=self)
        self.norm = ChartCard(self.tr("Gradient norm"), x_word=self.tr("step"), height_px=120, parent=self)
        self.memory = ChartCard(self.tr("Memory, GiB"), x_word=self.tr("minute"), height_px=120, parent=self)
        self.samples_card = Card(self.tr("Samples"), parent=self)
        self.samples = SamplesList(max_shown=1, short=True, parent=self.samples_card)
        self.samples_card.body.addWidget(self.samples)
        self.samples_card.body.addStretch(1)
        self._small = QWidget(self)
        self._row = QGridLayout(self._small)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(SPACE * 2)
        self._side = QWidget(self)
        side = QVBoxLayout(self._side)
        side.setContentsMargins(0, 0, 0, 0)
        side.setSpacing(SPACE * 2)
        side.addWidget(self.device)
        side.addWidget(self.samples_card, 1)
        self._columns = 0
        self._drawn: dict[str, tuple[int, int]] = {}
        self._arrange(2)

    def show_model(self, model: DashboardModel) -> None:
        """Bring every card up to date; what did not change is not drawn again."""
        self.loss.show_model(model)
        self.device.show_model(model)
        self.samples.set_samples(model.samples, live=model.status.state.live)
        steps = model.steps.column("step")
        if self._is_news("steps", model, model.steps.revision):
            self.rate.plot.set_lines([Line(self.tr("learning rate"), steps, model.steps.column("lr"), "line", 0)])
            norms = model.steps.column("grad_norm")
            self.norm.plot.set_lines([Line(self.tr("gradient norm"), steps, norms, "line", 2)])
        if self._is_news("memory", model, model.memory.revision):
            self.memory.plot.set_lines(self._memory_lines(model))

    def chart_under_focus(self) -> ChartCard:
        """The chart that F11 enlarges: the one with the focus, else the loss."""
        focused = self.focusWidget()
        for card in (self.rate, self.norm, self.memory):
            if focused is not None and focused.hasFocus() and card.isAncestorOf(focused):
                return card
        return self.loss

    def _is_news(self, name: str, model: DashboardModel, revision: int) -> bool:
        state = (id(model), revision)
        if self._drawn.get(name) == state:
            return False
        self._drawn[name] = state
        return True

    def _memory_lines(self, model: DashboardModel) -> list[Line]:
        series, times = model.memory, _Time(model)
        x = times.since_start(series.column("t"))
        times.name_axis(self.memory.plot)
        named = (
            ("device_bytes", self.tr("VRAM")),
            ("process_bytes", self.tr("process")),
        )
        lines = []
        for colour, (column, name) in enumerate(named):
            values = series.column(column)
            if np.isfinite(values).any():
                lines.append(Line(name, x, values / _GIB, "line", colour, dashed=True))
        return lines

    def resizeEvent(self, event: QResizeEvent) -> None:
        """One column when two would be too narrow at the present font size."""
        super().resizeEvent(event)
        room = self.width() / theme().font_scale
        self._arrange(2 if room >= _TWO_COLUMNS_FROM_PX else 1)

    def minimumSizeHint(self) -> QSize:
        """The width of one column, so that a scroll area may make this narrow."""
        return QSize(SPACE * 30, super().minimumSizeHint().height())

    def _arrange(self, columns: int) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        small = (self.rate, self.norm, self.memory)
        if columns == 2:
            self._grid.addWidget(self.loss, 0, 0)
            self._grid.addWidget(self._side, 0, 1)
            self._grid.addWidget(self._small, 1, 0, 1, 2)
        else:
            for place, widget in enumerate((self.loss, self._side, self._small)):
                self._grid.addWidget(widget, place, 0, 1, 2)
        self._grid.setColumnStretch(0, 7)
        self._grid.setColumnStretch(1, 3)
        self._grid.setRowStretch(0, 3)
        self._grid.setRowStretch(1, 2)
        for place, card in enumerate(small):
            self._row.addWidget(card, *((0, place) if columns == 2 else (place, 0)))
