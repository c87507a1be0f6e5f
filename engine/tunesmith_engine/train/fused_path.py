"""The fused model's side of the training loop: packed rows, gradients in the arena, no padding."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from peft import PeftModel

from tunesmith_core import rollout_memory
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.fused_memory import USABLE_SHARE
from tunesmith_core.messages import joined
from tunesmith_core.planner import optimizer_bytes, still_bytes
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL, OPTIMIZERS_OF_FULL, TRANSIENT_NUMBERS, state_bytes
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.decode import MOST_ROWS, Decoder
from tunesmith_engine.decode.cache import bytes_per_row, capacity_of
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.device import DTYPES, Compute
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.fused.memory import WholeWeights
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.methods import Method
from tunesmith_engine.model.causality import check_looks_back_only
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.packed.answers import Answers
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch, pack
from tunesmith_engine.shapes import ModelShape, NotFusableError, Unfused
from tunesmith_engine.train.kernel_check import check_kernels
from tunesmith_engine.train.loss import Objective, Totals, kept_reference, objective_of
from tunesmith_engine.train.neftune import alpha_of
from tunesmith_engine.train.optim import Updater
from tunesmith_engine.train.schedule import StepPlan

FULL_SHARE = 0.75
"""Steps vary when they have less than this share of the longest one's tokens on average."""

COUNTED_STEPS = 100_000
"""Steps whose tokens are counted before the first one. A later one that has more is divided."""


@dataclass(frozen=True, slots=True)
class RowLengths:
    """What the buffers of a run must hold.

    Attributes:
        longest: tokens of its longest row, held-out ones included; a pair counts as a row.
        most_per_step: tokens of its longest step.
        steps_vary: most steps have far fewer tokens than the longest.
        spread: most times as many tokens as are computed that attention sees of a row; more than 1 where the answers
            of a pair share their beginning.
    """

    longest: int
    most_per_step: int
    steps_vary: bool = False
    spread: float = 1.0

    @classmethod
    def of(cls, data: PreparedData, plan: StepPlan) -> RowLengths:
        """Return the lengths of a run, which are the same after a resume."""
        rows = [*data.train, *data.eval]
        lengths = [example.num_computed_tokens for example in rows]
        steps = [sum(lengths[row] for row in plan.rows(step)) for step in range(min(plan.total_steps, COUNTED_STEPS))]
        return cls.of_steps(max(lengths), steps, most_spread(rows))

    @classmethod
    def of_steps(cls, longest: int, steps: Sequence[int], spread: float = 1.0) -> RowLengths:
        """Return the lengths of steps with so many tokens to compute."""
        return cls(longest, max(steps), sum(steps) < FULL_SHARE * max(steps) * len(steps), spread)

    def capacity_tokens(self, micro_batch_size: int) -> int:
        """Return the tokens of a micro-batch: as many as padded rows would have, but never more than a step has."""
        return max(self.longest, min(micro_batch_size * self.longest, self.most_per_step))


