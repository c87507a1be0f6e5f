"""A chart under the mouse: zoom and the way back, its limits, its tool tip, its legend, and no data."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from tunesmith_gui.theme import Scheme, theme, tokens
from tunesmith_gui.widgets.metric_plot import Line, MetricPlot
from tunesmith_gui.widgets.plot_parts import Axis

PACE_S = 0.015
"""pyqtgraph leaves out moves of the mouse that follow each other faster than 100 times a second."""
STEPS = np.arange(1.0, 61.0)


def curves(num_steps: int = 60) -> list[Line]:
    steps = np.arange(1.0, num_steps + 1.0)
    return [Line("loss", steps, 1 / steps), Line("evaluation", np.array([30.0]), np.array([0.5]), "dots", 1)]


@pytest.fixture
def plot(qtbot: Any) -> MetricPlot:
    plot = MetricPlot("Loss")
    qtbot.addWidget(plot)
    plot.resize(600, 300)
    plot.show()
    plot.set_lines(curves())
    qtbot.waitExposed(plot)
    return plot


def x_range(plot: MetricPlot) -> tuple[float, float]:
    return tuple(plot._box.viewRange()[0])


def place(plot: MetricPlot, x: float, y: float = 0.5) -> QPoint:
    return plot._canvas.mapFromScene(plot._box.mapViewToScene(QPointF(x, y)))


def move(
    plot: MetricPlot,
    at: QPoint,
    buttons: Qt.MouseButton = Qt.MouseButton.NoButton,
    keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
) -> None:
    viewport = plot._canvas.viewport()
    none = Qt.MouseButton.NoButton
    event = QMouseEvent(QEvent.Type.MouseMove, QPointF(at), QPointF(viewport.mapToGlobal(at)), none, buttons, keys)
    time.sleep(PACE_S)
    QApplication.sendEvent(viewport, event)


def drag(
    plot: MetricPlot, start: QPoint, end: QPoint, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    viewport, left = plot._canvas.viewport(), Qt.MouseButton.LeftButton
    QTest.mousePress(viewport, left, keys, start)
    move(plot, (start + end) / 2, left, keys)
    move(plot, end, left, keys)
    QTest.mouseRelease(viewport, left, keys, end)


def wheel(plot: MetricPlot, keys: Qt.KeyboardModifier) -> QWheelEvent:
    viewport = plot._canvas.viewport()
    at = viewport.rect().center()
    event = QWheelEvent(
        QPointF(at),
        QPointF(viewport.mapToGlobal(at)),
        QPoint(),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        keys,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(viewport, event)
    return event


def told(plot: MetricPlot) -> str:
    return plot._tip.textItem.toPlainText() if plot._tip.isVisible() else ""


def test_steps_have_no_fractions(plot: MetricPlot) -> None:
    plot._box.setXRange(1, 3, padding=0)
    axis = plot._plot.getAxis("bottom")
    ticks = [value for _spacing, values in axis.tickValues(1.0, 3.0, 600.0) for value in values]
    assert ticks
    assert all(float(value).is_integer() for value in ticks)


def test_no_panning_before_the_first_step_or_after_the_last(plot: MetricPlot) -> None:
    plot._box.translateBy(x=-50)
    assert x_range(plot)[0] >= -1.2
    plot._box.translateBy(x=500)
    assert x_range(plot)[1] <= 62


def test_wheel_never_zooms_between_two_steps(plot: MetricPlot) -> None:
    for _ in range(100):
        wheel(plot, Qt.KeyboardModifier.ControlModifier)
    left, right = x_range(plot)
    assert right - left == pytest.approx(2)


def test_dragging_zooms_into_the_box_and_a_double_click_shows_everything(plot: MetricPlot, qtbot: Any) -> None:
    drag(plot, place(plot, 10, 0.8), place(plot, 20, 0.2))
    assert np.allclose(plot._box.viewRange(), [(10, 20), (0.2, 0.8)], atol=0.3)
    viewport = plot._canvas.viewport()
    QTest.mouseDClick(viewport, Qt.MouseButton.LeftButton, pos=viewport.rect().center())
    assert -1.3 < x_range(plot)[0] < 0, "the symbol of a first point at 0 is whole"
    assert x_range(plot)[1] >= 60


def test_a_flat_box_zooms_horizontally_only(plot: MetricPlot) -> None:
    before = plot._box.viewRange()[1]
    drag(plot, place(plot, 10), place(plot, 20))
    assert np.allclose(x_range(plot), (10, 20), atol=0.3)
    assert plot._box.viewRange()[1] == before


def test_shift_and_drag_moves_a_zoomed_chart(plot: MetricPlot) -> None:
    drag(plot, place(plot, 10), place(plot, 20))
    drag(plot, place(plot, 18), place(plot, 12), Qt.KeyboardModifier.ShiftModifier)
    left, right = x_range(plot)
    assert right - left == pytest.approx(10, abs=0.5)
    assert left == pytest.approx(16, abs=1.5)


def test_zoomed_chart_says_so_and_its_chip_follows_again(plot: MetricPlot) -> None:
    plot.set_live(True)
    assert not plot._chip.isVisible()
    drag(plot, place(plot, 10), place(plot, 20))
    plot.set_lines(curves(100))
    assert np.allclose(x_range(plot), (10, 20), atol=0.3)
    assert plot._chip.isVisible()
    assert plot._chip.text() == "Follow the run"
    QTest.mouseClick(plot._chip, Qt.MouseButton.LeftButton)
    assert not plot._chip.isVisible()
    assert x_range(plot)[1] >= 100
    plot.set_lines(curves(200))
    assert x_range(plot)[1] >= 200


def test_wheel_scrolls_the_page_until_the_chart_is_clicked(plot: MetricPlot, qtbot: Any) -> None:
    whole, height = x_range(plot), plot._box.viewRange()[1]
    assert not wheel(plot, Qt.KeyboardModifier.NoModifier).isAccepted()
    assert x_range(plot) == whole
    assert wheel(plot, Qt.KeyboardModifier.ControlModifier).isAccepted()
    with_ctrl = x_range(plot)
    assert with_ctrl[0] > whole[0]
    assert with_ctrl[1] < whole[1]
    plot.activateWindow()
    QTest.mouseClick(plot._canvas.viewport(), Qt.MouseButton.LeftButton, pos=place(plot, 30))
    qtbot.waitUntil(plot._canvas.hasFocus, timeout=2000)
    assert wheel(plot, Qt.KeyboardModifier.NoModifier).isAccepted()
    assert x_range(plot)[0] > with_ctrl[0]
    assert plot._box.viewRange()[1] == height


@pytest.mark.parametrize(("step", "evaluation"), [(10, ""), (30, "0.5"), (50, "0.5 (at 30)")])
def test_tool_tip_tells_the_last_evaluation_and_its_step(plot: MetricPlot, step: int, evaluation: str) -> None:
    move(plot, place(plot, step))
    lines = [line.strip("● \xa0") for line in told(plot).split("\n")][1:]
    assert lines[:2] == ["Step", str(step)]
    assert [words for words in lines if words.startswith("0.5")] == ([evaluation] if evaluation else [])
    assert ("evaluation" in told(plot)) is bool(evaluation)


@pytest.mark.parametrize("at", [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_tool_tip_is_whole_in_every_corner_and_leaves_with_the_pointer(
    plot: MetricPlot, at: tuple[float, float]
) -> None:
    area = plot._box.sceneBoundingRect().adjusted(2, 2, -2, -2)
    corner = QPointF(area.left() + at[0] * area.width(), area.top() + at[1] * area.height())
    move(plot, plot._canvas.mapFromScene(corner))
    assert told(plot)
    assert plot._box.sceneBoundingRect().contains(plot._tip.sceneBoundingRect())
    QApplication.sendEvent(plot._canvas.viewport(), QEvent(QEvent.Type.Leave))
    assert not told(plot)
    assert not plot._cursor.isVisible()


def test_tool_tip_tells_what_is_under_a_still_pointer_after_a_zoom_and_keeps_off_the_chip(plot: MetricPlot) -> None:
    move(plot, place(plot, 50))
    plot._box.showAxRect(plot._box.viewRect().adjusted(5, 0, -40, 0))
    shown = plot._box.mapSceneToView(plot._pointer).x()
    assert shown < 30
    assert told(plot).split("\n")[2].strip(" \xa0") == str(round(shown))
    corner = plot._box.sceneBoundingRect().topRight()
    move(plot, plot._canvas.mapFromScene(corner + QPointF(-3, 3)))
    tip = plot._canvas.mapFromScene(plot._tip.sceneBoundingRect()).boundingRect()
    assert not tip.intersects(plot._chip.geometry())


def test_hovering_moves_nothing(plot: MetricPlot) -> None:
    before = plot._box.sceneBoundingRect(), plot.sizeHint(), plot.minimumSizeHint()
    for step in (1, 30, 59):
        move(plot, place(plot, step))
        assert (plot._box.sceneBoundingRect(), plot.sizeHint(), plot.minimumSizeHint()) == before


def test_names_from_outside_are_no_markup(plot: MetricPlot) -> None:
    plot.set_lines([Line("<b>run</b>", STEPS, STEPS), Line("b", STEPS, STEPS)])
    move(plot, place(plot, 30, 30))
    assert "<b>run</b>" in told(plot)


def test_legend_names_the_lines_and_hides_one(plot: MetricPlot) -> None:
    labels = [label.text for _sample, label in plot._legend.items]
    assert labels == ["loss", "evaluation"]
    sample = plot._legend.items[0][0]
    at = plot._canvas.mapFromScene(sample.mapToScene(sample.boundingRect().center()))
    QTest.mouseClick(plot._canvas.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert not plot._items[0].isVisible()
    plot.set_lines([*curves(), Line("best", STEPS[:1], STEPS[:1], "best")])
    assert [item.isVisible() for item in plot._items] == [False, True, True]


@pytest.mark.parametrize("lines", [[], [Line("loss", STEPS[:0], STEPS[:0])], [Line("loss", STEPS, STEPS * np.nan)]])
def test_chart_without_data_has_no_axes_and_none_of_before(plot: MetricPlot, lines: list[Line]) -> None:
    plot.set_lines(lines)
    assert not plot._canvas.isVisible()
    assert plot._empty.isVisible()
    assert plot._empty.text() == "No data"
    plot.set_live(True)
    assert plot._empty.text() == "No data yet"
    plot.set_lines(curves())
    assert plot._canvas.isVisible()
    assert not plot._empty.isVisible()


def test_axis_is_named_and_reaches_the_planned_end(plot: MetricPlot) -> None:
    plot.set_x("Step", end=465)
    plot.set_lines(curves())
    assert x_range(plot)[1] >= 465
    plot.set_x("Time (min)", whole=False)
    assert x_range(plot)[1] < 100
    assert plot._plot.getAxis("bottom").label.toPlainText().strip() == "Time (min)"


def test_small_numbers_are_not_counted_in_thousandths(qtbot: Any) -> None:
    plot = MetricPlot("Memory", y_title="GiB")
    qtbot.addWidget(plot)
    plot.set_lines([Line("VRAM", STEPS, STEPS / 1e5)])
    plot.show()
    qtbot.waitExposed(plot)
    assert plot._plot.getAxis("left").label.toPlainText().strip() == "GiB"


@pytest.fixture
def appearance() -> Iterator[Callable[[float], None]]:
    yield lambda scale: theme().set_appearance(Scheme.LIGHT, scale)
    theme().set_appearance(Scheme.LIGHT, 1.0)


def test_lines_grow_with_the_text_and_with_the_pixels(
    plot: MetricPlot, appearance: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def widths() -> tuple[float, float]:
        line, dots = plot._items
        return line.opts["pen"].widthF(), dots.opts["symbolSize"]

    thin, small = widths()
    appearance(2.0)
    assert widths() == (2 * thin, 2 * small)
    appearance(1.0)
    monkeypatch.setattr(plot, "devicePixelRatioF", lambda: 2.0)
    QApplication.sendEvent(plot, QEvent(QEvent.Type.DevicePixelRatioChange))
    assert widths() == (2 * thin, small)  # a symbol's size is in logical pixels already


def test_ground_under_a_line_follows_the_data(plot: MetricPlot) -> None:
    for top in (2.0, 8.0):
        plot.set_lines([Line("loss", STEPS, np.linspace(top, 1.0, 60), filled=True)])
        item = plot._items[0]
        gradient = item.opts["fillBrush"].gradient()
        assert gradient.start().y() == top
        assert gradient.finalStop().y() == item.opts["fillLevel"] < 1.0


def test_wider_chart_shows_more_of_a_run_that_has_ended(plot: MetricPlot, qtbot: Any) -> None:
    steps = np.arange(100_000.0)
    plot.set_lines([Line("loss", steps, np.sin(steps))])
    before = len(plot._drawn[0])
    plot.resize(1200, 300)
    qtbot.waitUntil(lambda: len(plot._drawn[0]) > 1.5 * before, timeout=2000)


def test_copied_image_holds_no_tool_tip_and_no_chip(plot: MetricPlot) -> None:
    drag(plot, place(plot, 10), place(plot, 40))
    QApplication.sendEvent(plot._canvas.viewport(), QEvent(QEvent.Type.Leave))
    plot._chip.hide()
    plain = plot.image()
    plot._chip.show()
    move(plot, place(plot, 30))
    assert plot.image() == plain
    assert plot._chip.isVisible()


def test_evaluations_that_are_no_numbers_are_left_out_quietly(
    plot: MetricPlot, recwarn: pytest.WarningsRecorder
) -> None:
    plot.set_lines([Line("loss", STEPS, STEPS), Line("evaluation", STEPS[:2], STEPS[:2] * np.nan, "dots", 1)])
    plot.grab()
    move(plot, place(plot, 2, 30))
    assert "nan" in told(plot)
    assert [str(each.message) for each in recwarn] == []


def inked(plot: MetricPlot) -> int:
    """The number of pixels of the chart in the first color of the palette."""
    image, ink = plot.image(), QColor(tokens().chart[0])
    return sum(image.pixelColor(x, y) == ink for x in range(image.width()) for y in range(image.height()))


def test_a_single_point_is_drawn(plot: MetricPlot) -> None:
    plot.set_lines([Line("learning rate", np.array([1.0]), np.array([0.5]))])
    assert inked(plot) > 4


def test_tool_tip_tells_raw_and_smoothed_apart(plot: MetricPlot) -> None:
    plot.set_lines([Line("loss", STEPS, 1 / STEPS, "raw"), Line("smoothed", STEPS, 1 / STEPS, "smooth")])
    move(plot, place(plot, 30))
    inks = re.findall(r"color:(#\w+)", plot._tip.textItem.toHtml())
    assert len(set(inks[-2:])) == 2


def test_a_checkpoint_leaves_the_evaluation_under_it_in_sight(plot: MetricPlot) -> None:
    at = np.array([30.0])
    plot.set_lines([Line("loss", STEPS, 1 / STEPS), Line("best", at, at, "best", 1), Line("saved", at, at, "saved")])
    best, saved = plot._items[1:]
    assert saved.opts["symbolBrush"] is None
    assert saved.opts["symbolSize"] < best.opts["symbolSize"]


@pytest.mark.parametrize(
    ("values", "spacing", "labels"),
    [
        ([13.28, 13.2805, 13.281], 0.0005, ["13.2800", "13.2805", "13.2810"]),
        ([1.0, 2.0], 1.0, ["1", "2"]),
        ([100_000.0, 100_200.0], 200.0, ["100k", "100.2k"]),
    ],
)
def test_numbers_of_an_axis_differ(qapp: QApplication, values: list[float], spacing: float, labels: list[str]) -> None:
    assert qapp
    assert Axis("left").tickStrings(values, 1.0, spacing) == labels
