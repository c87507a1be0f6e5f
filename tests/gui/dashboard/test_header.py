"""The head of a run's page: its progress is the share of steps done, in every phase and after every end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gui.layout_checks import clipped
from tunesmith_core.preferences import METRICS
from tunesmith_core.protocol import Event
from tunesmith_gui import tr
from tunesmith_gui.dashboard.header import DashboardHeader
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.theme import Scheme, font, theme

TOTAL = 60


@pytest.fixture
def header(qtbot: Any) -> DashboardHeader:
    result = DashboardHeader()
    qtbot.addWidget(result)
    return result


def model_at(step: int, *after: tuple[str, dict[str, Any]]) -> DashboardModel:
    """A run of 60 steps that has done some of them, a second each, and what came then."""
    events: list[tuple[str, dict[str, Any]]] = [("hello", {}), ("setup", {"total_steps": TOTAL})]
    events.append(("phase", {"name": "training", "done": 0, "total": TOTAL}))
    events += [("step", {"step": n, "loss": 3.0 - n / 100, "tokens_per_s": 100.0}) for n in range(1, step + 1)]
    model = DashboardModel()
    model.apply(pack([Event(n, 1000.0 + n, kind, data) for n, (kind, data) in enumerate([*events, *after])]))
    return model


@pytest.mark.parametrize(
    ("step", "after", "words", "steps"),
    [
        (1, [], "Training", "Step 1 of 60 · 1%"),
        (33, [("result", {"status": "stopped", "step": 33})], "Stopped", "Step 33 of 60 · 55%"),
        (33, [("result", {"status": "failed", "step": 33})], "Failed", "Step 33 of 60 · 55%"),
        (40, [("result", {"status": "finished", "step": 40})], "Finished", "Step 40 of 60 · 66%"),
        (60, [("result", {"status": "finished", "step": 60})], "Finished", "Step 60 of 60 · 100%"),
        (20, [("phase", {"name": "evaluating", "done": 20, "total": 60})], "Evaluating", "Step 20 of 60 · 33%"),
        (20, [("phase", {"name": "evaluating", "done": 0, "total": 60})], "Evaluating", "Step 20 of 60 · 33%"),
        (60, [("phase", {"name": "saving"})], "Saving", "Step 60 of 60 · 100%"),
        (20, [("stopping", {}), ("phase", {"name": "saving"})], "Saving", "Step 20 of 60 · 33%"),
        (20, [("hello", {"resumed_from_step": 10})], "Starting the engine", "Step 10 of 60 · 16%"),
        (20, [("phase", {"name": "queued"})], "Waiting", "Step 20 of 60 · 33%"),
    ],
)
def test_progress_is_the_share_of_steps_done(
    step: int, after: list[tuple[str, dict[str, Any]]], words: str, steps: str, header: DashboardHeader
) -> None:
    model = model_at(step, *after)
    header.show_model("run", model)
    assert header.progress.bar.share == pytest.approx(model.status.step / TOTAL)
    assert (header.progress.words.text(), header.progress.steps.text()) == (words, steps)


def test_preparing_says_what_and_promises_nothing(header: DashboardHeader) -> None:
    model = DashboardModel()
    model.apply(pack([Event(1, 0.0, "hello", {}), Event(2, 1.0, "phase", {"name": "model"})]))
    header.show_model("run", model)
    assert (header.progress.words.text(), header.progress.steps.text()) == ("Loading the model", "")
    assert header.progress.bar.share == 0.0


def test_rows_becoming_tokens_are_told_with_their_pace(header: DashboardHeader) -> None:
    phase = {"name": "data", "done": 12_000, "total": 50_000, "unit": "rows", "rows_per_s": 800.2, "remaining_s": 47.5}
    words = []
    for more in ({}, {"total": 0, "remaining_s": None}, {"name": "model", "rows_per_s": None}):
        model = DashboardModel()
        model.apply(pack([Event(1, 0.0, "hello", {}), Event(2, 1.0, "phase", phase | more)]))
        header.show_model("run", model)
        words.append((header.progress.words.text(), header.progress.steps.text(), header.progress.bar.share))
    assert words == [
        ("Reading the data", "12,000 of about 50,000 rows · 800 rows/s · 48 s left", 0.0),
        ("Reading the data", "12,000 rows · 800 rows/s", 0.0),
        ("Loading the model", "", 0.0),
    ]
    model.apply(pack([Event(3, 2.0, "phase", phase), Event(4, 3.0, "result", {"status": "stopped"})]))
    header.show_model("run", model)
    assert header.progress.steps.text() == ""


def test_loss_and_time_are_the_largest_numbers(header: DashboardHeader) -> None:
    header.show_model("run", model_at(12, ("eval", {"step": 12, "loss": 3.5})))
    header.ensurePolished()
    header.show()
    sizes = {
        name: getattr(header, name).value.fontMetrics().height()
        for name in ("loss", "time", "eval_loss", "speed", "epoch")
    }
    assert sizes.pop("loss") == sizes.pop("time") > 1.5 * max(sizes.values())
    assert header.loss.accessibleName() == "Loss: 2.880 from 2.990"
    assert header.eval_loss.accessibleName() == "Evaluation loss: 3.500"
    assert font("hero").pointSizeF() > font("title").pointSizeF()


def test_zero_has_no_sign() -> None:
    assert [tr.number(value, 3) for value in (-3.7e-8, -0.0004, -0.0006, 2.0)] == ["0.000", "0.000", "-0.001", "2.000"]


def test_first_loss_is_compared_with_nothing(header: DashboardHeader) -> None:
    header.show_model("run", model_at(1))
    assert header.loss.accessibleName() == "Loss: 2.990"


def test_ended_run_tells_its_duration(header: DashboardHeader) -> None:
    header.show_model("run", model_at(33, ("result", {"status": "stopped", "step": 33})))
    assert header.time.accessibleName() == "Duration: 36 s"


def test_names_of_the_large_numbers_are_in_line_whatever_their_script(header: DashboardHeader, qtbot: Any) -> None:
    header.resize(1000, 200)
    header.show_model("run", model_at(12))
    header.time.set_value("4 分钟", "12:20 结束")
    header.show()
    qtbot.waitUntil(lambda: header.loss.name.height() > 0)
    assert (
        header.loss.mapTo(header, header.loss.name.pos()).y() == header.time.mapTo(header, header.time.name.pos()).y()
    )


@pytest.mark.parametrize(("status", "tone"), [("finished", "neutral"), ("failed", "error")])
def test_the_chip_leaves_it_to_the_verdict_whether_a_finished_run_is_good(
    header: DashboardHeader, status: str, tone: str
) -> None:
    header.show_model("mine", model_at(TOTAL, ("result", {"status": status, "step": TOTAL})))
    assert (header.chip.tone, header.progress.bar._tone) == (tone, tone)


def test_the_accuracy_of_held_out_pairs_is_shown_where_there_are_pairs(header: DashboardHeader) -> None:
    header.show_model("chats", model_at(20, ("eval", {"step": 20, "loss": 1.0})))
    assert header.accuracy.isHidden()
    header.show_model("pairs", model_at(20, ("eval", {"step": 20, "loss": 0.5, "reward_accuracy": 0.875})))
    assert not header.accuracy.isHidden()
    assert header.accuracy.value.text() == "88%"
    itself = dict.fromkeys(METRICS, 0.0)
    header.show_model("pairs", model_at(1, ("eval", {"step": 0, "loss": 0.693, **itself})))
    assert header.accuracy.isHidden(), "a model compared with itself tells no pair apart"


def test_four_figures_beside_each_other_are_whole_at_double_text_size(header: DashboardHeader, qtbot: Any) -> None:
    theme().set_appearance(Scheme.LIGHT, 2.0)
    header.resize(800, 500)
    header.show()
    header.show_model("pairs", model_at(20, ("eval", {"step": 20, "loss": 0.5, "reward_accuracy": 0.875})))
    qtbot.waitUntil(lambda: clipped(header) == [], timeout=5000)
    assert header.minimumSizeHint().width() <= 800
    theme().set_appearance(Scheme.LIGHT, 1.0)


@pytest.mark.parametrize(
    ("after", "is_offered"),
    [
        ([("result", {"status": "finished", "step": 5, "artifacts": {"adapter": "adapter"}})], True),
        ([("result", {"status": "finished", "step": 5, "artifacts": {"adapter": "model"}})], False),
        ([], False),
    ],
)
def test_what_has_made_an_adapter_is_continued(
    after: list[tuple[str, dict[str, Any]]], is_offered: bool, header: DashboardHeader
) -> None:
    header.show_model("run", model_at(5, *after))
    asked: list[str] = []
    header.asked.connect(asked.append)
    (entry,) = (each for each in header.menu().actions() if each.text() == "Continue from this")
    assert entry.isEnabled() is is_offered
    entry.trigger()
    assert asked == (["continue"] if is_offered else [])
