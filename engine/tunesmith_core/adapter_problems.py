"""What is wrong between the settings of an adapter and of a run that are right alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.adapter_ranks import FROM_WEIGHTS, ranks
from tunesmith_core.declared import FieldProblem
from tunesmith_core.messages import Message
from tunesmith_core.objectives import HEADS, REINFORCEMENT, uses
from tunesmith_core.spec_sections import CHOICE_WORDS
from tunesmith_core.trained_parts import OPTIMIZERS_OF_FULL

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec

FROM_DATA = "eva"
"""Initial values that are computed from training rows."""


def adapter_problems(spec: RunSpec) -> Iterator[FieldProblem]:
    """Yield what is wrong where an adapter is trained."""
    if spec.optimizer.name in OPTIMIZERS_OF_FULL:
        words = Message(
            "{optimizer} is for full fine-tuning. Choose AdamW for LoRA",
            optimizer=Message(CHOICE_WORDS[spec.optimizer.name]),
        )
        yield FieldProblem("optimizer.name", words)
    if spec.adapter.kind in KINDS:
        yield from _kind_problems(spec)
    else:
        yield from _lora_problems(spec)


def _kind_problems(spec: RunSpec) -> Iterator[FieldProblem]:
    kind = KINDS[spec.adapter.kind]
    if spec.objective.reference_adapter and uses(spec.objective.kind, "objective.reference_adapter"):
        words = Message("is for LoRA only. Leave it empty to compare with the base model")
        yield FieldProblem("objective.reference_adapter", words)
    if spec.objective.kind in HEADS | REINFORCEMENT:
        words = Message(
            "must be LoRA for the objective {objective}", objective=Message(CHOICE_WORDS[spec.objective.kind])
        )
        yield FieldProblem("adapter.kind", words)
    if spec.quantization.kind != "none" and not kind.takes_quantized:
        words = Message("must be none for {kind}, which PEFT does not support on 4 or 8 bits", kind=kind.title)
        yield FieldProblem("quantization.kind", words)
    if spec.adapter.kind == "oft" and spec.adapter.rank < 2:
        yield FieldProblem("adapter.rank", Message("must be at least 2 for OFT"))


def _lora_problems(spec: RunSpec) -> Iterator[FieldProblem]:
    adapter = spec.adapter
    if adapter.start_from and adapter.initial_values != "default":
        words = Message("has no effect where an adapter is continued. Choose the usual ones")
        yield FieldProblem("adapter.initial_values", words)
    if adapter.initial_values == "orthogonal":
        if adapter.rank % 2:
            yield FieldProblem("adapter.rank", Message("must be even for orthogonal initial values"))
        if any(rank % 2 for rank in ranks(adapter.rank_pattern).values()):
            yield FieldProblem("adapter.rank_pattern", Message("must be even for orthogonal initial values"))
        if spec.quantization.kind != "none":
            words = Message("can't be orthogonal beside frozen weights in 4 bits. Choose the usual ones")
            yield FieldProblem("adapter.initial_values", words)
    if adapter.initial_values in FROM_WEIGHTS and adapter.dropout:
        words = Message(
            "must be 0 for {values}, which does not work with dropout",
            values=Message(CHOICE_WORDS[adapter.initial_values]),
        )
        yield FieldProblem("adapter.dropout", words)
    if adapter.initial_values == FROM_DATA and spec.objective.kind in HEADS | REINFORCEMENT:
        yield FieldProblem("adapter.initial_values", Message("can't be EVA for this objective. Choose the usual ones"))
