"""Will it fit: memory, disk, steps and time of a run, estimated from the numbers of the model's files.

Nothing is loaded. The estimate is for the longest possible batch, whose backward pass is where a step peaks. The
window's "Check the plan" replaces it by a measurement.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tunesmith_core import (
    adapter_shapes,
    expert_memory,
    full_memory,
    fused_memory,
    reward_models,
    rollout_memory,
    teacher_memory,
)
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.adapter_ranks import FROM_WEIGHTS, adapts_experts, is_in_layers, layer_numbers, ranks, size_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.fused_memory import INT8_BYTES, NF4_BYTES, USABLE_SHARE, stacked_bytes
from tunesmith_core.hardware import DOT_CAPABILITY, Hardware, detect_hardware
from tunesmith_core.held_out import num_held_out
from tunesmith_core.memory_steps import MEMORY_STEPS, Changes
from tunesmith_core.messages import Message
from tunesmith_core.mixing import epoch_shares, with_replay
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.objectives import DISTILLATION, HEADS, REINFORCEMENT, STORED, sequences_per_row
from tunesmith_core.saved_modules import num_saved, saved_bytes
from tunesmith_core.spec import RunSpec, compares, continues
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.spec_rollouts import MODEL
from tunesmith_core.spec_sections import ALL_LINEAR, NEW_EMBEDDINGS
from tunesmith_core.spec_words import trained_embeddings, trained_modules
from tunesmith_core.trained_parts import FULL, LORA, TRANSIENT_NUMBERS, TRANSIENT_WEIGHTS, is_chosen, state_bytes

__all__ = ["Hardware", "Plan", "Saving", "detect_hardware", "plan"]

GIB = 1024**3
FITS_RATIO = 0.75
"""Up to this share of the free memory a plan fits, up to all of it it is tight."""

CUDA_RUNTIME_BYTES = round(0.6 * GIB)
CPU_RUNTIME_BYTES = round(0.6 * GIB)
"""Context, libraries and the interpreter: what a process holds that has loaded everything and trains nothing."""

TIME_SPREAD = (0.85, 1.25)

CPU_SLACK = 2.2
"""On the CPU the allocator keeps much of what activations gave back. Fitted, not predicted, with PyTorch 2.6, on runs
of a model of 135 million parameters and of one of 6 layers, 128 to 1024 tokens. Fused runs of few tokens take more."""

DORA_SLACK = 1.9
CUDA_FLOAT32_SLACK = 1.65
"""Activations beyond the count of saved tensors, fitted on an H200 (torch 2.11, 2026-11-21) with a Llama of 1 billion
parameters: DoRA at 4 x 512 tokens and float32 at 2 x 1024. Without these two, six cases of 16-bit LoRA and QLoRA
(512 to 8192 tokens, with and without checkpointing) planned 1.04 to 1.30 times the memory that PyTorch reserved."""


@dataclass(frozen=True, slots=True)
class Saving:
    """A step of `memory_steps` that makes a plan smaller.

    Attributes:
        label: what is used then, follows "use".
        changes: setting path such as "data.context_length" to its new value.
        saved_bytes: memory that it alone saves.
    """

    label: Message
    changes: Changes
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The estimate of one run.

    Attributes:
        parts: bytes by name, in the order in which they are shown: weights, adapter, activations, logits, runtime. Of
            full fine-tuning "training" instead of "adapter": gradients and states of the optimizer.
        total_bytes: their sum, the peak.
        least_bytes: the peak row by row with as few activations kept as possible, which a run comes to before it fails.
        available_bytes: free memory of the device.
        verdict: "fits", "tight" or "exceeds", by the least; "unmeasured" where rows of the whole context don't fit and
            nobody knows how long they are; "nothing" where it would train nothing at all.
        total_steps: None while the number of rows is unknown.
        seconds: shortest and longest time, None while steps or their time are unknown.
        disk_bytes: written to the run folder.
        certainty: "low", "medium" or "high".
        adapter_is_exact: whether the size of the adapter is counted; else it is about right.
        fixes: in the order of least harm; empty when the plan fits.
    """

    parts: Mapping[str, int]
    total_bytes: int
    least_bytes: int
    available_bytes: int
    verdict: str
    total_steps: int | None
    seconds: tuple[int, int] | None
    disk_bytes: int
    certainty: str
    fixes: tuple[Saving, ...]
    adapter_is_exact: bool = True

    @property
    def ratio(self) -> float:
        """Share of the free memory that the run takes."""
        return self.total_bytes / max(1, self.available_bytes)


