"""A run that is stopped and resumed beside one that nobody interrupted."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec


def check_resume(spec: RunSpec, new_run: Callable[[RunSpec], Run], stop_at: int = 3) -> None:
    """Assert that losses, evaluations and the adapter are equal to the bit."""
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves, stop_at)
    assert events(halves, "hello")[-1].data["resumed_from_step"] == stop_at
    for name in ("eval_loss_before", "eval_loss_after"):
        assert result_of(halves)[name] == result_of(whole)[name]


def goes_on_to_the_bit(whole: Run, halves: Run, stop_at: int = 3) -> None:
    """Train one run in one piece and its twin with a stop after a step: losses and adapter must be equal."""
    assert train(whole) == 0
    assert train(halves, lambda host: after_step(host, stop_at, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    weights = [(run.adapter_path / "adapter_model.safetensors").read_bytes() for run in (whole, halves)]
    assert weights[0] == weights[1]
