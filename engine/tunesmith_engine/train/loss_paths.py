"""How gradients and losses of rows come about: by the fused model where the base model allows it, else by autograd.

Both ways have one face, so the training loop, the evaluation and the test of the memory plan know no difference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from peft import PeftModel

from tunesmith_core.kernel_words import PLAIN
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import LORA
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.decode import Decoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.device import Compute
from tunesmith_engine.methods import Method
from tunesmith_engine.model.causality import check_looks_back_only, feels_padding
from tunesmith_engine.model.lora import use_activation_checkpointing
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.shapes import NotFusableError
from tunesmith_engine.train.loss import Objective, Totals, answer_sums, balances_experts, make_batch, takes_positions
from tunesmith_engine.train.optim import Updater

if TYPE_CHECKING:
    from tunesmith_engine.fused.arena import AdapterArena
    from tunesmith_engine.train.fused_path import Timing


Item = TypeVar("Item")


class LossPath(Protocol):
    """Computes the loss of rows, portion by portion.

    Attributes:
        name: "fused" or "plain".
        arena: where the trained parameters lie when they lie together.
        keeps_less_first: whether keeping fewer activations costs less time than smaller portions.
        plan_bytes: expected peak of what PyTorch allocates on a GPU; None where nobody knows.
    """

    name: str
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

    def __init__(
        self,
        model: PeftModel,
        compute: Compute,
        pad_token_id: int,
        micro_batch_size: int,
        activation_checkpointing: bool,
        reason: str,
        method: Method,
        objective: Objective | None = None,
        equal_lengths: bool = False,
    ) -> None:
        self.report: list[str] = [Message(PLAIN.template, reason=reason)]
        if equal_lengths:
            self.report.append(
                Message("Padding changes what this model computes, so only examples of one length share a micro-batch.")
            )
        if objective and balances_experts(model):
            self.report.append(
                Message("This objective leaves out the model's share of the loss for even use of experts.")
            )
        self._equal_lengths = equal_lengths
        self._rotary = RotarySwitches(model)
        self._method, self._objective = method, objective
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
        alike = self._alike(examples, lambda example: len(example.input_ids)) if self._objective is None else [examples]
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
        if self._objective is None:
            shares = (self._summed_loss(portion) / totals.num_trained_tokens).reshape(1)
        else:
            shares = self._objective_shares(self._objective, portion, totals)
        updater.backward(shares[0])
        return shares.detach()

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """See LossPath."""
        with torch.no_grad(), self._adapter(with_adapter):
            if self._objective is not None:
                return self._objective_shares(self._objective, portion, totals).double()
            return (self._summed_loss(portion).double() / totals.num_trained_tokens).reshape(1)

    def _adapter(self, is_on: bool) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if is_on else self._model.disable_adapter()

    def _summed_loss(self, portion: list[Example]) -> torch.Tensor:
        batch = make_batch(portion, self._pad_token_id, self._compute.device)
        self._rotary.forget_lengths()
        with self._compute.autocast():
            return self._method.summed_loss(self._model, batch, self._some_positions)

    def _objective_shares(self, objective: Objective, portion: list[Example], totals: Totals) -> torch.Tensor:
        sequences = [sequence for example in portion for sequence in example.sequences]
        counts = [float(sequence.num_trained_tokens) for sequence in sequences]
        reference = None
        if objective.has_reference:
            with torch.no_grad(), self._adapter(False):
                reference = self._answer_sums(sequences)
        sums, num_tokens = self._answer_sums(sequences), torch.tensor(counts, device=self._compute.device)
        return objective(sums, reference, num_tokens, totals.num_rows, totals.num_trained_tokens)

    def _answer_sums(self, sequences: list[Example]) -> torch.Tensor:
        """Return the log-probability of each sequence in nats; what can't be padded to one length goes apart."""
        apart = self._alike(list(enumerate(sequences)), lambda placed: len(placed[1].input_ids))
        places = [place for rows in apart for place, _ in rows]
        parts = []
        for rows in apart:
            batch = make_batch([row for _, row in rows], self._pad_token_id, self._compute.device)
            self._rotary.forget_lengths()
            with self._compute.autocast():
                parts.append(answer_sums(self._model, batch, self._some_positions))
        return torch.cat(parts)[torch.tensor(places, device=self._compute.device).argsort()]

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
    model: PeftModel,
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
    if spec.hardware.kernels:
        # Not imported where nothing is fused.
        from tunesmith_engine.train.fused_path import open_fused

        try:
            return open_fused(model, spec, compute, data, micro_batch_size, warn, method, timing)
        except NotFusableError as error:
            reason = error.message
            if spec.adapter.kind == LORA:
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
    )