def plan(
    spec: RunSpec,
    hardware: Hardware,
    *,
    card: ModelCard | None = None,
    num_rows: int | None = None,
    file_rows: Sequence[int] = (),
    longest_tokens: int | None = None,
    step_s: float | None = None,
    other_s: float | None = None,
    learns_nothing: bool = False,
) -> Plan:
    """Estimate a run.

    Args:
        spec: the run.
        hardware: the device that it will use.
        card: the model's card, read from its folder when None.
        num_rows: training rows, if known.
        file_rows: those of each data file, if known, for files with a replay share.
        longest_tokens: length of the longest example, of pairs with one of its answers, if known; else the context
            length is taken.
        step_s: measured time of an update on this device, if known.
        other_s: measured time beside updates, if known: loading, evaluations, answers, saving.
        learns_nothing: whether no row has a token to learn within the context length.

    Raises:
        TunesmithError: when the model's card can't be read, as `local_folder` and `read_model_card` say.
    """
    # A hub model that was not downloaded is looked for like a folder, and that it isn't one is said.
    card = card or read_model_card(local_folder(spec.model.path, spec.model.revision) or Path(spec.model.path))
    if num_rows and spec.schedule.micro_batch_size > num_rows:
        # No micro-batch has more rows than there are.
        spec = with_changes(spec, {"schedule.micro_batch_size": num_rows})
    least_parts = _least_parts(spec, hardware, card, longest_tokens)
    answers = _answer_bytes(least_parts, spec, hardware, card, longest_tokens)
    beside = replace(hardware, free_bytes=hardware.free_bytes - sum(answers.values()))
    parts = _parts(spec, beside, card, longest_tokens) | answers
    least = sum(least_parts.values())
    ratio = least / max(1, hardware.free_bytes)
    steps = _total_steps(spec, num_rows, file_rows)
    checkpoint_bytes, result_bytes = _saved_bytes(spec, card)
    return Plan(
        parts=parts,
        total_bytes=sum(parts.values()),
        least_bytes=least,
        available_bytes=hardware.free_bytes,
        verdict="nothing" if learns_nothing else _verdict(spec, hardware, card, longest_tokens, ratio),
        total_steps=steps,
        seconds=_seconds(steps, step_s, other_s or 0.0),
        # One checkpoint more than is kept exists while the newest is being written; then comes the adapter itself.
        disk_bytes=checkpoint_bytes * (spec.saving.keep + 1) + result_bytes,
        certainty="medium" if longest_tokens else "low",
        fixes=_fixes(spec, hardware, card, longest_tokens, least) if ratio > FITS_RATIO else (),
        adapter_is_exact=spec.adapter.kind == FULL or card.model_type not in adapter_shapes.ABOUT,
    )


def _verdict(
    spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None, ratio: float
) -> str:
    """Return whether a run fits whose minimum is this share of the free memory."""
    verdict = "fits" if ratio <= FITS_RATIO else "tight" if ratio <= 1 else "exceeds"
    if verdict == "exceeds" and not longest_tokens:
        shortest = sum(_least_parts(spec, hardware, card, 1).values())
        verdict = "unmeasured" if shortest <= hardware.free_bytes else verdict
    return verdict


