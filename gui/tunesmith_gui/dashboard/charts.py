"""The Charts tab of a run: loss, device, learning rate, gradient norm, memory and the newest samples.

Importing this module imports pyqtgraph; the page does that on a worker thread.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QCheckBox, QGridLayout, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from tunesmith_core.source_losses import in_brief
from tunesmith_gui import tr
from tunesmith_gui.dashboard.chart_card import ChartCard, Scale
from tunesmith_gui.dashboard.chart_views import mouse_help
from tunesmith_gui.dashboard.device_card import DeviceCard
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.dashboard.reward_charts import (
    RewardCard,
    accuracy_card,
    accuracy_words,
    agreement_card,
    class_cards,
    kl_card,
    margin_card,
    margin_words,
    reward_card,
    round_cards,
    step_card,
)
from tunesmith_gui.dashboard.samples_list import SamplesList
from tunesmith_gui.models.metric_series import Floats, nearest, smooth
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.metric_plot import Line
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented
from tunesmith_gui.widgets.side_by_side import SideBySide

DESCRIPTION_EVERY_S = 30.0
_GIB = float(2**30)
_TWO_COLUMNS_FROM_PX = 680
_GRID = 6
"""Columns of the grid of small charts: two or three of them fill a row."""
_MOST_IN_ROW = 3
_MINUTE_S, _HOUR_S = 60.0, 3600.0


class LossCard(ChartCard):
    """The loss with its smoothing, its x axis and a logarithmic switch."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("Loss"), self.tr("Loss"), height_px=200, parent=parent)
        self._drawn: tuple[object, ...] = ()
        self._described_at = 0.0
        axes = (("step", self.tr("Step")), ("time", self.tr("Time")), ("tokens", self.tr("Tokens")))
        self._titles = dict(axes)
        self.axis = Segmented(self.tr("Horizontal axis"), axes, parent=self)
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setRange(0, 99)
        self.slider.setValue(60)
        self.slider.setFixedWidth(SPACE * 16)
        self.slider.setAccessibleName(self.tr("Smoothing"))
        guard_wheel(self.slider)
        self._weight = SafeLabel("0.60", role="caption", parent=self)
        self.log = QCheckBox(self.tr("Log scale"), self)
        self.log.setAccessibleName(self.tr("Logarithmic loss axis"))
        self.body.addWidget(SideBySide(self.axis, self._build_view_controls(), parent=self))
        self.sources = SafeLabel(tone="muted", wrap=True, parent=self)
        self.sources.hide()
        self.body.addWidget(self.sources)
        self._model: DashboardModel | None = None
        self.slider.valueChanged.connect(self._redraw)
        self.axis.changed.connect(self._redraw)
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
        show_all = button(self.tr("Show all"), self.plot.fit, kind="quiet", parent=holder)
        set_tip(show_all, mouse_help())
        row.addWidget(show_all)
        return holder

    def show_model(self, model: DashboardModel) -> None:
        """Draw the curves of a run when they changed."""
        if model is not self._model:
            self._model, self._drawn, self._described_at = model, (), 0.0
        words = in_brief(model.source_losses)
        self.sources.setText(tr.fill(self.tr("Held-out %1"), tr.core_text(words)) if words else "")
        self.sources.setVisible(words is not None)
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

    def _redraw(self, *_changed: object) -> None:
        model, weight = self._model, self.slider.value() / 100
        if model is None:
            return
        saved = [checkpoint.step for checkpoint in model.checkpoints]
        live = model.status.state.live
        state = (model.steps.revision, model.evals.revision, saved, live, model.status.total_steps, weight)
        if (*state, self.axis.value) == self._drawn:
            return
        self._drawn = (*state, self.axis.value)
        self._weight.setText(f"{weight:.2f}")
        scale = (
            time_scale(model) if self.axis.value == "time" else Scale(self.axis.value, self._titles[self.axis.value])
        )
        self.set_scale(scale, end=model.status.total_steps if live and scale.column == "step" else 0.0)
        losses = model.steps.column("loss")
        curve = smooth(losses, weight) if weight else losses
        x = scale.places(model.steps.column(scale.column))
        lines = [Line(self.tr("loss"), x, losses, "raw" if weight else "line", filled=not weight)]
        if weight:
            lines.append(Line(self.tr("smoothed"), x, curve, "smooth", filled=True))
        if len(model.steps):
            lines += self._marks(model, x, curve, np.array(saved, dtype=np.float64))
        self.plot.set_lines(lines)

    def _marks(self, model: DashboardModel, x: Floats, curve: Floats, saved: Floats) -> list[Line]:
        """Evaluations, the best of them, and checkpoints on top. Each stands at its step, whatever the axis counts."""
        marks = []
        if len(model.evals):
            losses, steps = model.evals.column("loss"), model.evals.column("step")
            at = steps if self.scale.column == "step" else x[self._rows(model, steps)]
            marks.append(Line(self.tr("evaluation"), at, losses, "dots", 1))
            if np.isfinite(losses).sum() > 1:
                best = [int(np.nanargmin(losses))]
                marks.append(Line(self.tr("best evaluation"), at[best], losses[best], "best", 1))
        if len(saved):
            rows = self._rows(model, saved)
            marks.append(Line(self.tr("checkpoint"), x[rows], curve[rows], "saved"))
        return marks

    def _rows(self, model: DashboardModel, steps: Floats) -> NDArray[np.intp]:
        return np.maximum(np.searchsorted(model.steps.column("step"), steps, side="right") - 1, 0)


