"""Held-out losses and sample texts. Neither changes what training does next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith_core.sampling import Sampling
from tunesmith_engine.data import Example
from tunesmith_engine.decode import Decoder, end_tokens
from tunesmith_engine.decode.plain import within
from tunesmith_engine.distillation.path import DistillationPath
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.model.row_lengths import learned_positions
from tunesmith_engine.train.loss import num_trained_tokens
from tunesmith_engine.train.loss_paths import LossPath, totals_of
from tunesmith_engine.train.metrics import named
from tunesmith_engine.train.rating_path import RatingPath

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well held-out rows are predicted.

    Attributes:
        loss: the mean of the objective: of SFT per trained token in nats, of pairs per pair; of rewards their negative.
        num_tokens: trained tokens; 0 of rewards.
        metrics: of the objective, by their names.
        source_losses: of SFT, loss and trained tokens of the rows of each data file, where there are several.
    """

    loss: float
    num_tokens: int
    metrics: dict[str, float]
    source_losses: tuple[tuple[float, int], ...] = ()

    @staticmethod
    def of_rewards(rewards: NDArray[np.float64]) -> HeldOut:
        """Return what the rewards of answers to held-out prompts tell, [prompts]."""
        reward = float(rewards.mean())
        return HeldOut(-reward, 0, {"reward": reward})


def held_out(
    model: TrainedModel,
    path: LossPath,
    examples: list[Example],
    device: torch.device,
    metrics: Sequence[str],
    with_adapter: bool,
    should_stop: Callable[[], bool],
    num_of_sources: Sequence[int] = (),
) -> HeldOut | None:
    """Return how well rows are predicted, or None when stopped on the way.

    Args:
        model: with its adapter.
        path: computes its loss.
        examples: the held-out rows.
        device: of the model.
        metrics: names of the numbers behind the loss.
        with_adapter: whether the adapter is on.
        should_stop: asked before each micro-batch.
        num_of_sources: how many rows come from each data file, one file behind the other.
    """
    rates = isinstance(path, RatingPath)
    of_divergence = isinstance(path, DistillationPath) or any(example.soft for example in examples)
    of_tokens = not (rates or path.objective is not None or of_divergence)
    groups = _of_sources(examples, num_of_sources) if of_tokens else [examples]
    sums = torch.zeros(len(groups), 1 + len(metrics), device=device, dtype=torch.float64)
    if isinstance(path, RatingPath):
        path.begin_set()
    with untouched_training(model, device):
        totals = totals_of(path, examples, with_adapter, should_stop)
        # Longest first: little padding, and too little memory shows at once.
        for number in sorted(range(len(groups)), key=lambda number: -_longest(groups[number])):
            for portion in path.portions(sorted(groups[number], key=lambda example: -example.num_tokens)):
                if should_stop():
                    return None
                sums[number] += path.losses(portion, totals, with_adapter)
    loss, *others = sums.sum(0).tolist()
    num_tokens = num_trained_tokens(examples)
    figures = path.figures() if isinstance(path, RatingPath) else {}
    found = HeldOut(loss, num_tokens, {**named(metrics, others), **figures})
    if len(groups) == 1:
        return found
    each = zip(sums[:, 0].tolist(), map(num_trained_tokens, groups), strict=True)
    return replace(found, source_losses=tuple((share * num_tokens / max(1, own), own) for share, own in each))


def _of_sources(examples: list[Example], num_of_sources: Sequence[int]) -> list[list[Example]]:
    """Return the rows of each data file that has some, all in one where they are not told apart."""
    if sum(num_of_sources) != len(examples):
        return [examples]
    ends = list(accumulate(num_of_sources))
    return [examples[end - num : end] for num, end in zip(num_of_sources, ends, strict=True) if num]


def _longest(examples: list[Example]) -> int:
    return max((example.num_tokens for example in examples), default=0)


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote.

    Attributes:
        cut_at: number of tokens at which it was cut; 0 where the model ended it.
    """

    text: str
    cut_at: int


def generate(
    decoder: Decoder,
    model: TrainedModel,
    tokenizer: Any,  # Any: a transformers tokenizer
    prompt: list[int],
    max_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    with_adapter: bool = True,
) -> Written:
    """Return the model's most likely answer to the tokens of a prompt, word for word; no memory of it is kept.

    Without the adapter, the model answers as before the run.

    Raises:
        TunesmithError: `sample-failed` where the prompt is longer than what the model has positions for.
    """
    ends = end_tokens(model.get_base_model(), tokenizer)
    sampling = within(Sampling(max_tokens), len(prompt), learned_positions(model))
    try:
        (answer,) = decoder.generate([prompt], sampling, ends, with_adapter=with_adapter, should_stop=should_stop)
    finally:
        decoder.release()
    text = str(tokenizer.decode(answer, skip_special_tokens=True))
    return Written(text, sampling.max_tokens if len(answer) >= sampling.max_tokens else 0)