def _answer_bytes(
    parts: Mapping[str, int], spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None
) -> dict[str, int]:
    """Return by name what the answers of a round take where the model writes them: as many at once as have room."""
    if spec.objective.kind not in REINFORCEMENT:
        return {}
    row_bytes = rollout_memory.bytes_of_card(card, _num_tokens(spec, longest_tokens), number_bytes(spec, hardware))
    fixed = ("weights", "adapter", "runtime", "scoring")
    free_bytes = hardware.free_bytes - sum(parts.get(name, 0) for name in fixed)
    return {"answers": row_bytes * rollout_memory.rows_at_once(row_bytes, free_bytes)}


def _seconds(steps: int | None, step_s: float | None, other_s: float) -> tuple[int, int] | None:
    if steps is None or not step_s:
        return None
    # A run evaluates about as often whatever its length.
    middle = steps * step_s + other_s
    return round(middle * TIME_SPREAD[0]), round(middle * TIME_SPREAD[1])


def _num_tokens(spec: RunSpec, longest_tokens: int | None) -> int:
    tokens = min(spec.data.context_length, longest_tokens or spec.data.context_length)
    # What the model writes itself may be longer than the answers in the data.
    if spec.objective.kind in DISTILLATION and spec.teacher.own_answers:
        return tokens + spec.teacher.max_tokens
    return tokens + spec.rollouts.max_tokens if spec.objective.kind in REINFORCEMENT else tokens


def _batch_tokens(spec: RunSpec, longest_tokens: int | None) -> int:
    """Return the tokens of a micro-batch. The answers of a reference model take less memory, and before those."""
    sequences = spec.schedule.micro_batch_size * sequences_per_row(spec.objective.kind)
    return sequences * _num_tokens(spec, longest_tokens)


def _total_steps(spec: RunSpec, num_rows: int | None, file_rows: Sequence[int]) -> int | None:
    if spec.schedule.max_steps:
        return spec.schedule.max_steps
    if num_rows is None:
        return None
    per_step = spec.schedule.micro_batch_size * spec.schedule.gradient_accumulation_steps
    return math.ceil(spec.schedule.epochs * math.ceil(_num_epoch(spec, num_rows, file_rows) / per_step))


def _num_epoch(spec: RunSpec, num_rows: int, file_rows: Sequence[int]) -> int:
    """Return the examples of an epoch: all rows that are not held out, and of a file with a replay share that share."""
    share = 0.0 if spec.evaluation.path else spec.evaluation.percent
    num_train = num_rows - num_held_out(num_rows, share)
    replay = [source.replay for source in spec.data.sources]
    if not any(replay) or len(file_rows) != len(replay):
        return num_train
    numbers = [round(num * num_train / max(1, num_rows)) for num in file_rows]
    return sum(with_replay(epoch_shares(numbers, [source.weight for source in spec.data.sources]), replay))


def warmup_note(spec: RunSpec, total_steps: int | None) -> Message | None:
    """Return what a person should know where the run ends within its warm-up."""
    if total_steps is None:
        return None
    warmup = spec.schedule.num_warmup_steps(total_steps)
    if not warmup or warmup < total_steps:
        return None
    return Message(
        "The warm-up has {warmup:,} steps and the run {total_steps:,}, so the learning rate never reaches its full "
        "value. Use a shorter warm-up.",
        warmup=warmup,
        total_steps=total_steps,
    )


def number_bytes(spec: RunSpec, hardware: Hardware) -> int:
    """Return the bytes per number of the frozen weights and the arithmetic: 2 or 4."""
    if spec.model.dtype == "auto":
        return 2 if hardware.device == "cuda" else 4
    return 4 if spec.model.dtype == "float32" else 2


def num_adapter_parameters(spec: RunSpec, card: ModelCard) -> int:
    """Return the size of the adapter."""
    adapter = spec.adapter
    targets = None if adapter.target_modules == ALL_LINEAR else adapter.target_modules
    numbers, patterns = layer_numbers(adapter), ranks(adapter.rank_pattern)
    kind = KINDS.get(adapter.kind)

    def of_layer(name: str, rows: int, columns: int) -> int:
        if not is_in_layers(numbers, name):
            return 0
        if kind:
            return kind.size(name, rows, columns, adapter.rank)
        return size_of(adapter, name, patterns) * (rows + columns) + (rows if adapter.dora else 0)

    experts = card.expert_shapes if adapts_experts(adapter) else {}
    return adapter_shapes.num_adapter_parameters(
        card.model_type, card.linear_shapes, experts, targets, adapter.rank, of_layer
    )


