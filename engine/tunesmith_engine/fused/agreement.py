"""Compares the fused model's loss with transformers' own before a run trusts it: a shape read wrongly is never silent.

The tokens to predict are those that transformers itself finds most likely. With random ones every model is about
equally wrong, so a wrong shape would hardly show; the most likely ones are lost by any change of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import nn

from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.memory import MemoryPlan
from tunesmith_engine.fused.policy import LayerPolicy
from tunesmith_engine.fused.recognise import base_model
from tunesmith_engine.fused.tiling import SMALLEST
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import NotFusableError

LENGTHS = (19, 29)
"""Tokens of the two documents; unequal, and behind each other, so bounds that are missed would show."""

NUM_TOKENS = sum(LENGTHS)

EXACT_SHARE = 1e-4
EXACT_NATS = 1e-6
"""Of the loss, and beside that: how far float32 may be off. Only the order of sums differs, about 1e-6; of a model that
is all but certain that shows in a loss of next to nothing."""

ROUNDED_SHARE = 0.02
ROUNDED_NATS = 0.02
"""The same for 16-bit formats, which round after each operation and not always after the same one."""


def small_plan(plan: MemoryPlan) -> MemoryPlan:
    """Return a plan with just enough room for the comparison, whatever the machine holds."""
    policies = (LayerPolicy("full"),) * len(plan.policies)
    return replace(plan, policies=policies, capacity_tokens=NUM_TOKENS, tiling=SMALLEST)


def check_agreement(
    model: PeftModel, compute: Compute, num_logits: int, fused_loss: Callable[[PackedBatch], torch.Tensor]
) -> None:
    """Compare the logits in their number, and the losses of a few random tokens.

    Args:
        model: the transformers model with its adapters; it is left in the mode in which it was.
        compute: the run's device and number format.
        num_logits: how many the fused model has for a token. Some leave the last ones out, whose share of a loss is as
            small as rounding.
        fused_loss: the summed loss of a micro-batch by the fused model, in nats.

    Raises:
        NotFusableError: the numbers differ, or the losses by more than rounding.
    """
    examples, theirs, num_trained = [], 0.0, 0
    with torch.no_grad(), _evaluating(model):
        for document in _random_documents(model):
            with compute.autocast():
                ids = torch.from_numpy(document)[None].long().to(compute.device)
                logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
            if logits.shape[1] != num_logits:
                raise NotFusableError(
                    "The model uses {used} of the {num_logits} logits that its output layer gives.",
                    used=logits.shape[1],
                    num_logits=num_logits,
                )
            likely = logits.argmax(dim=1)
            theirs += nn.functional.cross_entropy(logits, likely, reduction="sum").item()
            examples.append(Example(document, np.concatenate((document[:1], likely.int().cpu().numpy()))))
            num_trained += len(likely)
        ours = fused_loss(make_packed_batch(examples, compute.device)).item() / num_trained
    theirs /= num_trained
    exact = compute.dtype == torch.float32
    allowed = EXACT_SHARE * theirs + EXACT_NATS if exact else ROUNDED_SHARE * theirs + ROUNDED_NATS
    # Written so that a NaN is refused.
    if not abs(ours - theirs) <= allowed:
        raise NotFusableError(
            "The fused model's loss differs from that of transformers ({ours} and {theirs} nats per token).",
            ours=f"{ours:.4f}",
            theirs=f"{theirs:.4f}",
        )


def _random_documents(model: PeftModel) -> list[NDArray[np.int32]]:
    """Return the same documents each time; no generator that a run uses is touched."""
    generator = np.random.default_rng(0)
    num_tokens = plain(base_model(model).get_input_embeddings()).num_embeddings
    return [generator.integers(num_tokens, size=length, dtype=np.int32) for length in LENGTHS]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and leave every module as it was."""
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        # For evaluation on a CPU bitsandbytes packs its weights anew and rounds more.
        module.training = hasattr(getattr(module, "weight", None), "quant_state")
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
