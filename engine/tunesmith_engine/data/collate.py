"""Examples of different lengths as one batch of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tunesmith_engine.data.example import IGNORED_LABEL, Example


def collate(examples: Sequence[Example], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Pad examples on the right to the longest of them.

    Returns:
        "input_ids", "labels" and "attention_mask", each int64 of shape [num_examples, longest]. Labels are the input
        ids where a token counts for the loss and -100 elsewhere, not shifted; the mask is 1 on real tokens.
    """
    shape = (len(examples), max(len(example.input_ids) for example in examples))
    input_ids = torch.full(shape, pad_token_id, dtype=torch.int64)
    labels = torch.full(shape, IGNORED_LABEL, dtype=torch.int64)
    attention_mask = torch.zeros(shape, dtype=torch.int64)
    for row, example in enumerate(examples):
        length = len(example.input_ids)
        input_ids[row, :length] = torch.from_numpy(example.input_ids)
        labels[row, :length] = torch.from_numpy(example.labels)
        attention_mask[row, :length] = 1
    return {"input_ids": input_ids, "labels": labels, "attention_mask": attention_mask}
