"""What runs and checks measured replaces the estimate of a plan for the same settings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_planner import CARD
from tests.finished_runs import GIB, finish, trained
from tunesmith_core.hardware import Hardware
from tunesmith_core.measured import Measured, Time, by_check, by_run, pace_of, time_of
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes

CPU = Hardware("cpu", "x86", 16 * GIB, 8 * GIB, 16 * GIB, 8 * GIB)
TOOK = Measured(2 * GIB, 0.5, 20.0)


@pytest.fixture
def spec(home: Path, data_file: Path) -> RunSpec:
    del home
    result = RunSpec(name="mine")
    result.model.path, result.data.sources[0].path = "/models/tiny", str(data_file)
    return result


def test_a_finished_run_of_the_same_settings_tells_memory_and_pace(spec: RunSpec) -> None:
    assert by_run(spec, CPU) == Measured()
    finish(spec)
    spec.name = ""
    assert by_run(spec, CPU) == TOOK
    spec.adapter.rank = 8
    assert by_run(spec, CPU) == Measured()


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_a_run_that_did_not_finish_tells_nothing(spec: RunSpec, status: str) -> None:
    finish(spec, status=status)
    assert by_run(spec, CPU) == Measured()


def test_another_device_or_other_data_tell_nothing(spec: RunSpec, data_file: Path) -> None:
    run = finish(spec, device="cuda:0")
    card = replace(CPU, device="cuda", name="x86")
    assert by_run(spec, CPU) == Measured()
    assert by_run(spec, replace(card, name="another")) == Measured()
    assert by_run(spec, card) == TOOK
    os.utime(data_file, (run.created_at + 60, run.created_at + 60))
    assert by_run(spec, card) == Measured()


def test_a_peak_beyond_what_is_free_now_is_not_foretold(spec: RunSpec) -> None:
    finish(spec)
    assert by_run(spec, replace(CPU, free_bytes=GIB)) == Measured(None, 0.5, 20.0)


def test_a_check_times_one_part_of_an_update(spec: RunSpec) -> None:
    spec.schedule.gradient_accumulation_steps = 4
    assert by_check({"peak_bytes": 7, "reserved_bytes": 9, "step_s": 0.5}, spec) == Measured(9, 2.0)
    assert by_check({"peak_bytes": 7}, spec) == Measured(7, None)


def test_a_run_with_other_settings_but_this_model_and_method_tells_the_pace(spec: RunSpec) -> None:
    assert pace_of(spec, CPU, CARD, 100.0) is None
    trained(spec)
    spec.name, spec.adapter.rank, spec.schedule.gradient_accumulation_steps = "", 8, 2
    pace = pace_of(spec, CPU, CARD, 100.0)
    assert pace is not None
    assert (pace.run, pace.tokens_per_s, pace.row_tokens, pace.other_s) == ("mine", 200.0, 100.0, 8.0)
    assert pace.step_s(spec, None, None) == 2.0
    assert pace.step_s(spec, 3, None) == 1.5, "there are not more rows"
    assert pace.step_s(spec, None, 50.0) == 1.0, "these rows are shorter"


ALIKE: list[dict[str, Any]] = [
    {"adapter.target_modules": ["q_proj", "v_proj"]},
    {"adapter.rank": 64},
    {"adapter.alpha": 3.0},
    {"adapter.start_from": "/adapters/mine"},
    {"optimizer.name": "adamw_8bit"},
    {"schedule.gradient_accumulation_steps": 1, "schedule.epochs": 9.0},
    {"evaluation.percent": 50.0, "saving.keep": 9},
    {"teacher.own_answers": 1.0, "rollouts.group_size": 4},
]
UNLIKE: list[dict[str, Any]] = [
    {"model.path": "/models/other"},
    {"quantization.kind": "nf4"},
    {"objective.kind": "orpo"},
    {"objective.reference": "once"},
    {"adapter.kind": "full"},
    {"adapter.rank": 512},
    {"adapter.dora": True},
    {"adapter.dropout": 0.1},
    {"adapter.layers": ["0"]},
    {"adapter.modules_to_save": ["lm_head"]},
    {"hardware.kernels": False},
    {"hardware.activation_checkpointing": True},
    {"hardware.cpu_threads": 1},
    {"schedule.micro_batch_size": 3},
]


@pytest.mark.parametrize("changes", ALIKE, ids=str)
def test_a_run_that_is_about_as_fast_tells_the_pace(spec: RunSpec, changes: dict[str, Any]) -> None:
    trained(spec)
    assert pace_of(with_changes(spec, changes), CPU, CARD, 100.0) is not None


@pytest.mark.parametrize("changes", UNLIKE, ids=str)
def test_a_run_that_is_not_tells_none(spec: RunSpec, changes: dict[str, Any]) -> None:
    trained(spec)
    assert pace_of(with_changes(spec, changes), CPU, CARD, 100.0) is None


def test_the_smaller_a_model_the_more_its_adapter_takes(spec: RunSpec) -> None:
    """What ADAPTER_WORK was measured with: SmolLM2 135M, whose rank 64 takes 30 % longer than rank 16."""
    trained(spec)
    layer = {"q_proj": (576, 576), "k_proj": (192, 576), "v_proj": (192, 576), "o_proj": (576, 576)}
    layer |= {"gate_proj": (1536, 576), "up_proj": (1536, 576), "down_proj": (576, 1536)}
    shapes = {f"layers.{number}.{name}.weight": shape for number in range(30) for name, shape in layer.items()}
    small = replace(CARD, num_parameters=134_515_008, linear_shapes=shapes)
    for changes, tells in (
        ({"adapter.target_modules": ["q_proj", "v_proj"]}, True),
        ({"adapter.rank": 8}, True),
        ({"adapter.rank": 64}, False),
    ):
        assert (pace_of(with_changes(spec, changes), CPU, small, 100.0) is not None) == tells, changes


def test_adapters_of_experts_are_another_method(spec: RunSpec) -> None:
    trained(spec)
    mixture = replace(CARD, expert_shapes={"layers.0.mlp.experts.gate_up_proj": (8, 64, 32)})
    assert pace_of(spec, CPU, mixture, 100.0) is not None
    for changes in ({"adapter.target_modules": ["q_proj", "v_proj"]}, {"adapter.initial_values": "pissa"}):
        assert pace_of(with_changes(spec, changes), CPU, mixture, 100.0) is None
        assert pace_of(with_changes(spec, changes), CPU, CARD, 100.0) is not None, "there are no experts"


@pytest.mark.parametrize(
    ("row_tokens", "micro_batch_size", "tells"),
    [(100.0, 2, True), (81.0, 2, True), (79.0, 2, False), (124.0, 2, True), (126.0, 2, False), (50.0, 4, True)],
)
def test_batches_of_another_size_are_not_as_fast(
    spec: RunSpec, row_tokens: float, micro_batch_size: int, tells: bool
) -> None:
    trained(spec)
    spec.schedule.micro_batch_size = micro_batch_size
    assert (pace_of(spec, CPU, CARD, row_tokens) is not None) == tells


def test_rows_whose_tokens_nobody_counted_must_be_the_same(spec: RunSpec) -> None:
    trained(spec)
    assert pace_of(spec, CPU, CARD, None) is not None
    assert pace_of(with_changes(spec, {"data.context_length": 64}), CPU, CARD, None) is None
    spec.schedule.micro_batch_size = 4
    assert pace_of(spec, CPU, CARD, None) is None


@pytest.mark.parametrize(
    ("changes", "tells"),
    [({"adapter.dropout": 0.1}, True), ({"adapter.parts": "norms"}, False), ({"optimizer.name": "adafactor"}, False)],
)
def test_what_an_adapter_would_be_does_not_matter_to_full_fine_tuning(
    spec: RunSpec, changes: dict[str, Any], tells: bool
) -> None:
    spec.adapter.kind = "full"
    trained(spec)
    assert (pace_of(with_changes(spec, changes), CPU, CARD, 100.0) is not None) == tells


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("grpo", {"rollouts.group_size": 4}), ("gkd", {"teacher.max_tokens": 64})],
)
def test_who_answers_meanwhile_decides_too(spec: RunSpec, kind: str, changes: dict[str, Any]) -> None:
    spec.objective.kind, spec.teacher.path = kind, "/models/bigger"
    trained(spec)
    assert pace_of(spec, CPU, CARD, 100.0) is not None
    assert pace_of(with_changes(spec, changes), CPU, CARD, 100.0) is None


def test_a_run_on_another_device_tells_no_pace(spec: RunSpec) -> None:
    trained(spec, device="cuda:0")
    assert pace_of(spec, CPU, CARD, 100.0) is None


def test_a_run_whose_settings_cannot_be_read_tells_nothing(spec: RunSpec) -> None:
    trained(spec)
    run = create_run(spec)
    run.spec_path.write_text("{", encoding="utf-8")
    pace = pace_of(spec, CPU, CARD, None)
    assert pace is not None
    assert pace.run == "mine"
    assert by_run(spec, CPU) == Measured(None, 4.0, 8.0)


def test_the_time_of_an_update_comes_from_the_surest_that_is_known(spec: RunSpec) -> None:
    assert time_of(spec, CPU, CARD, Measured(), 90, None) == Time()
    trained(spec)
    assert time_of(spec, CPU, CARD, Measured(), 90, None) == Time(4.0, 8.0, "mine")
    assert time_of(spec, CPU, CARD, Measured(), 4, 90.0) == Time(1.8, 8.0, "mine")
    assert time_of(spec, CPU, CARD, Measured(step_s=0.5), 90, None) == Time(0.5)


def test_a_run_that_was_continued_tells_the_time_beside_updates_of_its_last_start(spec: RunSpec) -> None:
    run = finish(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device="cpu", device_name="x86")
    journal.write("step", step=4, step_s=1.5)
    journal.write("result", status="finished", seconds=4.0)
    journal.close()
    assert by_run(spec, CPU).other_s == 2.5
