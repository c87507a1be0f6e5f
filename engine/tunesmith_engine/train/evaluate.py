"""Held-out losses and sample texts. Neither changes what training does next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core.sampling import Sampling
from tunesmith_engine.data import Example
from tunesmith_engine.decode import Decoder, end_tokens
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.train.loss import Totals, num_trained_tokens
from tunesmith_engine.train.loss_paths import LossPath
from tunesmith_engine.train.rating_path import RatingPath


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well held-out rows are predicted.

    Attributes:
        loss: the mean of the objective: of SFT per trained token in nats, of pairs per pair.
        num_tokens: trained tokens.
        metrics: of the objective, by their names.
    """

    loss: float
    num_tokens: int
    metrics: dict[str, float]


def held_out(
    model: PeftModel,
    path: LossPath,
    examples: list[Example],
    device: torch.device,
    metrics: Sequence[str],
    with_adapter: bool,
    should_stop: Callable[[], bool],
) -> HeldOut | None:
    """Return how well rows are predicted, or None when stopped on the way."""
    # Longest first: little padding, and a lack of memory shows at once.
    ordered = sorted(examples, key=lambda example: -example.num_tokens)
    totals = Totals.of(examples)
    sums = torch.zeros(1 + len(metrics), device=device, dtype=torch.float64)
    if isinstance(path, RatingPath):
        path.begin_set()
    with untouched_training(model, device):
        for portion in path.portions(ordered):
            if should_stop():
                return None
            sums += path.losses(portion, totals, with_adapter)
    loss, *others = sums.tolist()
    found = dict(zip(metrics, others, strict=True))
    if isinstance(path, RatingPath):
        found |= path.figures()
    return HeldOut(loss, num_trained_tokens(examples), found)


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote.

    Attributes:
        cut_at: number of tokens at which it was cut; 0 where the model ended it.
    """

    text: str
    cut_at: int = 0


def generate(
    decoder: Decoder,
    model: PeftModel,
    tokenizer: Any,  # Any: a transformers tokenizer
    prompt: list[int],
    max_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Written:
    """Return the model's most likely answer to the tokens of a prompt; no memory of it is kept."""
    ends = end_tokens(model.get_base_model(), tokenizer)
    try:
        (answer,) = decoder.generate([prompt], Sampling(max_tokens), ends, should_stop=should_stop)
    finally:
        decoder.release()
    text = str(tokenizer.decode(answer, skip_special_tokens=True)).strip()
    return Written(text, max_tokens if len(answer) >= max_tokens else 0)
