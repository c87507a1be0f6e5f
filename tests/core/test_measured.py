"""What runs and checks measured replaces the estimate of a plan for the same settings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
    assert pace_of(spec, CPU) is None
    trained(spec)
    spec.name, spec.adapter.rank, spec.schedule.gradient_accumulation_steps = "", 8, 2
    pace = pace_of(spec, CPU)
    assert pace is not None
    assert (pace.run, pace.tokens_per_s, pace.row_tokens, pace.other_s) == ("mine", 200.0, 100.0, 8.0)
    assert pace.step_s(spec, None, None) == 2.0
    assert pace.step_s(spec, 3, None) == 1.5, "there are not more rows"
    assert pace.step_s(spec, None, 50.0) == 1.0, "these rows are shorter"
    spec.quantization.kind = "nf4"
    assert pace_of(spec, CPU) is None
    spec.quantization.kind, spec.model.path = "none", "/models/other"
    assert pace_of(spec, CPU) is None


@pytest.mark.parametrize(
    ("changes", "tells"),
    [
        ({"adapter.dora": True}, False),
        ({"adapter.dropout": 0.1}, False),
        ({"adapter.target_modules": ["q_proj"]}, False),
        ({"adapter.layers": ["0"]}, False),  # a mixture's experts have no adapter then
        ({"adapter.alpha": 3.0}, True),
        ({"adapter.kind": "full"}, False),
    ],
)
def test_a_run_with_another_kind_of_adapter_tells_no_pace(spec: RunSpec, changes: dict[str, Any], tells: bool) -> None:
    trained(spec)
    assert (pace_of(with_changes(spec, changes), CPU) is not None) == tells


def test_what_an_adapter_would_be_does_not_matter_to_full_fine_tuning(spec: RunSpec) -> None:
    spec.adapter.kind = "full"
    trained(spec)
    assert pace_of(with_changes(spec, {"adapter.dropout": 0.1}), CPU) is not None


def test_a_run_on_another_device_tells_no_pace(spec: RunSpec) -> None:
    trained(spec, device="cuda:0")
    assert pace_of(spec, CPU) is None


def test_a_run_whose_settings_cannot_be_read_tells_nothing(spec: RunSpec) -> None:
    trained(spec)
    run = create_run(spec)
    run.spec_path.write_text("{", encoding="utf-8")
    pace = pace_of(spec, CPU)
    assert pace is not None
    assert pace.run == "mine"
    assert by_run(spec, CPU) == Measured(None, 4.0, 8.0)


def test_the_time_of_an_update_comes_from_the_surest_that_is_known(spec: RunSpec) -> None:
    assert time_of(spec, CPU, Measured(), 90, None) == Time()
    trained(spec)
    assert time_of(spec, CPU, Measured(), 90, None) == Time(4.0, 8.0, "mine")
    assert time_of(spec, CPU, Measured(), 4, 50.0) == Time(1.0, 8.0, "mine")
    assert time_of(spec, CPU, Measured(step_s=0.5), 90, None) == Time(0.5)


def test_a_run_that_was_continued_tells_the_time_beside_updates_of_its_last_start(spec: RunSpec) -> None:
    run = finish(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device="cpu", device_name="x86")
    journal.write("step", step=4, step_s=1.5)
    journal.write("result", status="finished", seconds=4.0)
    journal.close()
    assert by_run(spec, CPU).other_s == 2.5
