"""The one table of ways to use less memory."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.memory_steps import MEMORY_STEPS, steps_left
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes

LARGE = {
    "schedule.micro_batch_size": 4,
    "schedule.gradient_accumulation_steps": 2,
    "hardware.activation_checkpointing": False,
    "data.context_length": 2048,
    "quantization.kind": "none",
    "adapter.rank": 16,
}
SMALL = {
    "schedule.micro_batch_size": 1,
    "hardware.activation_checkpointing": True,
    "data.context_length": 256,
    "quantization.kind": "nf4",
    "adapter.rank": 4,
}


def large(step: str) -> RunSpec:
    """Return a spec of which a step is left."""
    is_of_full = step in ("eight-bit-states", "layer-by-layer", "bfloat16-weights", "adapter")
    spec = with_changes(RunSpec(), {**LARGE, "adapter.kind": "full" if is_of_full else "lora"})
    if step == "four-bit-teacher":
        return with_changes(spec, {"objective.kind": "gkd"})
    # Further micro-batches add to all gradients.
    return with_changes(spec, {"schedule.gradient_accumulation_steps": 1} if step == "layer-by-layer" else {})


def test_each_step_changes_one_thing_least_harm_first() -> None:
    spec = with_changes(RunSpec(), LARGE)
    assert [(step.name, dict(step.changes(spec)), step.label(step.changes(spec))) for step in steps_left(spec)] == [
        (
            "micro-batch",
            {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 8},
            "micro-batches of 1",
        ),
        ("activation-checkpointing", {"hardware.activation_checkpointing": True}, "activation checkpointing"),
        ("context", {"data.context_length": 1536}, "1,536 tokens"),
        ("four-bit", {"quantization.kind": "nf4"}, "a 4-bit base (QLoRA)"),
        ("rank", {"adapter.rank": 8}, "rank 8"),
    ]
    assert spec == with_changes(RunSpec(), LARGE)


def test_full_fine_tuning_has_steps_of_its_own() -> None:
    spec = with_changes(RunSpec(), {**SMALL, "adapter.kind": "full", "quantization.kind": "none"})
    spec.optimizer.learning_rate = 2e-5
    assert [(step.name, dict(step.changes(spec)), step.label(step.changes(spec))) for step in steps_left(spec)] == [
        ("eight-bit-states", {"optimizer.name": "adamw_8bit"}, "AdamW with 8-bit states"),
        ("bfloat16-weights", {"adapter.weights": "bfloat16"}, "trained weights in bfloat16"),
        ("adapter", {"adapter.kind": "lora", "optimizer.learning_rate": 2e-4}, "LoRA instead of full fine-tuning"),
    ]
    spec.optimizer.name, spec.model.dtype = "muon", "float16"
    (last,) = steps_left(spec)
    assert last.changes(spec)["optimizer.name"] == "adamw"
    smaller = last.take(spec)
    assert smaller
    assert {problem.path for problem in smaller.problems()} == {"model.path", "data.sources[0].path"}


@pytest.mark.parametrize("step", MEMORY_STEPS, ids=lambda step: step.name)
def test_a_step_can_be_taken_until_nothing_is_left(step: Any) -> None:
    spec, num_taken = large(step.name), 0
    while (smaller := step.take(spec)) is not None:
        assert smaller != spec
        spec, num_taken = smaller, num_taken + 1
        assert num_taken < 20
    assert num_taken > 0


def test_a_context_is_cut_to_no_less_than_256_tokens() -> None:
    lengths = {
        length: with_changes(RunSpec(), {"data.context_length": length}) for length in (340, 341, 342, 384, 1000)
    }
    step = next(step for step in MEMORY_STEPS if step.name == "context")
    assert {length: dict(step.changes(spec)) for length, spec in lengths.items()} == {
        340: {},
        341: {},
        342: {"data.context_length": 256},
        384: {"data.context_length": 256},
        1000: {"data.context_length": 704},
    }


def test_a_rank_is_halved_to_no_less_than_4() -> None:
    step = next(step for step in MEMORY_STEPS if step.name == "rank")
    ranks = {rank: dict(step.changes(with_changes(RunSpec(), {"adapter.rank": rank}))) for rank in (4, 5, 9, 16)}
    assert ranks == {4: {}, 5: {"adapter.rank": 4}, 9: {"adapter.rank": 4}, 16: {"adapter.rank": 8}}


def test_nothing_is_left_of_the_smallest() -> None:
    assert steps_left(with_changes(RunSpec(), SMALL)) == []


def test_four_bits_are_not_offered_on_the_cpu() -> None:
    spec = with_changes(RunSpec(), LARGE | {"hardware.devices": ["cpu"]})
    assert "four-bit" not in [step.name for step in steps_left(spec)]


def test_the_engine_takes_only_what_leaves_the_learning_as_it_is() -> None:
    for step in MEMORY_STEPS:
        spec = large(step.name)
        smaller = step.take(spec)
        assert smaller is not None
        same = (
            smaller.data == spec.data
            and smaller.adapter == spec.adapter
            and smaller.quantization == spec.quantization
            and smaller.optimizer == spec.optimizer
            and smaller.teacher == spec.teacher
            and smaller.schedule.micro_batch_size * smaller.schedule.gradient_accumulation_steps == 8
        )
        assert same == step.by_engine