def trained_shapes(spec: RunSpec, card: ModelCard) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights that full fine-tuning trains, by their names in the model's files."""
    return {name: shape for name, shape in card.shapes.items() if is_chosen(name, shape, spec.adapter.parts)}


def _saved_bytes(spec: RunSpec, card: ModelCard) -> tuple[int, int]:
    """Return the bytes of a checkpoint, and of what the run makes."""
    if spec.adapter.kind == FULL:
        trained = trained_shapes(spec, card)
        weights = _trained_number_bytes(spec) * sum(map(math.prod, trained.values()))
        return weights + state_bytes(spec.optimizer.name, trained), card.size_bytes
    parameters = num_adapter_parameters(spec, card) + num_saved(spec, card)
    return parameters * (4 + optimizer_bytes(spec)), parameters * 4


def _trained_number_bytes(spec: RunSpec) -> int:
    return 4 if spec.adapter.weights == "float32" else 2


def optimizer_bytes(spec: RunSpec) -> int:
    """Return the bytes per trained weight of AdamW's two moments."""
    return 2 if spec.optimizer.name == "adamw_8bit" else 8


def still_bytes(spec: RunSpec) -> int:
    """Return the bytes per number of an adapter half of which is never updated: which half, and against decay what."""
    if spec.adapter.kind != LORA or spec.adapter.initial_values not in FROM_WEIGHTS:
        return 0
    return 5 if spec.optimizer.weight_decay else 1


def reference_bytes(spec: RunSpec) -> int:
    """Return the bytes per trained weight of a reference adapter that steps ask; 0 where they ask the base model."""
    has_adapter = continues(spec) or bool(spec.objective.reference_adapter)
    # KTO asks for its KL in each step even so, and what a model writes itself is not known before.
    asks = spec.objective.reference != "once" or spec.objective.kind != "dpo"
    return 4 if has_adapter and compares(spec) and asks else 0


def beside_bytes(spec: RunSpec) -> int:
    """Return the bytes per number of an adapter beside itself and its gradient."""
    return optimizer_bytes(spec) + still_bytes(spec) + reference_bytes(spec)


def _parts(spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None) -> dict[str, int]:
    """Return the bytes of a run by name, with as many activations kept as the device has room for."""
    scoring = _scoring_parts(spec, hardware, longest_tokens)
    for choice in _choices(spec, hardware, card, longest_tokens):
        parts = choice | scoring
        if sum(parts.values()) <= USABLE_SHARE * hardware.free_bytes:
            return parts
    return _least_parts(spec, hardware, card, longest_tokens)


def _choices(
    spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None
) -> Iterator[dict[str, int]]:
    """Yield the bytes by name of what a run may keep on its device, in the order in which it is tried."""
    if not _runs_fused(spec, hardware):
        # Where these don't fit all experts leave as they are read, see `_least_parts`.
        yield _plain_parts(spec, hardware, card, longest_tokens)
        return
    for experts_on_host, level in itertools.product(expert_memory.steps_of(spec, hardware, card), _levels(spec)):
        yield _fused_parts(spec, hardware, card, longest_tokens, level, experts_on_host)


def room_for_experts(spec: RunSpec, hardware: Hardware, card: ModelCard) -> int:
    """Return how much of the computer's memory experts take as they are read; 0 where a run fits with them all."""
    staying = _least_parts(spec, hardware, card, None, experts_on_host=0)
    if sum(staying.values()) <= USABLE_SHARE * hardware.free_bytes:
        return 0
    return expert_memory.code_bytes(card, expert_memory.steps_of(spec, hardware, card)[-1])


