"""Charts of runs that sort texts, judge steps or learn from a bigger model, and what their verdicts are told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.gui.dashboard.test_charts import charts, run_of
from tunesmith_core.protocol import Event
from tunesmith_gui.dashboard.charts import DashboardCharts
from tunesmith_gui.dashboard.model import DashboardModel, pack

__all__ = ["charts"]

FIGURES = {"macro_f1": 0.7, "calibration_error": 0.25}


def told(in_training: Mapping[str, float], held_out: Mapping[str, float]) -> DashboardModel:
    """A run of 20 steps with an evaluation before and after."""
    setup = {"total_steps": 20, "num_train_rows": 90, "num_distinct_rows": 90, "num_eval_rows": 10, "writes": False}
    events = [Event(1, 100.0, "hello", {}), Event(2, 100.0, "setup", setup)]
    before = {name: value / 2 for name, value in held_out.items()}
    events.append(Event(3, 100.0, "eval", {"step": 0, "loss": 0.9, **before}))
    for step in range(1, 21):
        events.append(Event(len(events) + 1, 100.0 + step, "step", {"step": step, "loss": 0.5, **in_training}))
    events.append(Event(len(events) + 1, 121.0, "eval", {"step": 20, "loss": 0.3, **held_out}))
    model = DashboardModel()
    model.apply(pack(events))
    return model


@pytest.mark.parametrize(("column", "title"), [("accuracy", "Right class"), ("step_accuracy", "Right steps")])
def test_macro_f1_and_calibration_stand_beside_the_share_of_right_ones(
    column: str, title: str, charts: DashboardCharts
) -> None:
    charts.show_model(told({column: 0.75}, {column: 0.8, **FIGURES}))
    first = charts.classes[0] if column == "accuracy" else charts.right_steps
    cards = (first, *charts.classes[1:])
    assert [card.heading.text() for card in cards] == [title, "Macro F1", "Calibration error"]
    assert all(card.isVisible() for card in cards)
    _, f1, gap = cards
    assert first.plot.lines[0].y[0] == 75.0
    assert [(line.name, line.y.tolist()) for line in f1.plot.lines] == [("held out", [0.35, 0.7])]
    assert gap.plot.lines[0].y.tolist() == [12.5, 25.0]
    charts.show_model(run_of(40, 60))
    assert not any(card.isVisible() for card in cards)


def test_agreement_with_the_bigger_model_has_a_chart_and_a_word_in_the_verdict(charts: DashboardCharts) -> None:
    model = told({"agreement": 0.5}, {"agreement": 0.6})
    charts.show_model(model)
    assert charts.agreement.isVisible()
    assert {line.name: line.y[-1] for line in charts.agreement.plot.lines}["held out"] == 60.0
    assert "At 60% of the held-out tokens" in model.verdict().evidence
    charts.show_model(run_of(40, 60))
    assert not charts.agreement.isVisible()


def test_a_verdict_tells_of_steps() -> None:
    verdict = told({"step_accuracy": 0.75}, {"step_accuracy": 0.8, **FIGURES}).verdict()
    assert "80% of the steps" in f"{verdict.sentence} {verdict.evidence}"
