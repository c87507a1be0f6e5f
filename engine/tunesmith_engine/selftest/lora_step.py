"""Last step: a tiny LoRA model takes one step of the optimizer on each device, and the numbers are the CPU's.

The same seed gives the same model everywhere. Losses and gradients are judged before the step, the loss after it; a
few further steps must lower the loss. The oracle is float64 wherever the model's own code lets it be: norms and rotary
angles are computed in float32 by transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import Compute
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.selftest.numerics import devices, formats, judge
from tunesmith_engine.train.optim import Updater

NUM_STEPS = 4
VOCABULARY = 64
LEARNING_RATE = 1e-2


@dataclass(frozen=True, slots=True)
class Trained:
    """What a device computed: the loss of each step, and the first step's gradients in one row."""

    losses: torch.Tensor
    gradient: torch.Tensor


def prove(device: str) -> dict[str, Any]:  # Any: JSON values
    """Train on each device in each number format; return losses and errors.

    Raises:
        EnvironmentProblem: `device-miscomputes`.
    """
    cpu, found = torch.device("cpu"), {}
    oracle = train(cpu, torch.float64)
    for place in devices(device):
        for dtype in formats(place):
            reference, trained = train(cpu, dtype), train(place, dtype)
            losses = [round(float(loss), 6) for loss in trained.losses]
            if not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
                raise TunesmithError(
                    "device-miscomputes",
                    "A tiny model does not learn on {place}: {losses}.",
                    place=place,
                    losses=losses,
                )
            found[f"{place} {str(dtype).removeprefix('torch.')}"] = {
                "losses": losses,
                "gradient": judge(Message("A gradient"), trained.gradient, reference.gradient, oracle.gradient, dtype),
                "loss": judge(Message("A loss"), trained.losses[:2], reference.losses[:2], oracle.losses[:2], dtype),
            }
    return found


def train(place: torch.device, dtype: torch.dtype) -> Trained:
    """Train a tiny random model that is the same everywhere."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    base = LlamaForCausalLM(config)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    # As in a run: frozen weights in the run's number format, the adapter in float32 (the oracle is float64 throughout).
    for parameter in model.parameters():
        wide = parameter.requires_grad and dtype != torch.float64
        parameter.data = parameter.data.to(place, torch.float32 if wide else dtype)
    model.to(place)
    updater = Updater(trainable(model), RunSpec().optimizer, place, dtype)
    tokens = torch.randint(0, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(4)).to(place)
    compute = Compute(place, torch.float32 if dtype == torch.float64 else dtype, "", 1)
    losses, gradient = [], torch.empty(0)
    for step in range(NUM_STEPS):
        with compute.autocast():
            logits = model(input_ids=tokens).logits
        # Not the model's own loss, which is float32 whatever the logits are.
        wide_logits = logits if dtype == torch.float64 else logits.float()
        loss = torch.nn.functional.cross_entropy(wide_logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        updater.backward(loss)
        if step == 0:
            scale = updater.scaler.get_scale() if updater.scaler else 1.0
            gradient = torch.cat([p.grad.flatten() / scale for p in updater.parameters.values() if p.grad is not None])
        updater.update(LEARNING_RATE)
        losses.append(loss.detach())
    return Trained(torch.stack(losses).cpu(), gradient.cpu())