def _least_parts(
    spec: RunSpec,
    hardware: Hardware,
    card: ModelCard,
    longest_tokens: int | None,
    experts_on_host: int | None = None,
) -> dict[str, int]:
    """Return the bytes of a run that keeps as little as possible of one row at a time, which the engine comes to.

    Args:
        spec, hardware, card, longest_tokens: as `plan` has them.
        experts_on_host: of how many layers the experts lie in the computer's memory; None for as many as may.
    """
    if experts_on_host is None:
        experts_on_host = expert_memory.steps_of(spec, hardware, card)[-1]
    scoring = _scoring_parts(spec, hardware, longest_tokens)
    if not _runs_fused(spec, hardware):
        return _plain_parts(spec, hardware, card, longest_tokens, experts_on_host) | scoring
    rows, level = spec.schedule.micro_batch_size, _levels(spec)[-1]
    one_row = with_changes(spec, {"schedule.micro_batch_size": 1})
    if spec.adapter.kind == FULL and rows > 1 and full_memory.goes_by_layer(spec):
        # Several micro-batches add up all gradients, which may take more than the rows that are left out.
        one_row = with_changes(one_row, {"schedule.gradient_accumulation_steps": rows})
        together = _fused_parts(spec, hardware, card, longest_tokens, level)
        apart = _fused_parts(one_row, hardware, card, longest_tokens, level)
        return min(together, apart, key=lambda parts: sum(parts.values()))
    return _fused_parts(one_row, hardware, card, longest_tokens, level, experts_on_host) | scoring


def _scoring_parts(spec: RunSpec, hardware: Hardware, longest_tokens: int | None) -> dict[str, int]:
    """Return by name what reward models take beside the training, nothing where a run has none."""
    paths = [each.model for each in spec.rollouts.rewards if each.kind == MODEL and each.model]
    if spec.objective.kind not in REINFORCEMENT or not paths:
        return {}
    size, tokens, num_bytes = number_bytes(spec, hardware), _num_tokens(spec, longest_tokens), 0
    for path in paths:
        # What is wrong with one is named by the checks before a run.
        with contextlib.suppress(TunesmithError, OSError):
            card = read_model_card(reward_models.find(path).folder)
            weights = fused_memory.weight_bytes(spec, card, size, embedding_on_host=False)
            num_bytes += weights + rollout_memory.scoring_bytes(card, tokens, size)
    return {"scoring": num_bytes}


def _runs_fused(spec: RunSpec, hardware: Hardware) -> bool:
    """Say whether the fused model's numbers are known: on a CPU and with unfused layers the plain ones are safe."""
    is_plain = spec.objective.kind in HEADS | DISTILLATION or spec.adapter.kind in KINDS
    if spec.adapter.kind == FULL:
        # A GPU before Ampere calculates with float16, unless it is told otherwise.
        is_old = (0, 0) < hardware.compute_capability < (8, 0) and spec.model.dtype != "float32"
        is_plain = is_plain or is_old or spec.model.dtype == "float16"
    else:
        # Dropout multiplies matrices in Triton.
        has_no_dropout = spec.adapter.dora or (0, 0) < hardware.compute_capability < DOT_CAPABILITY
        is_plain = is_plain or spec.quantization.kind == "int8" or (has_no_dropout and spec.adapter.dropout > 0)
        is_plain = is_plain or bool(trained_modules(spec))
    return hardware.device == "cuda" and spec.hardware.kernels and not is_plain


def _levels(spec: RunSpec) -> tuple[str, ...]:
    """Return what the fused model may keep, most first."""
    return fused_memory.LEVELS[-2:] if spec.hardware.activation_checkpointing else fused_memory.LEVELS


