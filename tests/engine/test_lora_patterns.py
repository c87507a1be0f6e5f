"""Layers, ranks and alphas of their own: PEFT's adapter, fused and plain alike, counted and named when wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.engine.conftest import events, step_losses, train
from tests.engine.peft_loop import losses_of
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.planner import num_adapter_parameters
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model

Make = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]


def patterned(spec: RunSpec) -> RunSpec:
    spec.adapter.layers = ["1"]
    spec.adapter.rank_pattern = ["q_proj = 8", "layers.*.mlp.down_proj=2"]
    spec.adapter.alpha_pattern = ["q_proj = 4.5"]
    return spec


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.long)])
def test_losses_are_those_of_peft(kernels: bool, tiny_spec: Make, new_run: NewRun, tiny_model: Path) -> None:
    spec = patterned(tiny_spec(schedule={"max_steps": 30}))
    spec.hardware.kernels = kernels
    run = new_run(spec)
    assert train(run) == 0
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=4,
        lora_alpha=8.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        layers_to_transform=[1],
        rank_pattern={"q_proj": 8, "down_proj": 2},
        alpha_pattern={"q_proj": 4.5},
    )
    base = load_model(tiny_model, choose_compute(spec), False)
    torch.manual_seed(spec.schedule.seed)
    theirs = get_peft_model(base, config)
    num_trained = sum(each.numel() for each in theirs.parameters() if each.requires_grad)
    assert num_adapter_parameters(spec, read_model_card(tiny_model)) == num_trained
    assert step_losses(run) == pytest.approx(losses_of(theirs, spec, tiny_model), rel=2e-4)
    (setup,) = events(run, "setup")
    assert setup.data["num_trainable_parameters"] == num_trained
    kernels_said = " ".join(setup.data["kernels"])
    assert "Adapters of rank 2: mlp.down_proj." in kernels_said
    assert "Adapters of rank 8: self_attn.q_proj." in kernels_said
    assert ("The model runs in plain PyTorch" in kernels_said) != kernels
    assert not events(run, "warning")


@pytest.mark.parametrize(
    ("setting", "entries", "words"),
    [
        ("rank_pattern", ["k_prog = 8"], "no module with an adapter is called k_prog"),
        ("alpha_pattern", ["layers.0.*.q_proj = 8"], "no module with an adapter is called layers.0.*.q_proj"),
        ("rank_pattern", ["q_proj = 8", "self_attn.* = 2"], "fits both q_proj and self_attn.*"),
        ("layers", ["1-7"], "the model has no layer 2. Its layers are 0 to 1."),
    ],
)
def test_what_fits_nothing_is_named(
    setting: str, entries: list[str], words: str, tiny_spec: Make, new_run: NewRun
) -> None:
    spec = tiny_spec()
    spec.adapter.layers = ["1"]
    setattr(spec.adapter, setting, entries)
    run = new_run(spec)
    assert train(run) == 2
    assert words in events(run, "error")[-1].data["message"]
