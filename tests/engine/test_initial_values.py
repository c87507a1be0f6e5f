"""An adapter starts with the numbers that PEFT draws, and always as the base model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, trainable


@pytest.mark.parametrize("values", ["default", "gaussian", "orthogonal"])
def test_they_are_those_of_peft(values: str, tiny_spec: Callable[..., RunSpec], tiny_model: Path) -> None:
    spec = tiny_spec(method={"rank": 4, "initial_values": values})
    compute = choose_compute(spec)
    ours = attach_adapter(load_model(tiny_model, compute, False), spec)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=4,
        lora_alpha=spec.adapter.alpha,
        target_modules="all-linear",
        init_lora_weights=True if values == "default" else values,
    )
    bare = load_model(tiny_model, compute, False)
    torch.manual_seed(spec.schedule.seed)
    theirs = get_peft_model(bare, config)
    expected = trainable(theirs)
    assert trainable(ours).keys() == expected.keys()
    assert all(torch.equal(value, expected[name].float()) for name, value in trainable(ours).items())
    input_ids = torch.arange(20, 29)[None]
    with torch.no_grad(), ours.disable_adapter():
        base = ours(input_ids=input_ids).logits
    with torch.no_grad():
        assert torch.allclose(ours(input_ids=input_ids).logits, base, atol=1e-5)
    starts = [value for name, value in trainable(ours).items() if "lora_B" in name]
    assert any(value.any() for value in starts) == (values == "orthogonal")
