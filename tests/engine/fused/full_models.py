"""Tiny models whose own weights are trained, and their gradients by autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import num_trained
from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.packed.pack import make_packed_batch

Gradients = dict[str, torch.Tensor]


def full_model(
    name: str, dtype: torch.dtype = torch.float32, device: str = "cpu", **overrides: Any
) -> FullModel:
    """Return a family's model with all weights trained."""
    base = families.make(name, **overrides).to(device, dtype)
    if dtype != torch.float64 and base._supports_sdpa and name not in ("gemma2", "vaultgemma"):
        # What a run takes; it has no soft cap, which these have.
        base.set_attn_implementation("sdpa")
    return FullModel(base.requires_grad_(True), dict)


def plain_gradients(
    model: FullModel, examples: Sequence[Example], autocast: torch.dtype | None = None
) -> tuple[torch.Tensor, Gradients]:
    """Return loss and gradients as transformers and autograd have them, in float64."""
    device = next(model.parameters()).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    for example in examples:
        with torch.autocast(device.type, autocast) if autocast else contextlib.nullcontext():
            logits = model(input_ids=torch.from_numpy(example.input_ids)[None].to(device)).logits[0, :-1]
        labels = torch.from_numpy(example.labels)[1:].long().to(device)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        loss = torch.nn.functional.cross_entropy(wide, labels, reduction="sum") / num_trained(list(examples))
        loss.backward()
        total += loss.detach()
    return total, taken(model)


def fused_gradients(
    model: FullModel, examples: list[Example], compute: Compute, policy: str = "auto", portions: int = 1
) -> tuple[FusedModel, torch.Tensor, Gradients]:
    """Return the fused model, its loss and its gradients in float64."""
    fused = FusedModel.attach(model, compute, sum(example.num_tokens for example in examples), policy)
    loss = torch.zeros((), dtype=torch.float64, device=compute.device)
    for start in range(portions):
        batch = make_packed_batch(examples[start::portions], compute.device)
        loss += fused.loss_and_gradients(batch, num_trained(examples))
    return fused, loss, taken(model)


def taken(model: FullModel) -> Gradients:
    """Return the gradients that are there, and take them away."""
    found = {}
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            found[name] = weight.grad.double().clone()
            weight.grad = None
    return found


def side_by_side(gradients: Gradients, exact: Gradients) -> torch.Tensor:
    """Return all gradients as one vector in which every weight counts alike, large or small."""
    parts = [(gradients[name] / exact[name].square().mean().sqrt().clamp_min(1e-30)).flatten() for name in exact]
    return torch.cat(parts)
