"""A run that is stopped and resumed beside one that nobody interrupted."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec


def check_resume(spec: RunSpec, new_run: Callable[[RunSpec], Run], stop_at: int = 3) -> None:
    """Assert that losses, evaluations and the adapter are equal to the bit."""
    whole, run = new_run(spec), new_run(spec)
    assert train(whole) == 0
    assert train(run, lambda host: after_step(host, stop_at, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == stop_at
    assert step_losses(run) == step_losses(whole)
    for name in ("eval_loss_before", "eval_loss_after"):
        assert result_of(run)[name] == result_of(whole)[name]
    weights = [(each.adapter_path / "adapter_model.safetensors").read_bytes() for each in (run, whole)]
    assert weights[0] == weights[1]
