"""What an objective is computed from: batches on their device and the logits of their trained places."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.preference.labeled import LabeledObjective
from tunesmith_engine.preference.objective import PreferenceObjective
from tunesmith_engine.reinforcement.objective import PolicyObjective

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel
    from tunesmith_engine.packed.answers import Answers
    from tunesmith_engine.packed.batch import SoftTokens


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


Objective = PreferenceObjective | LabeledObjective | PolicyObjective
"""What is minimised, as a function of the log-probabilities of tokens."""


def kept_reference(portion: Sequence[Example], device: torch.device) -> torch.Tensor | None:
    """Return what is kept of the trained tokens of a micro-batch, [R] on the device; None where nothing is."""
    parts = [sequence.reference for row in portion for sequence in row.sequences]
    known = [part for part in parts if part is not None]
    return torch.from_numpy(np.concatenate(known)).to(device) if known and len(known) == len(parts) else None


def objective_of(
    objective: Objective,
    log_probabilities: torch.Tensor,
    reference: torch.Tensor | None,
    examples: Sequence[Example],
    answers: Answers,
    totals: Totals,
) -> torch.Tensor:
    """Return the share of a micro-batch in the loss of a step and in each metric, float32 [1 + metrics].

    Args:
        objective: a function of them.
        log_probabilities: of the trained tokens of the micro-batch, float32 [R].
        reference: those by the base model; None where nothing is compared with it.
        examples: the micro-batch.
        answers: which of the tokens belongs to which sequence of the examples.
        totals: of the whole step.
    """
    if isinstance(objective, PreferenceObjective):
        sums = answers.sums(log_probabilities)
        before = None if reference is None else answers.sums(reference)
        return objective(sums, before, answers.num_tokens, totals.num_rows, totals.num_trained_tokens)
    device = log_probabilities.device
    if isinstance(objective, LabeledObjective):
        assert reference is not None, "it is always compared"
        are_good = torch.tensor([not example.is_bad for example in examples]).to(device)
        sides = totals.num_rows, totals.num_good
        return objective(answers.sums(log_probabilities), answers.sums(reference), are_good, *sides, totals.kl)
    sampled = [example.sampled for example in examples]
    advantages = torch.tensor([each.advantage if each else 0.0 for each in sampled], dtype=torch.float32).to(device)
    known = [each.log_probabilities for each in sampled if each and each.log_probabilities is not None]
    then = torch.from_numpy(np.concatenate(known)).to(device) if known else None
    return objective(
        *(log_probabilities, then, reference, advantages, answers), totals.num_rows, totals.num_trained_tokens
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its device.

    Attributes:
        input_ids: tokens, [rows, length], padded on the right.
        positions: the P places in the rows whose next token is trained in any row, [P].
        targets: the token that follows each such place, -100 where it is not trained, [rows, P].
        lengths: tokens of each row without padding.
        soft: how likely these and other tokens should be, one row behind the other; None where only those are learned.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    lengths: tuple[int, ...]
    soft: SoftTokens | None = None


def make_batch(examples: Sequence[Example], pad_token_id: int, device: torch.device) -> Batch:
    """Build a batch; the copy to a GPU does not wait."""
    tensors = collate(examples, pad_token_id)
    next_labels = tensors["labels"][:, 1:]
    positions = (next_labels != IGNORED_LABEL).any(dim=0).nonzero().flatten()
    parts = (tensors["input_ids"], positions, next_labels[:, positions].contiguous())
    if device.type == "cuda":
        parts = tuple(part.pin_memory().to(device, non_blocking=True) for part in parts)
    lengths = tuple(len(example.input_ids) for example in examples)
    if examples[0].soft is None:
        return Batch(*parts, lengths)
    # Only runs that learn from what a bigger model found likely need it.
    from tunesmith_engine.packed.pack import soft_tokens

    return Batch(*parts, lengths, soft_tokens(examples, device))


def num_trained_tokens(examples: Sequence[Example]) -> int:
    """Return how many tokens of the examples count for the loss."""
    return sum(example.num_trained_tokens for example in examples)


def takes_positions(model: Any) -> bool:  # Any: a transformers model, or one with an adapter
    """Return whether the model can compute logits at chosen places only."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters


