"""The charts of a run's page together: one crosshair, one run at a time, marks at their steps."""

from __future__ import annotations

import time
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QWidget

from tests.gui.conftest import settle
from tests.gui.run_folders import make_run
from tunesmith_core.protocol import Event
from tunesmith_gui.dashboard.charts import ChartCard, DashboardCharts, LossCard
from tunesmith_gui.dashboard.model import DashboardModel, pack


def run_of(num_steps: int, total: int, *, ended: bool = False) -> DashboardModel:
    events = [Event(1, 100.0, "hello", {"resumed_from_step": 0}), Event(2, 100.0, "setup", {"total_steps": total})]
    events.append(Event(3, 100.0, "phase", {"name": "training", "done": 0, "total": total, "unit": "step"}))
    for step in range(1, num_steps + 1):
        t = 100.0 + 2 * step
        data = {"step": step, "loss": 3.0 - step / total, "lr": 1e-4, "grad_norm": 0.5, "tokens": step * 512}
        events.append(Event(len(events) + 1, t, "step", data))
        events.append(Event(len(events) + 1, t, "gpu", {"reserved_bytes": 2**30, "process_bytes": 2**29}))
        if step % 10 == 0:
            # What an evaluation says arrives long after its step.
            events.append(Event(len(events) + 1, t + 1.9, "eval", {"step": step, "loss": 2.0 + (step > 10)}))
            events.append(Event(len(events) + 1, t + 1.9, "checkpoint", {"step": step, "path": "c", "bytes": 1}))
    if ended:
        events.append(Event(len(events) + 1, 100.0 + 2 * num_steps + 2, "result", {"status": "finished"}))
    model = DashboardModel()
    model.apply(pack(events))
    return model


@pytest.fixture
def charts(qtbot: Any) -> DashboardCharts:
    charts = DashboardCharts()
    qtbot.addWidget(charts)
    charts.resize(1000, 700)
    charts.show()
    qtbot.waitExposed(charts)
    return charts


def hover(card: ChartCard, x: float) -> None:
    plot = card.plot
    (low, high) = plot._box.viewRange()[1]
    at = plot._box.mapViewToScene(QPointF(x, (low + high) / 2))
    viewport = plot._canvas.viewport()
    none = Qt.MouseButton.NoButton
    event = QMouseEvent(
        QEvent.Type.MouseMove, at, QPointF(viewport.mapToGlobal(at)), none, none, Qt.KeyboardModifier.NoModifier
    )
    time.sleep(0.015)  # pyqtgraph leaves out moves that follow each other faster than 100 times a second
    QApplication.sendEvent(viewport, event)


def told(card: ChartCard) -> list[str]:
    tip = card.plot._tip
    return [line.strip(" ●\xa0") for line in tip.textItem.toPlainText().split("\n")][1:] if tip.isVisible() else []


def marked(card: ChartCard) -> float:
    return card.plot._cursor.value() if card.plot._cursor.isVisible() else -1.0


@pytest.mark.parametrize("axis", ["step", "time", "tokens"])
def test_one_step_is_marked_in_all_charts(charts: DashboardCharts, axis: str) -> None:
    charts.loss.axis.set_value(axis)
    charts.show_model(run_of(40, 60))
    unit = {"step": 1, "time": 2, "tokens": 512}[axis]
    hover(charts.rate, 25)
    assert told(charts.rate)[:2] == ["Step", "25"]
    assert [marked(card) for card in (charts.rate, charts.norm, charts.loss, charts.memory)] == [25, 25, 25 * unit, 50]
    assert told(charts.norm)[:2] == ["gradient norm", "0.5"]
    hover(charts.loss, 12 * unit)
    assert [marked(card) for card in (charts.rate, charts.norm, charts.loss, charts.memory)] == [12, 12, 12 * unit, 24]
    assert told(charts.memory)[:2] == ["VRAM", "1"]
    QApplication.sendEvent(charts.loss.plot._canvas.viewport(), QEvent(QEvent.Type.Leave))
    assert not any(told(card) or marked(card) >= 0 for card in (charts.loss, charts.rate, charts.norm, charts.memory))


