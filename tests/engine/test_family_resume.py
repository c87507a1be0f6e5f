"""Models of this year are stopped and resumed as if nothing had happened: states, experts and latents keep nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.engine import causal_types
from tests.engine.conftest import after_step, events, step_losses, train
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

QUICK = ("qwen3_5_text", "gpt_oss")
LONG = (
    *("lfm2", "gemma4_text", "gemma3n_text", "deepseek_v3", "kimi_linear", "qwen3_moe", "mamba2", "falcon_h1"),
    *("nemotron_h", "bart"),
)
SETTINGS = {
    "method": {"rank": 4},
    "schedule": {"max_steps": 6, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 7},
    "evaluation": {"percent": 20.0, "every_steps": 2},
}
BOTH = {"layer_types": ["linear_attention", "full_attention"]}
CHANGES = {
    "gemma4_text": {"vocab_size_per_layer_input": 512, **causal_types.BESIDE_MLP},
    "qwen3_5_text": BOTH,
    "kimi_linear": BOTH,
}


@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG)])
def test_a_stopped_run_goes_on_to_the_bit(
    kind: str, tiny_model: Path, tiny_spec: Callable[..., RunSpec], new_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    spec = tiny_spec(**SETTINGS)
    changes = {"vocab_size": 512, **CHANGES.get(kind, {})}
    spec.model.path = str(causal_types.write_model(kind, tmp_path / "model", tiny_model, **changes))
    whole, run = new_run(spec), new_run(spec)
    assert train(whole) == 0
    assert {event.data["code"] for event in events(whole, "warning")} <= {"not-fused"}
    assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == 3
    assert step_losses(run) == step_losses(whole)
    adapters = [(each.adapter_path / "adapter_model.safetensors").read_bytes() for each in (run, whole)]
    assert adapters[0] == adapters[1]
