"""Presets: what they change, how they are recognised, and which memory settings suit a card."""

from __future__ import annotations

import pytest

from tests.core.test_planner import CARD, CPU, gpu
from tunesmith_core import presets
from tunesmith_core.planner import plan
from tunesmith_core.spec import RunSpec, iter_settings
from tunesmith_core.spec_changes import with_changes


def test_every_preset_sets_the_same_known_settings_to_valid_values() -> None:
    known = {setting.path for setting in iter_settings()}
    for name, changes in presets.PRESETS.items():
        assert changes.keys() == presets.PRESETS[presets.DEFAULT].keys() <= known
        spec = presets.apply(RunSpec(), name)
        spec.model.path = spec.data.sources[0].path = "x"
        assert spec.problems() == []


def test_the_defaults_are_the_default_preset() -> None:
    assert presets.matching(RunSpec()) == presets.DEFAULT
    assert presets.apply(RunSpec(), presets.DEFAULT) == RunSpec()


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_is_recognised_and_leaves_the_rest_alone(name: str) -> None:
    spec = RunSpec()
    spec.data.context_length = 77
    changed = presets.apply(spec, name)
    assert presets.matching(changed) == name
    assert changed.data.context_length == 77
    assert presets.apply(changed, presets.DEFAULT) == spec


@pytest.mark.parametrize("name", presets.PRESETS)
@pytest.mark.parametrize(("kind", "divisor"), [("sft", 1), ("dpo", 4), ("orpo", 4), ("cpo", 4), ("simpo", 10)])
def test_a_preset_suits_its_learning_rate_to_the_objective(kind: str, divisor: int, name: str) -> None:
    spec = RunSpec()
    spec.objective.kind = kind
    changed = presets.apply(spec, name)
    assert changed.optimizer.learning_rate == pytest.approx(presets.PRESETS[name]["optimizer.learning_rate"] / divisor)
    assert presets.matching(changed) == name
    # Of a number such as 2.0000000000000002e-05 a person sees every digit.
    assert len(repr(changed.optimizer.learning_rate)) <= len("7.5e-05")


def test_documents_are_read_where_every_token_of_a_long_text_is_learned() -> None:
    spec = with_changes(RunSpec(), presets.DOCUMENTS)
    assert presets.reads_documents(spec)
    assert presets.matching(presets.apply(spec, presets.DEFAULT)) == presets.DEFAULT
    assert not presets.reads_documents(with_changes(spec, {"objective.kind": "dpo"}))
    assert not presets.reads_documents(with_changes(spec, {"data.overlong": "skip"}))


def test_anything_else_is_custom() -> None:
    assert presets.matching(with_changes(RunSpec(), {"adapter.rank": 17})) is None


def test_every_rung_of_the_memory_ladder_suits_its_card_with_the_same_effective_batch() -> None:
    totals = []
    for card_gib, changes in presets.MEMORY_LADDER.items():
        spec = with_changes(RunSpec(), changes)
        assert spec.schedule.micro_batch_size * spec.schedule.gradient_accumulation_steps == 8
        planned = plan(spec, gpu(card_gib), card=CARD)
        assert planned.verdict != "exceeds"
        totals.append(planned.total_bytes)
    assert totals == sorted(totals, reverse=True)


def test_presets_differ_in_rank_speed_and_length() -> None:
    alike = ("schedule.scheduler", "optimizer.embedding_rate")
    values = {
        name: [value for path, value in changes.items() if path not in alike]
        for name, changes in presets.PRESETS.items()
    }
    assert values == {
        "balanced": [16, 32.0, 2e-4, 3.0, 0],
        "fast-try": [8, 16.0, 3e-4, 1.0, 60],
        "best-quality": [64, 64.0, 1e-4, 3.0, 0],
    }


def test_the_rungs_go_from_generous_to_sparing() -> None:
    rungs = [
        (changes["schedule.micro_batch_size"], changes["data.context_length"], changes["optimizer.name"])
        for changes in presets.MEMORY_LADDER.values()
    ]
    assert rungs == [
        (4, 2048, "adamw"),
        (1, 2048, "adamw"),
        (2, 2048, "adamw"),
        (1, 2048, "adamw"),
        (1, 512, "adamw_8bit"),
    ]
    sparing = [changes["hardware.activation_checkpointing"] for changes in presets.MEMORY_LADDER.values()]
    assert sparing == [False, True, True, True, True]
    kinds = [changes["quantization.kind"] for changes in presets.MEMORY_LADDER.values()]
    assert kinds == ["none", "none", "nf4", "nf4", "nf4"]


@pytest.mark.parametrize(("free_gib", "card_gib"), [(96, 96), (24, 96), (16, 16), (12, 16), (8, 8)])
def test_a_card_of_each_size_gets_its_rung(free_gib: int, card_gib: int) -> None:
    assert presets.suggest(CARD, gpu(free_gib)) == presets.MEMORY_LADDER[card_gib]


def test_the_most_generous_rung_that_fits_is_suggested() -> None:
    kinds = [presets.suggest(CARD, gpu(free_gib))["quantization.kind"] for free_gib in (140, 6)]
    assert kinds == ["none", "nf4"]
    assert presets.suggest(CARD, gpu(140)) == presets.MEMORY_LADDER[96]
    assert presets.suggest(CARD, gpu(1)) == presets.MEMORY_LADDER[8]
    assert presets.suggest(CARD, CPU, RunSpec()) in presets.MEMORY_LADDER.values()