def geometries(root: QWidget) -> list[Any]:
    return [each.geometry() for each in root.findChildren(QWidget)]


def test_hovering_moves_no_widget_of_the_page(charts: DashboardCharts) -> None:
    charts.show_model(run_of(40, 60))
    settle()
    before = geometries(charts)
    for step in (1, 10, 39):
        hover(charts.loss, step)
        settle()
        assert geometries(charts) == before


@pytest.mark.parametrize("axis", ["step", "time", "tokens"])
def test_evaluation_stands_at_its_step_on_every_axis(charts: DashboardCharts, axis: str) -> None:
    charts.loss.axis.set_value(axis)
    charts.show_model(run_of(40, 60))
    unit = {"step": 1, "time": 2, "tokens": 512}[axis]
    hover(charts.loss, 10 * unit)
    words = told(charts.loss)
    assert words[words.index("evaluation") + 1] == "2"
    assert "best evaluation" in words
    assert "checkpoint" in words
    hover(charts.loss, 23 * unit)
    words = told(charts.loss)
    assert words[words.index("evaluation") + 1] == f"3 (at {20 * unit:,})"
    assert "best evaluation" not in words
    assert "checkpoint" not in words


@pytest.mark.parametrize(("first", "is_told"), [(0.0, True), (1e-4, False)])
def test_a_rate_of_zero_at_the_first_step_is_explained(charts: DashboardCharts, first: float, is_told: bool) -> None:
    model = DashboardModel()
    rates = [first, 1e-4]
    steps = [Event(step, 1.0, "step", {"step": step, "loss": 1.0, "lr": rate}) for step, rate in enumerate(rates, 1)]
    model.apply(pack(steps))
    charts.show_model(model)
    assert charts.from_zero.isVisibleTo(charts) is is_told


def test_axis_reaches_the_planned_step_while_running_and_the_last_one_afterwards(charts: DashboardCharts) -> None:
    charts.show_model(run_of(40, 60))
    for card in (charts.loss, charts.rate, charts.norm):
        assert card.plot._box.viewRange()[0][1] >= 60
    charts.show_model(run_of(40, 60, ended=True))
    for card in (charts.loss, charts.rate, charts.norm):
        assert 40 <= card.plot._box.viewRange()[0][1] < 45


def test_zoom_and_curves_end_with_their_run(charts: DashboardCharts) -> None:
    charts.show_model(run_of(40, 60))
    for card in (charts.loss, charts.rate):
        card.plot._box.showAxRect(card.plot._box.viewRect().adjusted(5, 0, -5, 0))
        assert card.plot._chip.isVisible()
    charts.show_model(DashboardModel())
    for card in (charts.loss, charts.rate, charts.norm, charts.memory):
        assert not card.plot._canvas.isVisible()
        assert not card.plot._chip.isVisible()
        assert card.plot._empty.text() == "No data yet"
    charts.show_model(run_of(100, 100))
    assert charts.loss.plot._box.viewRange()[0][1] >= 100
    assert charts.rate.plot._box.viewRange()[0][1] >= 100


def test_zoom_survives_new_steps_of_the_same_run(charts: DashboardCharts) -> None:
    model = run_of(40, 60)
    charts.show_model(model)
    box = charts.loss.plot._box
    box.showAxRect(box.viewRect().adjusted(5, 0, -5, 0))
    before = box.viewRange()
    model.apply(pack([Event(999, 300.0, "step", {"step": 41, "loss": 1.0, "tokens": 41 * 512})]))
    charts.show_model(model)
    assert box.viewRange() == before
    assert charts.loss.plot._chip.isVisible()


def test_finished_run_of_a_folder_offers_to_show_all(open_dashboard: Any) -> None:
    page = open_dashboard(make_run("done", "happy"))
    plot = page.charts.loss.plot
    assert isinstance(page.charts.loss, LossCard)
    assert plot._chip.text() == "Show the whole run"


