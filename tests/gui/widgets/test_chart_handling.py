"""A chart under the mouse: its ticks, its limits, its readout and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt

from tunesmith_gui.widgets.metric_plot import Line, MetricPlot


@pytest.fixture
def plot(qtbot: Any) -> MetricPlot:
    plot = MetricPlot("Loss")
    qtbot.addWidget(plot)
    plot.resize(600, 300)
    plot.show()
    steps = np.arange(1.0, 61.0)
    plot.set_lines([Line("loss", steps, 1 / steps), Line("eval", np.array([30.0]), np.array([0.5]), "dots", 1)])
    return plot


def test_steps_have_no_fractions(plot: MetricPlot) -> None:
    plot._box.setXRange(1, 3, padding=0)
    axis = plot._plot.getAxis("bottom")
    ticks = [value for _spacing, values in axis.tickValues(1.0, 3.0, 600.0) for value in values]
    assert ticks
    assert all(float(value).is_integer() for value in ticks)


def test_no_panning_before_the_first_step(plot: MetricPlot) -> None:
    plot._box.translateBy(x=-50)
    assert plot._box.viewRange()[0][0] >= 0


def test_double_click_shows_everything_again(plot: MetricPlot, qtbot: Any) -> None:
    plot._box.setXRange(10, 20, padding=0)
    plot._on_zoomed()
    viewport = plot._canvas.viewport()
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=viewport.rect().center())
    qtbot.mouseDClick(viewport, Qt.MouseButton.LeftButton, pos=viewport.rect().center())
    qtbot.waitUntil(lambda: plot._box.viewRange()[0][1] >= 60, timeout=2000)


@pytest.mark.parametrize(("step", "told"), [(30, True), (50, False)])
def test_readout_names_only_the_evaluation_of_this_step(plot: MetricPlot, step: int, told: bool) -> None:
    said: list[str] = []
    plot.hovered.connect(said.append)
    plot._on_pointer(plot._box.mapViewToScene(QPointF(step, 0.5)))
    assert said[-1].startswith(f"step {step} ")
    assert ("eval" in said[-1]) is told
