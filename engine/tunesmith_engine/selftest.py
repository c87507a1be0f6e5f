"""Proof that this environment trains on this machine: one LoRA step of a tiny model, and 4-bit weights on a GPU."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import Compute, choose_compute
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.optim import Updater

NUM_STEPS = 3
VOCABULARY = 64


def selftest() -> dict[str, Any]:  # Any: JSON values
    """Train a tiny random model on the best device.

    Returns:
        device, device_name, dtype, seconds, checks (the names of what was proved).

    Raises:
        EnvironmentProblem: `environment-build-failed` when training does not lower the loss.
    """
    started_s = time.monotonic()
    compute = choose_compute(RunSpec())
    checks = ["lora"]
    _prove_training(compute)
    if compute.device.type == "cuda":
        _prove_four_bit(compute)
        checks.append("nf4")
    return {
        "device": str(compute.device),
        "device_name": compute.name,
        "dtype": compute.dtype_name,
        "seconds": round(time.monotonic() - started_s, 2),
        "checks": checks,
    }


def _prove_training(compute: Compute) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    base = LlamaForCausalLM(config).to(compute.device, compute.dtype)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    settings = RunSpec().optimizer
    updater = Updater(trainable(model), settings, compute.device, compute.dtype)
    tokens = torch.randint(0, VOCABULARY, (2, 16), device=compute.device)
    losses = []
    for _ in range(NUM_STEPS):
        with compute.autocast():
            loss = model(input_ids=tokens, labels=tokens).loss
        updater.backward(loss)
        updater.update(1e-2)
        losses.append(loss.item())
    if not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
        raise EnvironmentProblem("environment-build-failed", f"A tiny model does not learn here: losses {losses}.")


def _prove_four_bit(compute: Compute) -> None:
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(64, 64, bias=False, compute_dtype=compute.dtype, quant_type="nf4").to(compute.device)
    output = layer(torch.randn(2, 64, device=compute.device, dtype=compute.dtype))
    if not bool(torch.isfinite(output).all()):
        raise EnvironmentProblem("bnb-cuda-lib-missing", "A 4-bit layer computes no numbers here.")