def test_charts_keep_their_height_whatever_the_model_answers(charts: DashboardCharts) -> None:
    heights = set()
    for text in ("", "Yes.", "a long answer " * 40):
        model = run_of(20, 60)
        if text:
            model.apply(pack([Event(999, 1.0, "sample", {"step": 20, "prompt": "Why?", "text": text})]))
        charts.show_model(model)
        settle()
        heights.add((charts.loss.height(), charts.layout().minimumHeightForWidth(charts.width())))
    assert len(heights) == 1


def with_pairs(num_steps: int) -> DashboardModel:
    events = [Event(1, 100.0, "hello", {}), Event(2, 100.0, "setup", {"total_steps": num_steps})]
    for step in range(1, num_steps + 1):
        rewards = {"reward_margin": step / 10, "reward_accuracy": 0.75}
        events.append(Event(len(events) + 1, 100.0 + step, "step", {"step": step, "loss": 0.5, **rewards}))
        if step % 10 == 0:
            held_out = {"reward_margin": step / 20, "reward_accuracy": 0.5}
            events.append(Event(len(events) + 1, 100.0 + step, "eval", {"step": step, "loss": 0.6, **held_out}))
    model = DashboardModel()
    model.apply(pack(events))
    return model


def test_rewards_have_charts_in_runs_whose_journal_has_them(charts: DashboardCharts) -> None:
    margin, accuracy = charts.rewards
    charts.show_model(run_of(40, 60))
    assert not margin.isVisible()
    charts.show_model(with_pairs(30))
    assert margin.isVisible()
    assert accuracy.isVisible()
    lines = {line.name: line for line in margin.plot.lines}
    assert lines["training"].y[[0, -1]].tolist() == [0.1, 3.0]
    assert (lines["held out"].x.tolist(), lines["held out"].y.tolist()) == ([10, 20, 30], [0.5, 1.0, 1.5])
    assert accuracy.plot.lines[0].y[0] == 75.0
    hover(margin, 20)
    assert marked(accuracy) == 20
    charts.resize(500, 1600)
    settle()
    assert accuracy.y() >= margin.y() + margin.height()
    charts.show_model(run_of(40, 60))
    assert not accuracy.isVisible()


def test_the_distance_from_the_base_model_has_a_chart_where_labels_are_learned_from(charts: DashboardCharts) -> None:
    charts.show_model(with_pairs(30))
    assert not charts.kl.isVisible()
    model = with_pairs(30)
    model.apply(pack([Event(999, 200.0, "step", {"step": 31, "loss": 0.5, "reward_accuracy": 0.5, "kl": 1.0})]))
    assert not model.has_labels, "the journal of labels has it from the first step"
    events = [Event(1, 100.0, "hello", {}), Event(2, 100.0, "setup", {"total_steps": 3})]
    for step in range(1, 4):
        # A step may have no bad answer, and so no margin.
        rewards = {"reward_accuracy": 0.75, "kl": step / 2} | ({"reward_margin": 1.0} if step > 1 else {})
        events.append(Event(len(events) + 1, 100.0 + step, "step", {"step": step, "loss": 0.4, **rewards}))
    model = DashboardModel()
    model.apply(pack(events))
    charts.show_model(model)
    assert charts.kl.isVisible()
    assert charts.kl.plot.lines[0].y.tolist() == [0.5, 1.0, 1.5]
    margin, accuracy = charts.rewards
    assert "good answers" in margin.accessibleDescription()
    assert accuracy.plot.y_span == (0.0, 100.0)
    charts.show_model(run_of(40, 60))
    assert not charts.kl.isVisible()


def test_the_perplexity_of_each_data_file_stands_with_the_loss(charts: DashboardCharts) -> None:
    model = run_of(10, 20)
    charts.show_model(model)
    (card,) = charts.findChildren(LossCard)
    assert not card.sources.isVisible()
    files = [{"path": f"/data/{name}.md", "loss": 0.0, "num_tokens": 9} for name in ("town", "lake")]
    model.apply(pack([Event(99, 200.0, "eval", {"step": 10, "loss": 1.0, "source_losses": files})]))
    charts.show_model(model)
    assert (card.sources.isVisible(), card.sources.text()) == (True, "Held-out perplexity: town.md 1.00, lake.md 1.00")