def most_spread(rows: Sequence[Example]) -> float:
    """Return the most times as many tokens as are computed that attention sees of a row."""
    return max(row.num_tokens / row.num_computed_tokens for row in rows)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a timing decides itself, where a run goes by its schedule and its device.

    Attributes:
        lengths: of the timed steps.
        policy: what the memory policy is told.
        memory_bytes: most that the fused path may plan with; None for all there is.
    """

    lengths: RowLengths
    policy: str
    memory_bytes: int | None


class FusedPath:
    """Packed micro-batches through the fused model. See LossPath for its methods.

    Attributes:
        kernels: sentences about the kernels, for the report.
        rows_at_once: see LossPath.
    """

    name = "fused"
    keeps_less_first = True

    def __init__(
        self,
        model: PeftModel,
        compute: Compute,
        lengths: RowLengths,
        micro_batch_size: int,
        policy: str = "auto",
        memory_bytes: int | None = None,
        optimizer_bytes_per_weight: float = 8.0,
        fp8: bool = False,
        objective: Objective | None = None,
        whole: WholeWeights | None = None,
        temperature: float = 1.0,
    ) -> None:
        """Attach the fused model, as `FusedModel.attach` says, with room for the micro-batches of a run.

        Raises:
            NotFusableError: the model has parts that the fused model can't run.
        """
        self._lengths, self.objective, self.longest = lengths, objective, lengths.longest
        self._model, self._compute = model, compute
        self._micro_batch_size = micro_batch_size
        self._decoder: Decoder | None = None
        self._device = compute.device
        self._fused = FusedModel.attach(
            model,
            compute,
            lengths.capacity_tokens(micro_batch_size),
            policy,
            memory_bytes,
            optimizer_bytes_per_weight,
            fp8,
            lengths.longest,
            lengths.steps_vary,
            lengths.spread,
            whole,
        )
        self._fused.temperature = temperature
        self.kernels: list[str] = []
        self.rows_at_once = MOST_ROWS
        self.arena: AdapterArena | None = self._fused.arena
        self._gradients = self._fused.assembly.gradients
        self.can_go_by_layer = self._gradients is not None and self._gradients.can_go_by_layer

    def add_noise(self, alpha: float) -> None:
        """Add NEFTune's noise to the embedded tokens of training steps from now on; none where alpha is 0."""
        self._fused.add_noise(alpha)

    @property
    def report(self) -> list[str]:
        """What runs fused, what doesn't and why; how activations are kept."""
        return [*self._fused.report, *self.kernels]

    @property
    def plan_bytes(self) -> int:
        """Expected peak of the memory that PyTorch allocates on the device."""
        return self._fused.plan_bytes

    @property
    def notes(self) -> list[str]:
        """What is not fused and why."""
        return self._fused.notes

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        """Pack rows into few micro-batches."""
        capacity, size = self._fused.plan.capacity_tokens, self._micro_batch_size
        if not self._fused.balances:
            return pack(examples, capacity)
        # How even the use of experts is depends on which rows are counted together: the same as in plain PyTorch.
        together = [examples[start : start + size] for start in range(0, len(examples), size)]
        return [portion for rows in together for portion in pack(rows, capacity)]

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        """Add a micro-batch's gradients to the arena, or to those of the weights, which may be consumed at once."""
        with self._gradients.by_layer(updater.consume) if self._gradients else contextlib.nullcontext():
            return self._added_gradients(portion, totals, updater)

    def _added_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        if self.objective is None:
            batch = make_packed_batch(portion, self._device, **self._fused.fixed_sizes(portion))
            loss = self._fused.loss_and_gradients(batch, totals.num_trained_tokens, updater.loss_scale())
            return loss.reshape(1)
        batch = make_packed_batch(portion, self._device)
        objective = self._objective_of(self.objective, batch, portion, totals)
        return self._fused.objective_and_gradients(batch, objective, updater.loss_scale())

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """Return the loss of a micro-batch."""
        batch = make_packed_batch(portion, self._device)
        losses = self._fused.losses(batch, with_adapter)
        if self.objective is None:
            total = losses.sum().double() + self._fused.balance(batch)
            return (total / totals.num_trained_tokens).reshape(1)
        with torch.no_grad():
            objective = self._objective_of(self.objective, batch, portion, totals, with_adapter)
            return objective(-losses).double()

    def _objective_of(
        self,
        objective: Objective,
        batch: PackedBatch,
        portion: list[Example],
        totals: Totals,
        with_adapter: bool = True,
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the objective as a function of the tokens' log-probabilities alone."""
        # The base model beside itself is rated 0 to the bit, as what is kept of other micro-batches is not.
        reference = kept_reference(portion, self._device) if objective.has_reference and with_adapter else None
        if objective.has_reference and reference is None:
            reference = -self._fused.reference_losses(batch)
        answers = Answers.of(portion, self._device)

        def shares(log_probabilities: torch.Tensor) -> torch.Tensor:
            return objective_of(objective, log_probabilities, reference, portion, answers, totals)

        return shares

    def log_probabilities(self, portion: list[Example], with_adapter: bool = True) -> torch.Tensor:
        """See LossPath."""
        return -self._fused.losses(make_packed_batch(portion, self._device), with_adapter)

    def reference(self, portion: list[Example]) -> torch.Tensor:
        """See LossPath."""
        return -self._fused.reference_losses(make_packed_batch(portion, self._device))

    def weights_changed(self) -> None:
        """Let the fused model copy the new weights to where its products read them."""
        self._fused.refresh()

    def use_micro_batch_size(self, micro_batch_size: int) -> bool:
        """Make the buffers smaller, unless the plan made them as small already."""
        wanted, self._micro_batch_size = self._lengths.capacity_tokens(micro_batch_size), micro_batch_size
        is_less = wanted < self._fused.plan.capacity_tokens
        if is_less:
            self._fused.resize(wanted)
        return is_less

    def keep_less(self) -> str | None:
        """Take the next rung of the memory policy."""
        return self._fused.step_down()

    def out_of_the_way(self) -> AbstractContextManager[None]:
        """Give back the memory of activations for a while."""
        return self._fused.out_of_the_way()

    def decoder(self) -> Decoder:
        """Return the fused decoder, or transformers' where a step of the model can't be fused."""
        if self._decoder is None:
            try:
                self._decoder = FusedDecoder(self._model, self._fused.assembly)
            except NotFusableError:
                self._decoder = PlainDecoder(self._model, self._compute)
        return self._decoder

    def close(self) -> None:
        """Leave the transformers model with weights of its own."""
        self._fused.detach()


def _answer_bytes(shape: ModelShape, dtype: torch.dtype, num_tokens: int) -> int:
    """Return what one answer takes while it is written, by either decoder."""
    as_written = sum(isinstance(each.attention, Unfused) for each in shape.layers)
    remembered = bytes_per_row(shape, dtype, capacity_of(num_tokens))
    remembered += 2 * shape.hidden_size * as_written * num_tokens * dtype.itemsize
    return rollout_memory.bytes_per_row(remembered, shape.embedding.num_embeddings)


def open_fused(
    model: PeftModel,
    spec: RunSpec,
    compute: Compute,
    data: PreparedData,
    micro_batch_size: int,
    warn: Callable[[str, str], None],
    method: Method,
    timing: Timing | None,
) -> FusedPath:
    """Return the fused way of a run; what of it is not fused is a warning. See `loss_paths.open_path`.

    Raises:
        UserError: see `loss_paths.open_path`.
        NotFusableError: the objective, the adapter, the model or the device can't run on it.
    """
    _check_possible(compute, method)
    if kind := KINDS.get(spec.adapter.kind):
        raise NotFusableError("No fused kernel computes {kind}.", kind=kind.title)
    if spec.adapter.kind == FULL:
        compute = compute_of_weights(spec, compute)
    lengths = timing.lengths if timing else method.row_lengths(spec, data)
    _check_tables(model, data, [lengths.longest] if method.from_rewards else [])
    policy = timing.policy if timing else "full" if spec.hardware.activation_checkpointing else "auto"
    shape = _read(model, spec, compute, data, method)
    checked = check_kernels(shape, compute, spec, lengths.capacity_tokens(micro_batch_size))
    memory_bytes, rows_at_once = timing.memory_bytes if timing else None, MOST_ROWS
    if method.from_rewards and compute.device.type == "cuda":
        row_bytes = _answer_bytes(shape, compute.dtype, lengths.longest)
        usable_bytes, free_bytes = _usable(compute.device)
        rows_at_once = rollout_memory.rows_at_once(row_bytes, free_bytes)
        memory_bytes = (memory_bytes or usable_bytes) - rows_at_once * row_bytes
    path = FusedPath(
        model,
        compute,
        lengths,
        micro_batch_size,
        policy,
        memory_bytes,
        optimizer_bytes(spec) + still_bytes(spec),
        spec.hardware.fp8_weights and spec.adapter.kind != FULL,
        method.objective(spec),
        whole_weights(model, spec, lengths.most_per_step) if spec.adapter.kind == FULL else None,
        method.temperature(spec),
    )
    path.rows_at_once = rows_at_once
    path.add_noise(alpha_of(spec))
    path.kernels = [*checked.running, *checked.twins]
    # On a CPU nothing but the twins is expected.
    if notes := [*path.notes, *(checked.twins if compute.device.type == "cuda" else [])]:
        warn("not-fused", joined(notes))
    return path


def _read(model: PeftModel, spec: RunSpec, compute: Compute, data: PreparedData, method: Method) -> ModelShape:
    """Recognise a run's model; see `open_fused` for the errors."""
    shape = recognise(model)
    if shape.begins_as_written and alpha_of(spec):
        raise NotFusableError("The model's embedded tokens are computed in plain PyTorch, without room for noise.")
    if shape.balance and method.objective(spec) is not None:
        raise NotFusableError("The loss includes a term that balances the experts (output_router_logits).")
    if shape.handing:
        # Attention that is understood looks back only; what runs as written may not.
        check_looks_back_only(model, compute, data.train)
    return shape


def compute_of_weights(spec: RunSpec, compute: Compute) -> Compute:
    """Return how whole weights are computed with: in 16 bits where they have these themselves.

    Raises:
        NotFusableError: the device would take float16.
    """
    if compute.dtype == torch.float16:
        raise NotFusableError("Full fine-tuning in float16 runs in plain PyTorch.")
    weights = DTYPES[spec.adapter.weights]
    return replace(compute, dtype=weights) if weights == torch.bfloat16 else compute


def whole_weights(model: FullModel, spec: RunSpec, step_tokens: int) -> WholeWeights:
    """Return what the training of whole weights takes, where the longest step has so many tokens."""
    shapes = {name: tuple(weight.shape) for name, weight in trainable(model).items()}
    optimizer = spec.optimizer.name
    whole_matrices = optimizer in OPTIMIZERS_OF_FULL
    largest = max(map(math.prod, shapes.values()))
    transient = 4 * TRANSIENT_NUMBERS * largest if whole_matrices else 0
    by_layer = not spec.optimizer.max_grad_norm
    return WholeWeights(state_bytes(optimizer, shapes), transient, by_layer, step_tokens)


def _usable(device: torch.device) -> tuple[int, int]:
    """Return what PyTorch may hold on a GPU in all, and how much of that is free."""
    torch.cuda.empty_cache()
    free_bytes = round(torch.cuda.mem_get_info(device)[0] * USABLE_SHARE)
    return torch.cuda.memory_reserved(device) + free_bytes, free_bytes


def _check_possible(compute: Compute, method: Method) -> None:
    """Raise NotFusableError where the objective is not fused or the processor is no good at it."""
    if not method.fused:
        raise NotFusableError("The fused path does not support this objective.")
    if compute.device.type == "cpu" and compute.dtype == torch.float16:
        # PyTorch multiplies parts of buffers a thousand times slower (measured with 2.6).
        raise NotFusableError("On a processor, PyTorch multiplies the fused path's float16 buffers too slowly.")


def _check_tables(model: PeftModel, data: PreparedData, more_lengths: Sequence[int]) -> None:
    """Raise NotFusableError where rows behind each other would share a rotary table that one of them alone has."""
    rotary = RotarySwitches(model)
    sequences = (sequence for example in [*data.train, *data.eval] for sequence in example.sequences)
    lengths = {*more_lengths, *(len(sequence.input_ids) for sequence in sequences)}
    if len(set(map(rotary.table_of, lengths))) > 1:
        raise NotFusableError(
            "The model's rotary table depends on the length of an example, and these examples need several tables."
        )
