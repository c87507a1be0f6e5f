"""LoRA+ updates as PEFT's own optimizer does, over the arena and by parameter, and is told in what a run leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel
from peft.optimizers import create_loraplus_optimizer

from tests.engine.fused.test_model import adapted
from tests.engine.numerics import judge
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.lora_plus import rate_factor
from tunesmith_engine.train.optim import Updater

CPU = torch.device("cpu")
RATIO, RATE, DECAY = 16.0, 1e-3, 0.1
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dora": {"use_dora": True},
    "biases": {"bias": "all", "target_modules": ["q_proj", "down_proj"]},
    "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
}


def give_gradients(model: PeftModel, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in trainable(model).values():
        gradient = torch.randn(parameter.shape, generator=generator)
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.copy_(gradient)


def weights(model: PeftModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainable(model).values()])


@pytest.mark.parametrize("in_arena", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_of_peft(variant: str, in_arena: bool) -> None:
    ours, theirs, exact = (adapted("qwen2", **VARIANTS[variant]) for _ in range(3))
    exact = exact.double()
    optimizers = [
        create_loraplus_optimizer(
            model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=RATIO, loraplus_weight_decay=DECAY, eps=1e-8
        )
        for model in (theirs, exact)
    ]
    settings = OptimizerSpec(
        learning_rate=RATE, lora_plus_ratio=RATIO, weight_decay=DECAY, epsilon=1e-8, max_grad_norm=0.0
    )
    parameters = trainable(ours)
    start = weights(ours).double()
    updater = Updater(parameters, settings, CPU, torch.float32, AdapterArena(parameters) if in_arena else None)
    for step in range(4):
        give_gradients(ours, step)
        updater.update(RATE)
        for model, optimizer in zip((theirs, exact), optimizers, strict=True):
            for parameter in trainable(model).values():
                parameter.grad = None
            generator = torch.Generator().manual_seed(step)
            for parameter in trainable(model).values():
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            optimizer.step()
    changes = [weights(model).double() - start for model in (ours, theirs, exact)]
    judge("change", *changes, torch.float32)


def test_without_a_ratio_every_weight_has_the_same_rate() -> None:
    settings = OptimizerSpec()
    assert {rate_factor(name, 2, settings) for name in ("lora_A", "lora_B", "lora_embedding_A")} == {1.0}


@pytest.mark.parametrize("in_arena", [True, False])
def test_a_ratio_is_kept_in_8_bits(in_arena: bool) -> None:
    pytest.importorskip("bitsandbytes")
    parameters = {
        name: torch.nn.Parameter(torch.zeros(64, 65)) for name in ("layer.lora_A.weight", "layer.lora_B.weight")
    }
    arena = AdapterArena(parameters) if in_arena else None
    settings = OptimizerSpec(name="adamw_8bit", lora_plus_ratio=RATIO, max_grad_norm=0.0)
    if not in_arena:
        updater = Updater(parameters, settings, CPU, torch.float32)
        assert sorted(group["rate_factor"] for group in updater.optimizer.param_groups) == [1.0, RATIO]
        return
    updater = Updater(parameters, settings, CPU, torch.float32, arena)
    for parameter in parameters.values():
        parameter.grad.fill_(0.5)
    updater.update(RATE)
    first, second = (parameter.detach() for parameter in parameters.values())
    assert torch.allclose(second, RATIO * first, rtol=1e-5)
    assert first.abs().min() > 0
