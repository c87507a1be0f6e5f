"""What runs and checks measured replaces the estimate of a plan for the same settings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.new_run.conftest import CPU
from tests.gui.new_run.driving import GIB, fill_in
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.measured import Measured, by_check, by_run, pace_of
from tunesmith_gui.new_run.page import NewRunPage

TOOK = Measured(2 * GIB, 0.5)


def finish(spec: RunSpec, *, device: str = "cpu", status: str = "finished") -> Run:
    run = create_run(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device=device, device_name="x86")
    for step, peak_bytes, step_s in ((1, GIB, 9.0), (2, 2 * GIB, 0.5), (3, GIB, 0.5)):
        journal.write("step", step=step, step_s=step_s)
        journal.write("gpu", device=device, process_bytes=peak_bytes, reserved_bytes=peak_bytes)
    journal.write("result", status=status)
    journal.close()
    return run


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
    assert by_run(spec, replace(CPU, free_bytes=GIB)) == Measured(None, 0.5)


def test_a_check_times_one_part_of_an_update(spec: RunSpec) -> None:
    spec.schedule.gradient_accumulation_steps = 4
    assert by_check({"peak_bytes": 7, "reserved_bytes": 9, "step_s": 0.5}, spec) == Measured(9, 2.0)
    assert by_check({"peak_bytes": 7}, spec) == Measured(7, None)


def trained(spec: RunSpec, *, device: str = "cpu") -> Run:
    """Make a finished run of steps with 8 rows of 100 tokens each, 200 tokens a second."""
    spec.schedule.micro_batch_size, spec.schedule.gradient_accumulation_steps = 2, 4
    run = create_run(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device=device, device_name="x86")
    journal.write("setup", num_train_rows=90)
    for step in (1, 2, 3):
        journal.write("step", step=step, step_s=4.0, tokens=step * 800, tokens_per_s=200.0 if step > 1 else 9.0)
    journal.write("result", status="finished")
    journal.close()
    return run


def test_a_run_with_other_settings_but_this_model_and_method_tells_the_pace(spec: RunSpec) -> None:
    assert pace_of(spec, CPU) is None
    trained(spec)
    spec.name, spec.adapter.rank, spec.schedule.gradient_accumulation_steps = "", 8, 2
    pace = pace_of(spec, CPU)
    assert pace is not None
    assert (pace.run, pace.tokens_per_s, pace.row_tokens) == ("mine", 200.0, 100.0)
    assert pace.step_s(spec, None, None) == 2.0
    assert pace.step_s(spec, 3, None) == 1.5, "there are not more rows"
    assert pace.step_s(spec, None, 50.0) == 1.0, "these rows are shorter"
    spec.quantization.kind = "nf4"
    assert pace_of(spec, CPU) is None
    spec.quantization.kind, spec.model.path = "none", "/models/other"
    assert pace_of(spec, CPU) is None


def test_a_run_on_another_device_tells_no_pace(spec: RunSpec) -> None:
    trained(spec, device="cuda:0")
    assert pace_of(spec, CPU) is None


def test_the_plan_says_by_which_run_it_tells_the_time(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
) -> None:
    fill_in(qtbot, page, model, data_file)
    spec = page.form.spec
    spec.name, spec.adapter.rank = "earlier", 4
    trained(spec)
    page.on_shown()
    qtbot.waitUntil(lambda: "“earlier”" in page.plan_card.pace.text(), timeout=5000)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Time") + 1] != "not known yet"


def test_the_plan_shows_what_the_last_run_took(qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> None:
    fill_in(qtbot, page, model, data_file)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Time") + 1] == "not known yet"
    finish(page.form.spec)
    page.on_shown()
    qtbot.waitUntil(lambda: page.plan_card.total.text().startswith("2.0 of"), timeout=5000)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Accuracy") + 1] == "measured"
    assert words[words.index("Time") + 1] != "not known yet"
