"""Specs for another try."""

from __future__ import annotations

from tunesmith_core.spec import RunSpec
from tunesmith_gui.models.run_spec import micro_batch_one_spec, retry_specs


def test_retries_leave_out_what_is_small_already() -> None:
    spec = RunSpec()
    spec.schedule.micro_batch_size, spec.data.context_length = 1, 128
    spec.hardware.activation_checkpointing = True
    assert retry_specs(spec) == {}


def test_micro_batch_one_keeps_the_effective_batch_size() -> None:
    spec = RunSpec()
    smaller = micro_batch_one_spec(spec)
    assert smaller is not None
    assert (smaller.schedule.micro_batch_size, smaller.schedule.gradient_accumulation_steps) == (1, 8)
    assert spec.schedule.micro_batch_size == 2
    assert micro_batch_one_spec(smaller) is None