def time_scale(model: DashboardModel) -> Scale:
    """The time axis of a run: from its first event, in a unit that suits its length."""
    lasted_s = model.known_s
    if lasted_s < 2 * _MINUTE_S:
        return Scale("t", tr.translate("Charts", "Time (s)"), model.began_at)
    if lasted_s < 2 * _HOUR_S:
        return Scale("t", tr.translate("Charts", "Time (min)"), model.began_at, _MINUTE_S)
    return Scale("t", tr.translate("Charts", "Time (h)"), model.began_at, _HOUR_S)


class DashboardCharts(QWidget):
    """All cards of the Charts tab; two columns where there is room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(SPACE * 2)
        self.loss = LossCard(self)
        self.device = DeviceCard(self)
        self.rate = ChartCard(self.tr("Learning rate"), "", height_px=140, parent=self)
        self.from_zero = SafeLabel(
            self.tr("The warm-up begins at 0, so the first step changes nothing."),
            role="caption",
            tone="muted",
            wrap=True,
            parent=self.rate,
        )
        self.from_zero.hide()
        self.rate.body.addWidget(self.from_zero)
        self.norm = ChartCard(self.tr("Gradient norm"), "", height_px=140, parent=self)
        self.memory = ChartCard(self.tr("Memory"), self.tr("GiB"), height_px=140, parent=self)
        self.rewards: tuple[RewardCard, ...] = (margin_card(self), accuracy_card(self))
        self.kl, self.classes, self.agreement = kl_card(self), class_cards(self), agreement_card(self)
        self.reward, self.rounds, self.right_steps = reward_card(self), round_cards(self), step_card(self)
        for card in self._cards:
            card.plot.pointed.connect(partial(self._point_others, card))
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
        self._arranged: tuple[object, ...] = ()
        self._num_columns = 2
        self._model: DashboardModel | None = None
        self._drawn: dict[str, tuple[object, ...]] = {}
        self._main: ChartCard = self.loss
        self._more: tuple[RewardCard, ...] = ()
        self._arrange(2)

    @property
    def _cards(self) -> tuple[ChartCard, ...]:
        of_method = (self.kl, self.agreement, self.right_steps, *self.classes, *self.rounds)
        return self.loss, self.reward, *self.rewards, *of_method, self.rate, self.norm, self.memory

    def show_model(self, model: DashboardModel) -> None:
        """Bring every card up to date; what did not change is not drawn again."""
        is_other = model is not self._model
        if is_other:
            self._model, self._drawn = model, {}
        status = model.status
        for card in self._cards:
            card.plot.set_live(status.state.live)
        self.loss.show_model(model)
        self.device.show_model(model)
        self.samples_card.setVisible(model.writes)
        self.samples.set_samples(model.written(), live=model.status.state.live)
        steps = model.steps.column("step")
        end = status.total_steps if status.state.live else 0
        if self._is_news("steps", model.steps.revision, end):
            for card in (self.rate, self.norm):
                card.set_scale(card.scale, end)
            rates = model.steps.column("lr")
            self.rate.plot.set_lines([Line(self.tr("learning rate"), steps, rates, "line", 0)])
            self.from_zero.setVisible(bool(len(rates) and steps[0] == 1 and rates[0] == 0))
            norms = model.steps.column("grad_norm")
            self.norm.plot.set_lines([Line(self.tr("gradient norm"), steps, norms, "line", 2)])
        self._choose_cards(model)
        if self._more and self._is_news("rewards", model.steps.revision, model.evals.revision, end):
            for card in (self.reward, *self._more):
                card.show_model(model)
        if self._is_news("memory", model.memory.revision):
            self.memory.set_scale(time_scale(model))
            self.memory.plot.set_lines(self._memory_lines(model))
        if is_other:
            for card in self._cards:
                card.plot.fit()

    def _choose_cards(self, model: DashboardModel) -> None:
        """Show what says something about this run: of one that learns from rewards these, in place of its loss."""
        more: tuple[RewardCard, ...] = self.rewards if model.has_pairs else ()
        if model.has_labels:
            more = (*self.rewards, self.kl)
        elif model.has_classes:
            more = self.classes
        elif model.has_steps:
            more = (self.right_steps, *self.classes[1:])
        elif model.has_teacher:
            more = (self.agreement,)
        elif model.has_rewards:
            more = tuple(card for card in self.rounds if card.is_told_by(model))
        if more != self._more:
            margin, accuracy = self.rewards
            margin.describe(margin_words(model.has_labels))
            accuracy.describe(accuracy_words(model.has_labels))
        self._main, self._more = self.reward if model.has_rewards else self.loss, more
        self._arrange(self._num_columns)

    def chart_under_focus(self) -> ChartCard:
        """The chart that F11 enlarges: the one with the focus, else the main one."""
        focused = self.focusWidget()
        for card in self._cards[1:]:
            if focused is not None and focused.hasFocus() and card.isAncestorOf(focused):
                return card
        return self._main

    def _point_others(self, source: ChartCard, x: float | None) -> None:
        """Mark the step under the pointer in the other charts too."""
        steps = self._model.steps if self._model is not None else None
        for card in self._cards:
            if card is source:
                continue
            if x is None or steps is None or not len(steps):
                card.plot.point_at(None)
            else:
                row = nearest(steps.column(source.scale.column), source.scale.value(x))
                card.plot.point_at(card.scale.places(float(steps.column(card.scale.column)[row])))

    def _is_news(self, name: str, *state: object) -> bool:
        if self._drawn.get(name) == state:
            return False
        self._drawn[name] = state
        return True

    def _memory_lines(self, model: DashboardModel) -> list[Line]:
        series = model.memory
        x = self.memory.scale.places(series.column("t"))
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
        self._num_columns = columns
        if (columns, self._main, self._more) == self._arranged:
            return
        self._arranged = (columns, self._main, self._more)
        if columns == 2:
            self._grid.addWidget(self._main, 0, 0)
            self._grid.addWidget(self._side, 0, 1)
            self._grid.addWidget(self._small, 1, 0, 1, 2)
        else:
            for place, widget in enumerate((self._main, self._side, self._small)):
                self._grid.addWidget(widget, place, 0, 1, 2)
        self._grid.setColumnStretch(0, 7)
        self._grid.setColumnStretch(1, 3)
        self._grid.setRowStretch(0, 3)
        self._grid.setRowStretch(1, 2)
        # Two pairs rather than three and one.
        length = 2 if len(self._more) == 4 else _MOST_IN_ROW
        rows: list[tuple[ChartCard, ...]] = [
            self._more[start : start + length] for start in range(0, len(self._more), length)
        ]
        rows.append((self.rate, self.norm, self.memory))
        cards = [(row, place, card) for row, shown in enumerate(rows) for place, card in enumerate(shown)]
        for number, (row, place, small) in enumerate(cards):
            span = _GRID // len(rows[row])
            self._row.addWidget(small, *((row, place * span, 1, span) if columns == 2 else (number, 0, 1, _GRID)))
        # Behind the layout, which hides what it takes in for the first time.
        for card in (self.loss, self.reward):
            card.setVisible(card is self._main)
        for card in (*self.rewards, self.kl, self.agreement, self.right_steps, *self.classes, *self.rounds):
            card.setVisible(card in self._more)
