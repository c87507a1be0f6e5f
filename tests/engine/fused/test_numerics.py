"""In 16 bits the fused model's gradients are as near to the exact ones as the plain path's, whole models long."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, num_trained, rows
from tests.engine.numerics import judge, mutants_fail
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.packed.pack import make_packed_batch

LENGTHS = (23, 1, 17, 2, 31)
FAMILIES = ["llama", "qwen2", "qwen3", "gemma2", "granite", "cohere", "olmo2", "phi3"]
CASES: list[tuple[str, torch.dtype, dict[str, Any]]] = [
    *((name, torch.bfloat16, {}) for name in FAMILIES),
    ("qwen3.5", torch.bfloat16, {}),
    ("gemma4", torch.bfloat16, {}),
    ("gemma4-a4b", torch.bfloat16, {"target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
    ("deepseek-v3", torch.bfloat16, {}),
    # Slow on a CPU, which has no float16 arithmetic of its own.
    *((name, torch.float16, {}) for name in ("llama", "gemma2")),
    *((name, torch.bfloat16, {"use_dora": True}) for name in ("llama", "qwen2", "gemma2")),
    # By PEFT's modules between fused parts.
    ("llama", torch.bfloat16, {"lora_bias": True, "target_modules": ["q_proj", "down_proj"]}),
]
MOST_TURNED = 1e-4

LOSS_SCALE = 1024.0
"""Float16 has a smallest number: both paths scale their gradients."""

Outcome = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""The loss of a step and the gradients by name, in float64."""


def _model(name: str, dtype: torch.dtype, settings: dict[str, Any]) -> PeftModel:
    """Return a family's model with frozen weights in `dtype` and float32 adapters, as a run has it."""
    model = adapted(name, **settings)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    if name != "gemma2":
        # What a run takes, and nearer to the exact result than "eager"; it has no soft cap.
        model.set_attn_implementation("sdpa")
    return model


def _plain(model: PeftModel, dtype: torch.dtype) -> Outcome:
    """Return what the plain path computes: products in `dtype` by autocast, the loss in float32; or all in float64."""
    examples, total = rows(LENGTHS), torch.zeros((), dtype=torch.float64)
    exact = dtype == torch.float64
    for example in examples:
        with contextlib.nullcontext() if exact else compute(dtype).autocast():
            logits = model(input_ids=torch.from_numpy(example.input_ids)[None]).logits[0, :-1]
        labels = torch.from_numpy(example.labels)[1:]
        wide = logits if exact else logits.float()
        loss = torch.nn.functional.cross_entropy(wide, labels, reduction="sum") / num_trained(examples)
        (loss * LOSS_SCALE).backward()
        total += loss.detach()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradients = {name: parameter.grad.double() / LOSS_SCALE for name, parameter in trained.items()}
    return total, gradients


def _fused(model: PeftModel, dtype: torch.dtype) -> Outcome:
    twin = FusedModel.attach(model, compute(dtype), CAPACITY * 2)
    batch = make_packed_batch(rows(LENGTHS), CPU)
    loss = twin.loss_and_gradients(batch, num_trained(rows(LENGTHS)), torch.tensor(LOSS_SCALE))
    gradients = {name: parameter.grad.double() / LOSS_SCALE for name, parameter in twin.arena.parameters.items()}
    return loss.double(), gradients


def _side_by_side(gradients: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return all gradients as one vector in which every parameter weighs alike, large or small."""
    return torch.cat([(gradients[name] / exact[name].square().mean().sqrt()).flatten() for name in exact])


@pytest.mark.parametrize(("name", "dtype", "settings"), CASES)
def test_gradients_in_16_bits_are_as_good_as_those_of_the_plain_path(
    name: str, dtype: torch.dtype, settings: dict[str, Any]
) -> None:
    exact_loss, exact = _plain(_model(name, dtype, settings).double(), torch.float64)
    usual_loss, usual = _plain(_model(name, dtype, settings), dtype)
    loss, gradients = _fused(_model(name, dtype, settings), dtype)
    assert gradients.keys() == exact.keys()
    ours, theirs, oracle = (_side_by_side(some, exact) for some in (gradients, usual, exact))
    judge("gradients", ours, theirs, oracle, dtype)
    mutants_fail(lambda mutant: judge("gradients", mutant, theirs, oracle, dtype), ours)
    judge("loss", loss, usual_loss, exact_loss, dtype)
    mutants_fail(lambda mutant: judge("loss", mutant, usual_loss, exact_loss, dtype), loss)
    # Where 16 bits themselves don't let the plain path come that near, ours must come nearer than it.
    assert _turned(ours, oracle) <= max(MOST_TURNED, _turned(theirs, oracle))


def _turned(vector: torch.Tensor, exact: torch.Tensor) -> float:
    """Return 1 - the cosine of the angle between two vectors."""
    return 1.0 - float(torch.nn.functional.cosine_similarity(vector, exact, dim=0))
