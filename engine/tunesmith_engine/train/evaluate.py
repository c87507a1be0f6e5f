"""Held-out loss and sample texts. Neither changes what training does next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core.sampling import Sampling
from tunesmith_engine.data import Example
from tunesmith_engine.decode import Decoder, end_tokens
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.train.loss import num_trained_tokens
from tunesmith_engine.train.loss_paths import LossPath


def held_out_loss(
    model: PeftModel,
    path: LossPath,
    examples: list[Example],
    device: torch.device,
    with_adapter: bool,
    should_stop: Callable[[], bool],
) -> tuple[float, int] | None:
    """Return the mean loss per trained token in nats and the number of tokens, or None when stopped on the way."""
    # Longest first: little padding, and a lack of memory shows at once.
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    total = torch.zeros((), device=device, dtype=torch.float64)
    with untouched_training(model, device):
        for portion in path.portions(ordered):
            if should_stop():
                return None
            total += path.summed_loss(portion, with_adapter)
    num_tokens = num_trained_tokens(examples)
    return total.item() / max(1, num_tokens), num_tokens


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
