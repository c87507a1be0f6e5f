"""How gradients and losses of rows come about: by the fused model where the base model allows it, else by autograd.

Both ways have one face, so the training loop, the evaluation and the test of the memory plan know no difference.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.kernel_words import BALANCED, PLAIN
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.decode import MOST_ROWS, Decoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.device import Compute
from tunesmith_engine.methods import Method
from tunesmith_engine.model.causality import check_looks_back_only, feels_padding
from tunesmith_engine.model.expert_places import ExpertPlaces
from tunesmith_engine.model.lora import use_activation_checkpointing
from tunesmith_engine.model.other_weights import asked_with, before_run, reference_of
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.preference.labeled import LabeledObjective, mismatched
from tunesmith_engine.shapes import NotFusableError
from tunesmith_engine.train.loss import (
    Objective,
    Totals,
    balance_weight,
    balanced_log_probabilities,
    kept_reference,
    make_batch,
    objective_of,
    takes_positions,
    token_log_probabilities,
)
from tunesmith_engine.train.neftune import alpha_of, noisy
from tunesmith_engine.train.optim import Updater

if TYPE_CHECKING:
    from tunesmith_engine.fused.arena import AdapterArena
    from tunesmith_engine.model.full import TrainedModel
    from tunesmith_engine.train.fused_path import Timing


Item = TypeVar("Item")


class LossPath(Protocol):
    """Computes the loss of rows, portion by portion.

    Attributes:
        name: "fused" or "plain".
        arena: where the trained parameters lie when they lie together.
        keeps_less_first: whether keeping fewer activations costs less time than smaller portions.
        plan_bytes: expected peak of what PyTorch allocates on a GPU; None where nobody knows.
        longest: tokens of the longest row that passes in one piece.
        objective: what is minimised; None for the mean cross-entropy.
        rows_at_once: answers for whose writing there is room.
        can_go_by_layer: whether gradients of whole weights can be consumed layer by layer.
    """

    can_go_by_layer: bool
    rows_at_once: int
    name: str
    longest: int
    objective: Objective | None
    arena: AdapterArena | None
    keeps_less_first: bool

    @property
    def plan_bytes(self) -> int | None: ...

    @property
    def report(self) -> list[str]:
        """Which parts run fused, which don't and why; how activations are kept: a sentence each."""

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        """Divide rows into micro-batches; the same rows in the same order give the same answer."""

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        """Add a micro-batch's gradients to what is there and return its share of the step's loss, on the device.

        Args:
            portion: rows of one micro-batch.
            totals: of the whole step.
            updater: knows the scale of the loss.

        Returns:
            The share in the loss, and in each metric of the objective, float32 [1 + metrics].
        """

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """Return the same as `add_gradients` in float64, without gradients."""

    def log_probabilities(self, portion: list[Example], with_adapter: bool = True) -> torch.Tensor:
        """Return those of the trained tokens of a micro-batch, one sequence behind the other, in nats, float32 [R]."""

    def reference(self, portion: list[Example]) -> torch.Tensor:
        """Return the same by the model with which the objective compares, without gradients."""

    def weights_changed(self) -> None:
        """Take note of an update of the trained weights."""

    def use_micro_batch_size(self, micro_batch_size: int) -> bool:
        """Take at most as many rows at a time, or as many tokens as so many of the longest rows have.

        Returns:
            Whether that is less than before.
        """

    def keep_less(self) -> str | None:
        """Keep fewer activations from now on; returns a sentence about it, None when there is no less."""

    def out_of_the_way(self) -> AbstractContextManager[None]:
        """Hold as little memory as possible for a while."""

    def decoder(self) -> Decoder:
        """Return the way to answer with the weights as they are now."""

    def close(self) -> None:
        """Take back what was done to the model."""


