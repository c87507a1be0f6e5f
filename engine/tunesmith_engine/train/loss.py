"""What an objective is computed from: batches on their device and the logits of their trained places."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel

from tunesmith_engine.data import IGNORED_LABEL, Example, collate


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its device.

    Attributes:
        input_ids: tokens, [rows, length], padded on the right.
        positions: the P places in the rows whose next token is trained in any row, [P].
        targets: the token that follows each such place, -100 where it is not trained, [rows, P].
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor


def make_batch(examples: list[Example], pad_token_id: int, device: torch.device) -> Batch:
    """Build a batch; the copy to a GPU does not wait."""
    tensors = collate(examples, pad_token_id)
    next_labels = tensors["labels"][:, 1:]
    positions = (next_labels != IGNORED_LABEL).any(dim=0).nonzero().flatten()
    parts = (tensors["input_ids"], positions, next_labels[:, positions].contiguous())
    if device.type == "cuda":
        parts = tuple(part.pin_memory().to(device, non_blocking=True) for part in parts)
    return Batch(*parts)


def num_trained_tokens(examples: list[Example]) -> int:
    """Return how many tokens of the examples count for the loss."""
    return sum(example.num_trained_tokens for example in examples)


def takes_positions(model: PeftModel) -> bool:
    """Return whether the model can compute logits at chosen places only."""
    return "logits_to_keep" in inspect.signature(model.get_base_model().forward).parameters


def logits_of(model: PeftModel, batch: Batch, some_positions: bool) -> torch.Tensor:
    """Return the float32 logits at a batch's places, [rows, P, vocabulary].

    Rows are padded on the right and attention looks back only, so padding needs no mask; without one, attention takes
    its fast path and the host need not look into a mask on the GPU.
    """
    if some_positions:
        arguments: dict[str, Any] = {"logits_to_keep": batch.positions}
        logits: torch.Tensor = model(input_ids=batch.input_ids, use_cache=False, **arguments).logits
    else:
        logits = model(input_ids=batch.input_ids, use_cache=False).logits[:, batch.positions]
    return logits.float()
