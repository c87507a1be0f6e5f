"""What a model finds likely at each token of an answer that it has written."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tunesmith_core.datafmt.stored import KEPT_TOKENS, LEAST_KEPT
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.device import Compute
from tunesmith_engine.train.loss import make_batch, predictions, takes_positions

TOKENS_AT_ONCE = 64
"""Whose probabilities over the whole vocabulary exist together in 32 bits."""


def likeliest(
    model: Any, compute: Compute, prompt: list[int], written: list[int]  # Any: a transformers model
) -> list[list[tuple[int, float]]]:
    """Return the likeliest tokens at each token of an answer, the first one first, with their log-probabilities.

    Args:
        model: that has written it.
        compute: its device and number format.
        prompt: what was asked.
        written: the answer, not empty.
    """
    ids = np.array([*prompt, *written], np.int32)
    labels = np.concatenate([np.full(len(prompt), IGNORED_LABEL, np.int32), ids[len(prompt) :]])
    batch = make_batch([Example(ids, labels)], 0, compute.device)
    with torch.inference_mode(), compute.autocast():
        logits = predictions(model, batch, takes_positions(model))[0]
    found: list[list[tuple[int, float]]] = []
    for some in logits.split(TOKENS_AT_ONCE):
        best = some.float().log_softmax(-1).topk(min(KEPT_TOKENS, some.shape[1]))
        least = np.log(LEAST_KEPT)
        for numbers, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            both = list(zip(numbers, values, strict=True))
            found.append([both[0], *(each for each in both[1:] if each[1] >= least)])
    return found
