"""What an objective is computed from: batches on their device and the logits of their trained places."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from peft import PeftModel

from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.collate import collate


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all rows over which a loss is a mean, such as those of a step.

    Attributes:
        num_rows: rows, pairs where a run learns from these; at least 1.
        num_trained_tokens: tokens to learn, see `Example.num_trained_tokens`; at least 1.
        num_good: rows whose answer is not labeled bad.
        kl: how far the model has moved from its reference on other answers, in nats, where the objective needs to know;
            a 0-dim tensor.
    """

    num_rows: int
    num_trained_tokens: int
    num_good: int = 0
    kl: torch.Tensor | None = None

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Totals:
        """Return those of some rows."""
        num_good = sum(not example.is_bad for example in examples)
        return cls(max(1, len(examples)), max(1, num_trained_tokens(examples)), num_good)


class Objective(Protocol):
    """What is minimised, as a function of the log-probabilities of whole answers.

    Attributes:
        metrics: names of what is told of a step beside the loss.
        has_reference: whether it is a function of the base model's log-probabilities, too.
        needs_kl: whether it is a function of the KL divergence from the base model, too.
    """

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def has_reference(self) -> bool: ...

    @property
    def needs_kl(self) -> bool: ...

    def __call__(
        self,
        sums: torch.Tensor,
        reference: torch.Tensor | None,
        num_tokens: torch.Tensor,
        are_good: torch.Tensor,
        totals: Totals,
    ) -> torch.Tensor:
        """Return the share of a micro-batch in the step's loss and in each of `metrics`, float32 [1 + metrics].

        Args:
            sums: log-probabilities of the answers in nats, of pairs each better one before its worse one, [answers].
            reference: those of the reference model; None without one.
            num_tokens: trained tokens of the answers.
            are_good: which answers are good; of pairs the better ones.
            totals: of all micro-batches of the step.
        """


def are_good(examples: Sequence[Example], device: torch.device) -> torch.Tensor:
    """Return which answers of a micro-batch are good, bool [answers] on the device."""
    good = [not sequence.is_bad and sequence is example for example in examples for sequence in example.sequences]
    return torch.tensor(good, device=device)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its device.

    Attributes:
        input_ids: tokens, [rows, length], padded on the right.
        positions: the P places in the rows whose next token is trained in any row, [P].
        targets: the token that follows each such place, -100 where it is not trained, [rows, P].
        lengths: tokens of each row without padding.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    lengths: tuple[int, ...]


def make_batch(examples: Sequence[Example], pad_token_id: int, device: torch.device) -> Batch:
    """Build a batch; the copy to a GPU does not wait."""
    tensors = collate(examples, pad_token_id)
    next_labels = tensors["labels"][:, 1:]
    positions = (next_labels != IGNORED_LABEL).any(dim=0).nonzero().flatten()
    parts = (tensors["input_ids"], positions, next_labels[:, positions].contiguous())
    if device.type == "cuda":
        parts = tuple(part.pin_memory().to(device, non_blocking=True) for part in parts)
    return Batch(*parts, tuple(len(example.input_ids) for example in examples))


def num_trained_tokens(examples: Sequence[Example]) -> int:
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


def answer_sums(model: PeftModel, batch: Batch, some_positions: bool) -> torch.Tensor:
    """Return the log-probability of each row's trained tokens in nats, float32 [rows]."""
    logits = logits_of(model, batch, some_positions)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED_LABEL, reduction="none"
    )
    return -losses.view(batch.targets.shape).sum(dim=1)


def balances_experts(model: PeftModel) -> bool:
    """Return whether the model's own loss holds a share for an even use of its experts (output_router_logits)."""
    return bool(getattr(model.get_base_model().config.get_text_config(), "output_router_logits", False))


def own_summed_loss(model: PeftModel, batch: Batch) -> torch.Tensor:
    """Return the model's own mean loss of a batch times its trained tokens.

    The share for the balance of experts leaves padding out, so the model must be told what is padding.
    """
    labels = torch.full_like(batch.input_ids, IGNORED_LABEL)
    labels[:, batch.positions + 1] = batch.targets
    lengths = torch.tensor(batch.lengths, device=labels.device)
    mask = (torch.arange(labels.shape[1], device=labels.device) < lengths[:, None]).long()
    loss: torch.Tensor = model(input_ids=batch.input_ids, attention_mask=mask, labels=labels, use_cache=False).loss
    return loss.float() * (batch.targets != IGNORED_LABEL).sum()
