"""Held-out loss and sample texts. Neither changes what training does next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from peft import PeftModel
from transformers import GenerationConfig

from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.model.folder import padding_id
from tunesmith_engine.train.loss import num_trained_tokens
from tunesmith_engine.train.loss_paths import LossPath


@contextlib.contextmanager
def untouched_training(model: PeftModel, device: torch.device) -> Iterator[None]:
    """Switch the model to inference and put training mode and random states back afterwards."""
    was_training = model.training
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            model.train(was_training)


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


def generate(
    model: PeftModel, tokenizer: Any, compute: Compute, prompt: list[int], max_tokens: int
) -> str:  # Any: a transformers tokenizer
    """Return the model's most likely answer to the tokens of a prompt."""
    input_ids = torch.tensor([prompt], device=compute.device)
    ends = {tokenizer.eos_token_id}
    known = getattr(model.get_base_model().generation_config, "eos_token_id", None)
    ends.update(known if isinstance(known, list) else [known])
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_tokens,
        use_cache=True,
        pad_token_id=padding_id(tokenizer, model.get_base_model().config),
        eos_token_id=sorted(end for end in ends if end is not None) or None,
    )
    with untouched_training(model, compute.device), compute.autocast():
        output = model.generate(
            input_ids=input_ids, attention_mask=torch.ones_like(input_ids), generation_config=config
        )
    return str(tokenizer.decode(output[0, input_ids.shape[1] :], skip_special_tokens=True)).strip()