def _fused_parts(
    spec: RunSpec,
    hardware: Hardware,
    card: ModelCard,
    longest_tokens: int | None,
    level: str,
    experts_on_host: int = 0,
) -> dict[str, int]:
    size = number_bytes(spec, hardware)
    tokens = _batch_tokens(spec, longest_tokens)
    if spec.adapter.kind == FULL:
        number, trained = _trained_number_bytes(spec), trained_shapes(spec, card)
        size = min(size, number)
        return {
            "weights": full_memory.weight_bytes(spec, card, number, size, embedding_on_host=level != "none"),
            "training": full_memory.training_bytes(spec, card, trained, number, size),
            **_fused_activations(spec, card, size, tokens, level),
        }
    return {
        # Where not everything can be kept, the first thing to leave the device is the embedding.
        # Trained rows are put into the table where it is.
        "weights": fused_memory.weight_bytes(
            spec,
            card,
            size,
            embedding_on_host=level != "none" and trained_embeddings(spec) != NEW_EMBEDDINGS,
            experts_on_host=experts_on_host,
        ),
        "adapter": num_adapter_parameters(spec, card) * (4 + 4 + beside_bytes(spec))
        + saved_bytes(spec, card, size, beside_bytes(spec), fused=True),
        **_fused_activations(spec, card, size, tokens, level),
    }


def _fused_activations(spec: RunSpec, card: ModelCard, size: int, tokens: int, level: str) -> dict[str, int]:
    return {
        "activations": fused_memory.activation_bytes(spec, card, size, tokens, level),
        "logits": fused_memory.logit_bytes(card, size, tokens, level) + teacher_memory.soft_target_bytes(spec, tokens),
        "runtime": CUDA_RUNTIME_BYTES + fused_memory.LIBRARY_BYTES,
    }


def _plain_parts(
    spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None, experts_on_host: int = 0
) -> dict[str, int]:
    size = number_bytes(spec, hardware)
    tokens = _batch_tokens(spec, longest_tokens)
    activations = tokens * activation_bytes_per_token(spec, card, size)
    # A head rates the last token of a text alone.
    num_logits = 0 if spec.objective.kind in HEADS else tokens * card.vocab_size
    logits = num_logits * (size + 12)
    if spec.adapter.dora:
        activations = round(activations * DORA_SLACK)
    if kind := KINDS.get(spec.adapter.kind):
        # Several compute the change of a whole weight and keep it.
        activations += kind.kept_bytes * card.num_linear_parameters
    if hardware.device == "cuda" and size == 4:
        activations = round(activations * CUDA_FLOAT32_SLACK)
    if hardware.device == "cpu":
        activations = round(activations * CPU_SLACK)
        # 32-bit logits need no copy for the loss.
        logits = num_logits * (12 if size == 4 else 14)
    if spec.objective.kind in STORED:
        # Those of learned tokens are copied.
        logits += num_logits * size + teacher_memory.soft_target_bytes(spec, tokens)
    others = {
        "activations": activations,
        # The logits, then in 32 bits their logarithmic softmax and two gradients (cross-entropy in PyTorch).
        "logits": logits,
        "runtime": CUDA_RUNTIME_BYTES if hardware.device == "cuda" else CPU_RUNTIME_BYTES,
    }
    if spec.objective.kind in DISTILLATION:
        taught = teacher_memory.parts(spec, card, size, tokens)
        # Shown behind the model that learns.
        others = taught | others | taught
    if spec.adapter.kind == FULL:
        return {**_full_parts(spec, card, size), **others}
    linear = card.num_linear_parameters
    dense = card.num_parameters - linear
    weights = dense * size + linear * linear_bytes(spec, size)
    if spec.quantization.kind != "none":
        # One matrix at a time is unpacked to be multiplied with, one of 8 bits by two numbers for each.
        num_unpacked = 2 if spec.quantization.kind == "int8" else 1
        largest = max((rows * columns for rows, columns in card.linear_shapes.values()), default=0)
        weights += size * num_unpacked * largest
    if spec.quantization.kind == "nf4":
        packed, of_layer = expert_memory.stacked_numbers(card)
        num_layers = 1 if spec.hardware.activation_checkpointing else card.num_layers
        # Autograd keeps what was unpacked. A sum with an adapter is one more.
        num_kept = num_layers + bool(expert_memory.num_ranks(spec, card))
        weights += packed * (stacked_bytes(card) - size) + of_layer * num_kept * size
        weights -= expert_memory.code_bytes(card, experts_on_host)
    # The adapter and its gradients are 32-bit; 16-bit arithmetic takes a 16-bit copy of it.
    copy_bytes = 2 if size == 2 else 0
    adapter = num_adapter_parameters(spec, card) * (4 + 4 + copy_bytes + beside_bytes(spec))
    return {
        "weights": round(weights),
        "adapter": adapter + saved_bytes(spec, card, size, optimizer_bytes(spec) + reference_bytes(spec), fused=False),
        **others,
    }


