"""Held-out losses and sample texts. Neither changes what training does next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel

from tunesmith_core.sampling import Sampling
from tunesmith_engine.data import Example
from tunesmith_engine.decode import Decoder, end_tokens
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.train.loss import num_trained_tokens
from tunesmith_engine.train.loss_paths import LossPath, totals_of
from tunesmith_engine.train.metrics import named
from tunesmith_engine.train.rating_path import RatingPath


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well held-out rows are predicted.

    Attributes:
        loss: the mean of the objective: of SFT per trained token in nats, of pairs per pair; of rewards their negative.
        num_tokens: trained tokens; 0 of rewards.
        metrics: of the objective, by their names.
    """

    loss: float
    num_tokens: int
    metrics: dict[str, float]

    @staticmethod
    def of_rewards(rewards: NDArray[np.float64]) -> HeldOut:
        """Return what the rewards of answers to held-out prompts tell, [prompts]."""
        reward = float(rewards.mean())
        return HeldOut(-reward, 0, {"reward": reward})


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
    sums = torch.zeros(1 + len(metrics), device=device, dtype=torch.float64)
    if isinstance(path, RatingPath):
        path.begin_set()
    with untouched_training(model, device):
        totals = totals_of(path, examples, with_adapter, should_stop)
        for portion in path.portions(ordered):
            if should_stop():
                return None
            sums += path.losses(portion, totals, with_adapter)
    loss, *others = sums.tolist()
    found = named(metrics, others)
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