class PlainPath:
    """Padded micro-batches through the transformers model and PyTorch's autograd.

    Rows whose rotary tables differ by their length are not padded to each other's length, nor any rows where padding
    changes what the model predicts.
    """

    name = "plain"
    arena: AdapterArena | None = None
    keeps_less_first = False
    plan_bytes: int | None = None
    can_go_by_layer = False
    rows_at_once = MOST_ROWS

    def __init__(
        self,
        model: TrainedModel,
        compute: Compute,
        pad_token_id: int,
        micro_batch_size: int,
        activation_checkpointing: bool,
        reason: str,
        method: Method,
        objective: Objective | None = None,
        equal_lengths: bool = False,
        longest: int = sys.maxsize,
        temperature: float = 1.0,
        neftune_alpha: float = 0.0,
    ) -> None:
        self._temperature = temperature
        self.report: list[str] = [Message(PLAIN.template, reason=reason)]
        if equal_lengths:
            self.report.append(
                Message("Padding changes what this model computes, so only examples of one length share a micro-batch.")
            )
        self.report += ExpertPlaces(model, compute.device).report
        balances = balance_weight(model) > 0
        if balances and objective is None and method.writes:
            self.report.append(BALANCED)
        self._balances = balances and objective is not None
        self._equal_lengths, self._neftune_alpha = equal_lengths, neftune_alpha
        self._rotary = RotarySwitches(model)
        self._method, self.objective, self.longest = method, objective, longest
        self._model = model
        self._compute = compute
        self._pad_token_id = pad_token_id
        self._micro_batch_size = micro_batch_size
        self._some_positions = takes_positions(model)
        self._checkpoints = activation_checkpointing and use_activation_checkpointing(model)
        if activation_checkpointing and not self._checkpoints:
            self.report.append(
                Message("Activation checkpointing is off: transformers does not support it for this model.")
            )

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        """Divide rows in their order into micro-batches of the same number, apart where their lengths say so."""
        size = self._micro_batch_size
        # The answers of a pair come apart later, where they must.
        alike = self._alike(examples, lambda example: len(example.input_ids)) if self.objective is None else [examples]
        return [rows[start : start + size] for rows in alike for start in range(0, len(rows), size)]

    def _alike(self, items: list[Item], length_of: Callable[[Item], int]) -> list[list[Item]]:
        """Put those together that can be padded to one length."""
        alike: dict[tuple[int, ...], list[Item]] = {}
        for item in items:
            length = length_of(item)
            alike.setdefault((length,) if self._equal_lengths else self._rotary.table_of(length), []).append(item)
        return list(alike.values())

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        """See LossPath."""
        if self.objective is None:
            with noisy(self._model, self._neftune_alpha, [len(example.input_ids) for example in portion]):
                shares = (self._summed_loss(portion) / totals.num_trained_tokens).reshape(1)
        else:
            shares = self._objective_shares(self.objective, portion, totals)
        updater.backward(shares[0])
        return shares.detach()

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """See LossPath."""
        with torch.no_grad():
            if self.objective is not None:
                return self._objective_shares(self.objective, portion, totals, with_adapter).double()
            with self._adapter(with_adapter):
                return (self._summed_loss(portion).double() / totals.num_trained_tokens).reshape(1)

    def _adapter(self, is_on: bool) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if is_on else before_run(self._model)

    def _summed_loss(self, portion: list[Example]) -> torch.Tensor:
        batch = make_batch(portion, self._pad_token_id, self._compute.device)
        self._rotary.forget_lengths()
        with self._compute.autocast():
            return self._method.summed_loss(self._model, batch, self._some_positions)

    def _objective_shares(
        self, objective: Objective, portion: list[Example], totals: Totals, with_adapter: bool = True
    ) -> torch.Tensor:
        device = self._compute.device
        # The base model beside itself is rated 0 to the bit, as what is kept of other micro-batches is not.
        reference = kept_reference(portion, device) if objective.has_reference and with_adapter else None
        if objective.has_reference and reference is None:
            reference = self.reference(portion)
        # Only runs with an objective need it.
        from tunesmith_engine.packed.answers import Answers

        answers = Answers.of(portion, device)
        balance: list[torch.Tensor] | None = [] if self._balances else None
        now = self._log_probabilities(portion, with_adapter, balance)
        shares = objective_of(objective, now, reference, portion, answers, totals)
        if balance:
            # The mean of the sequences, and of the rows of a step.
            share = torch.stack(balance).sum() / sum(len(each.sequences) for each in portion)
            shares = torch.cat([shares[:1] + share * len(portion) / totals.num_rows, shares[1:]])
        return shares

    def reference(self, portion: list[Example]) -> torch.Tensor:
        """See LossPath."""
        weights = reference_of(self._model)
        with torch.no_grad():
            if weights is None:
                return self.log_probabilities(portion, False)
            with asked_with(self._model, weights):
                return self.log_probabilities(portion)

    def log_probabilities(self, portion: list[Example], with_adapter: bool = True) -> torch.Tensor:
        """See LossPath; sequences that can't be padded to one length go apart."""
        return self._log_probabilities(portion, with_adapter)

    def _log_probabilities(
        self, portion: list[Example], with_adapter: bool, balance: list[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Return them, and append to a list what the model adds for its experts, times the sequences that it is of."""
        sequences = [sequence for example in portion for sequence in example.sequences]
        apart = self._alike(list(enumerate(sequences)), lambda placed: len(placed[1].input_ids))
        found: dict[int, torch.Tensor] = {}
        for placed in apart:
            rows = [row for _, row in placed]
            batch = make_batch(rows, self._pad_token_id, self._compute.device)
            self._rotary.forget_lengths()
            with self._compute.autocast(), self._adapter(with_adapter):
                ways = self._some_positions, self._temperature
                if balance is None:
                    together = token_log_probabilities(self._model, batch, *ways)
                else:
                    together, added = balanced_log_probabilities(self._model, batch, *ways)
                    balance.append(added * len(rows))
            counts = [row.num_trained_tokens for row in rows]
            found |= {place: each for (place, _), each in zip(placed, together.split(counts), strict=True)}
        return torch.cat([found[place] for place in range(len(sequences))])

    def weights_changed(self) -> None:
        """See LossPath; autograd reads the weights themselves."""

    def use_micro_batch_size(self, micro_batch_size: int) -> bool:
        """See LossPath."""
        is_less = micro_batch_size < self._micro_batch_size
        self._micro_batch_size = micro_batch_size
        return is_less

    def keep_less(self) -> str | None:
        """Switch activation checkpointing on."""
        if self._checkpoints or not use_activation_checkpointing(self._model):
            return None
        self._checkpoints = True
        return Message("Continuing with activation checkpointing.")

    def out_of_the_way(self) -> AbstractContextManager[None]:
        """See LossPath; autograd holds nothing between steps."""
        return contextlib.nullcontext()

    def decoder(self) -> Decoder:
        """See LossPath."""
        return PlainDecoder(self._model, self._compute)

    def close(self) -> None:
        """See LossPath."""
        if self._checkpoints:
            self._model.get_base_model().gradient_checkpointing_disable()


def open_path(
    model: TrainedModel,
    spec: RunSpec,
    compute: Compute,
    data: PreparedData,
    pad_token_id: int,
    micro_batch_size: int,
    warn: Callable[[str, str], None],
    method: Method,
    timing: Timing | None = None,
) -> LossPath:
    """Return the way in which a run computes; what is not fused against the person's wish is a warning.

    Raises:
        UserError: `model-kind-unsupported` when the model looks ahead; the fused path knows no such model.
    """
    reason = Message("The fused kernels are switched off.")
    if spec.quantization.kind == "int8":
        # Which numbers count as outliers depends on all tokens of a product, so other batches would not agree.
        reason = Message("No fused kernel reads 8-bit weights.")
    elif spec.hardware.kernels:
        # Not imported where nothing is fused.
        from tunesmith_engine.train.fused_path import open_fused

        try:
            return open_fused(model, spec, compute, data, micro_batch_size, warn, method, timing)
        except NotFusableError as error:
            reason = error.message
            if spec.adapter.kind not in KINDS:
                warn("not-fused", reason)
    check_looks_back_only(model, compute, data.train)
    equal_lengths = feels_padding(model, compute, data.train, pad_token_id)
    return PlainPath(
        model,
        compute,
        pad_token_id,
        micro_batch_size,
        spec.hardware.activation_checkpointing,
        reason,
        method,
        method.objective(spec),
        equal_lengths,
        max(len(sequence.input_ids) for row in (*data.train, *data.eval) for sequence in row.sequences),
        method.temperature(spec),
        alpha_of(spec),
    )


def totals_of(
    path: LossPath,
    rows: list[Example],
    with_adapter: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> Totals:
    """Return what the losses of rows are divided by and compared with, such as those of a step.

    The KL divergence is that of all of them, however they are divided into micro-batches. A single row has no other
    answer to compare with, nor has the base model moved. When stopped on the way, it is that of the rows so far.
    """
    totals, objective = Totals.of(rows), path.objective
    if not isinstance(objective, LabeledObjective) or not objective.needs_kl or not with_adapter or len(rows) < 2:
        return totals
    moved = []
    with torch.no_grad():
        for portion in path.portions(mismatched(rows, path.longest)):
            if should_stop():
                break
            moved.append((path.log_probabilities(portion) - path.reference(portion)).sum())
    return replace(totals, kl=(torch.stack(moved).sum() / len(rows)).clamp(min=0) if moved else None)