def _full_parts(spec: RunSpec, card: ModelCard, size: int) -> dict[str, int]:
    """Return the bytes of weights, gradients and states where the model itself is trained.

    Args:
        spec: the run.
        card: of the model.
        size: bytes of a number that is calculated with.
    """
    trained = trained_shapes(spec, card)
    num_trained = sum(map(math.prod, trained.values()))
    number = _trained_number_bytes(spec)
    # PyTorch casts 32-bit weights to 16 bits for a step and keeps the copies until its end.
    copies = size if number > size else 0
    transient = 4 * TRANSIENT_NUMBERS * min(num_trained, TRANSIENT_WEIGHTS)
    if spec.optimizer.name in ("adafactor", "muon"):
        # These update a matrix as a whole.
        transient = 4 * TRANSIENT_NUMBERS * max(map(math.prod, trained.values()), default=0)
    return {
        # What is not trained has the same format.
        "weights": card.num_parameters * number + num_trained * copies,
        "training": num_trained * number + state_bytes(spec.optimizer.name, trained) + transient,
    }


def linear_bytes(spec: RunSpec, size: int) -> float:
    """Return the bytes of one number of a frozen linear layer, where others have so many."""
    return {"nf4": NF4_BYTES, "int8": INT8_BYTES}.get(spec.quantization.kind, size)


def activation_bytes_per_token(spec: RunSpec, card: ModelCard, size: int) -> int:
    """Return what the forward pass keeps of one token until the backward pass.

    Counted by what PyTorch's eager autograd saves in a layer with adapters, whose frozen weights need no inputs (the
    method of "Reducing Activation Recomputation in Large Transformer Models", section 4): two norms in 32 bits; the
    inputs of the adapters; query, key, value and output of attention; gate, its activation, up and their product. In
    16 bits each adapter casts its input, which is one copy per layer instead of a shared one. With checkpointing only
    each layer's input is kept, and one layer at a time is computed again.

    Args:
        size: bytes per number, 2 or 4.
    """
    hidden, wide = card.hidden_size, card.intermediate_size
    attention = card.num_heads * card.head_dim
    num_copies = 1 if size == 4 else 3
    layer = 2 * 4 * hidden
    layer += size * (hidden * num_copies + 4 * attention + (attention if size == 2 else 0))
    layer += size * (hidden * min(num_copies, 2) + 4 * wide)
    layer += size * 7 * (0 if spec.adapter.kind == FULL else spec.adapter.rank)
    if spec.hardware.activation_checkpointing:
        return card.num_layers * size * hidden + layer
    return card.num_layers * layer


def _fixes(
    spec: RunSpec, hardware: Hardware, card: ModelCard, longest_tokens: int | None, least_bytes: int
) -> tuple[Saving, ...]:
    """Return what saves memory, in the order of least harm to what is learned."""
    # A context cut to what the longest example fills would save nothing; "auto" may mean a device without 4 bits.
    devices = ["cpu"] if hardware.device == "cpu" else spec.hardware.devices
    used = with_changes(spec, {"data.context_length": _num_tokens(spec, longest_tokens), "hardware.devices": devices})
    savings = []
    for step in MEMORY_STEPS:
        changes = step.changes(used)
        if not changes:
            continue
        changed = with_changes(spec, changes)
        saved = least_bytes - sum(_least_parts(changed, hardware, card, longest_tokens).values())
        if saved > 0:
            savings.append(Saving(step.label(changes), changes, saved))
    return tuple(savings)
