"""What a run's page knows after each recorded stream, however the stream is cut into pieces."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tunesmith_core.protocol import Event, JournalReader, read_journal
from tunesmith_core.runs import RunState
from tunesmith_gui.dashboard.model import DashboardModel, pack

EVENTS = Path(__file__).parents[2] / "data" / "events"


def folded(name: str) -> DashboardModel:
    model = DashboardModel()
    model.apply(pack(read_journal(EVENTS / f"{name}.jsonl")))
    return model


def test_happy_run() -> None:
    model = folded("happy")
    assert model.status.state is RunState.FINISHED
    assert len(model.steps) == 30
    assert [sample.text for sample in model.samples] == ["Hello <b>there</b>"]
    assert [each.step for each in model.checkpoints] == [10, 20, 30]
    assert model.status.artifacts == {"adapter": "adapter"}
    assert model.fraction == 1.0
    assert model.reading["temperature_c"] == 60
    first, last = model.loss_change() or (0.0, 0.0)
    assert first > last


def test_answers_to_held_out_rows_stand_in_for_samples() -> None:
    model = DashboardModel()
    answers = [{"prompt": prompt, "expected": "So.", "answer": f"{prompt} Because."} for prompt in ("Why?", "When?")]
    model.apply(pack([Event(1, 0.0, "answers", {"step": 4, "answers": answers})]))
    # The list shows the last one first.
    assert [(each.step, each.prompt) for each in model.written()] == [(4, "When?"), (4, "Why?")]
    assert model.written()[-1].text == "Why? Because."
    later = [{"prompt": "Why?", "expected": "So.", "answer": "Because"}]
    model.apply(pack([Event(2, 1.0, "answers", {"step": 8, "answers": later, "cuts": [21]})]))
    assert [(each.step, each.cut_at) for each in model.written()] == [(4, 0), (4, 0), (8, 21)], "every step is kept"
    model.apply(pack([Event(3, 2.0, "sample", {"step": 5, "prompt": "Who?", "text": "You."})]))
    assert [each.text for each in model.written()] == ["You."]


@pytest.mark.parametrize("tried_bytes", [None, 6 << 30])
def test_the_log_says_what_runs_fused_and_what_it_takes(tried_bytes: int | None) -> None:
    model = DashboardModel()
    sentences = ["30 of 30 layers run on Tunesmith's own path.", "Layers: 30 keep everything."]
    setup = {"kernels": sentences, "planned_bytes": 7 << 30 if tried_bytes else None, "tried_bytes": tried_bytes}
    model.apply(pack([Event(1, 0.0, "setup", setup)]))
    said = [line.text for line in model.log.matching()]
    memory = ["memory: 7.0 GiB planned, 6.0 GiB taken by the largest micro-batch"] if tried_bytes else []
    assert said == [*sentences, *memory]


def test_failed_run_names_its_error() -> None:
    model = folded("oom")
    assert model.status.state is RunState.FAILED
    assert model.status.error is not None
    assert model.status.error["code"] == "cuda-oom"
    assert not model.can_resume


def test_nan_losses_are_gaps_and_warned_of() -> None:
    model = folded("nan")
    assert np.isnan(model.steps.column("loss")[9:]).all()
    assert model.warnings[-1]["code"] == "nan-loss"
    assert any(line.level == "warning" for line in model.log.matching())


def test_stopped_run_can_be_resumed() -> None:
    model = folded("stop_save")
    assert model.status.state is RunState.STOPPED
    assert model.can_resume
    assert model.checkpoints[-1].step == 14


def test_resuming_takes_back_the_steps_that_are_done_again() -> None:
    model = folded("resumed")
    assert list(model.steps.column("step")) == list(range(1, 19))
    assert list(model.evals.column("step")) == [10]
    assert model.resumed_from_step == 10


@pytest.mark.parametrize("name", ["crash", "garbage", "unknown_type"])
def test_damaged_and_foreign_lines_are_passed_over(name: str) -> None:
    model = folded(name)
    assert model.status.state is RunState.RUNNING
    assert len(model.steps) == {"crash": 15, "garbage": 5, "unknown_type": 5}[name]


@pytest.mark.parametrize("name", [path.stem for path in sorted(EVENTS.glob("*.jsonl"))])
def test_cutting_the_stream_anywhere_changes_nothing(name: str, tmp_path: Path) -> None:
    whole, model, chance = folded(name), DashboardModel(), random.Random(name)
    data = (EVENTS / f"{name}.jsonl").read_bytes()
    path = tmp_path / "events.jsonl"
    reader = JournalReader(path)
    place = 0
    with path.open("ab", buffering=0) as file:
        while place < len(data):
            size = chance.randint(1, 700)
            file.write(data[place : place + size])
            place += size
            model.apply(pack(reader.read()))
    assert model.status == whole.status
    assert np.array_equal(model.steps.column("loss"), whole.steps.column("loss"), equal_nan=True)
    assert model.samples == whole.samples
    assert list(model.log.matching()) == list(whole.log.matching())


def test_time_left_counts_from_the_newest_step() -> None:
    model = folded("crash")
    now = model.steps.last("t")
    # Fifteen steps a second apart, with an evaluation and a checkpoint after the tenth.
    assert model.step_s() == pytest.approx(15 / 13)
    assert model.eta_s(now) == pytest.approx(15 * 15 / 13)
    assert model.eta_s(now + 2) == pytest.approx(15 * 15 / 13 - 2)
    assert folded("happy").eta_s(now) is None


def test_look_at_the_base_model_after_the_first_step_is_no_part_of_the_pace() -> None:
    model = DashboardModel()
    times = {1: 1.0, 2: 61.0, 3: 62.0, 4: 63.0}
    events = [Event(1, 0.0, "setup", {"total_steps": 14}), Event(2, 0.5, "phase", {"name": "training"})]
    events += [Event(2 + step, t, "step", {"step": step}) for step, t in times.items()]
    model.apply(pack(events[:4]))
    assert model.eta_s(61.0) is None
    model.apply(pack(events[4:]))
    assert model.eta_s(63.0) == pytest.approx(10.0)


def test_silence_is_noticed_by_heartbeat_and_events() -> None:
    model = folded("crash")
    last = model.status.last_event_at or 0.0
    assert model.silent_since(last + 14, None) is None
    assert model.silent_since(last + 16, None) == last
    assert model.silent_since(last + 16, last + 10) is None
    assert folded("happy").silent_since(last + 1000, None) is None


@pytest.mark.parametrize(("code", "level"), [("engine-killed", "info"), ("bug", "error")])
def test_what_an_engine_printed_last_is_not_an_error_of_its_own(code: str, level: str) -> None:
    model = DashboardModel()
    model.apply(pack([Event(1, 1.0, "error", {"code": code, "message": "It ended.", "context": "last words"})]))
    assert [(line.level, line.text) for line in model.log.matching()] == [("error", "It ended."), (level, "last words")]


def test_checkpoints_that_made_room_for_newer_ones_are_not_shown() -> None:
    model = DashboardModel()
    for step, kept in ((10, [10]), (20, [20, 10]), (30, [30, 20])):
        data = {"step": step, "path": f"checkpoints/step-{step:06d}", "bytes": 1, "seconds": 0.1, "kept": kept}
        model.apply(pack([Event(step, float(step), "checkpoint", data)]))
    assert [each.step for each in model.checkpoints] == [20, 30]