def logits_of(model: TrainedModel, batch: Batch, some_positions: bool) -> torch.Tensor:
    """Return the float32 logits at a batch's places, [rows, P, vocabulary]."""
    return predictions(model, batch, some_positions).float()


def predictions(model: Any, batch: Batch, some_positions: bool) -> torch.Tensor:  # Any: a model with or without adapter
    """Return the logits at a batch's places in the format in which the model computes them, [rows, P, vocabulary].

    Rows are padded on the right and attention looks back only, so padding needs no mask; without one, attention takes
    its fast path and the host need not look into a mask on the GPU.
    """
    if some_positions:
        arguments: dict[str, Any] = {"logits_to_keep": batch.positions}
        logits: torch.Tensor = model(input_ids=batch.input_ids, use_cache=False, **arguments).logits
    else:
        logits = model(input_ids=batch.input_ids, use_cache=False).logits[:, batch.positions]
    return logits


def token_log_probabilities(
    model: TrainedModel, batch: Batch, some_positions: bool, temperature: float = 1.0
) -> torch.Tensor:
    """Return the log-probabilities of the trained tokens, one row behind the other, in nats, float32 [R].

    Args:
        model, batch, some_positions: as in `logits_of`.
        temperature: what logits are divided by.
    """
    return _of_targets(logits_of(model, batch, some_positions), batch, temperature)


def _of_targets(logits: torch.Tensor, batch: Batch, temperature: float) -> torch.Tensor:
    if temperature != 1.0:
        logits = logits / temperature
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED_LABEL, reduction="none"
    )
    return -losses[batch.targets.flatten() != IGNORED_LABEL]


def balanced_log_probabilities(
    model: TrainedModel, batch: Batch, some_positions: bool, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `token_log_probabilities`, and what the model adds for an even use of its experts, a float32 scalar.
    """
    logits, balance = _balanced(model, batch, some_positions)
    return _of_targets(logits.float(), batch, temperature), balance


def learned_logits(
    model: TrainedModel, batch: Batch, some_positions: bool
) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Return the logits of the trained tokens, float32 [R, vocabulary], and what the model adds for its experts."""
    logits, balance = (
        _balanced(model, batch, some_positions)
        if balances_experts(model)
        else (predictions(model, batch, some_positions), 0.0)
    )
    return logits.flatten(0, 1)[batch.targets.flatten() != IGNORED_LABEL].float(), balance


def _balanced(model: TrainedModel, batch: Batch, some_positions: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits as `predictions` does, and what the model adds for an even use of its experts.

    What it adds leaves padding out, so the model must be told what is padding.
    """
    arguments: dict[str, Any] = {"logits_to_keep": batch.positions} if some_positions else {}
    found = model(input_ids=batch.input_ids, attention_mask=_mask(batch), use_cache=False, **arguments)
    logits = found.logits if some_positions else found.logits[:, batch.positions]
    return logits, balance_weight(model) * found.aux_loss.float()


def balance_weight(model: TrainedModel) -> float:
    """Return the weight of what a model adds for an even use of its experts; 0 where it adds nothing."""
    config = model.get_base_model().config.get_text_config()
    return float(getattr(config, "router_aux_loss_coef", 0.0)) if balances_experts(model) else 0.0


def balances_experts(model: TrainedModel) -> bool:
    """Return whether the model's own loss holds a share for an even use of its experts (output_router_logits)."""
    return bool(getattr(model.get_base_model().config.get_text_config(), "output_router_logits", False))


def own_summed_loss(model: TrainedModel, batch: Batch) -> torch.Tensor:
    """Return the model's own mean loss of a batch times its trained tokens.

    The share for the balance of experts leaves padding out, so the model must be told what is padding.
    """
    labels = torch.full_like(batch.input_ids, IGNORED_LABEL)
    labels[:, batch.positions + 1] = batch.targets
    loss: torch.Tensor = model(
        input_ids=batch.input_ids, attention_mask=_mask(batch), labels=labels, use_cache=False
    ).loss
    return loss.float() * (batch.targets != IGNORED_LABEL).sum()


def _mask(batch: Batch) -> torch.Tensor:
    """Return 1 for tokens and 0 for padding, [rows, length]."""
    ids = batch.input_ids
    lengths = torch.tensor(batch.lengths, device=ids.device)
    return (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
