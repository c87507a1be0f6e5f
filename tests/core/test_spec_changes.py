"""A spec that was edited between stop and resume: what changed is named, and what can't change is refused."""

from __future__ import annotations

import pytest

from tunesmith_core.errors import UserError
from tunesmith_core.spec import SECTIONS, RunSpec
from tunesmith_core.spec_changes import EFFECTS, FIXED, check_resumable, with_changes


def spec() -> RunSpec:
    """A spec with a model and data."""
    values = {"version": 2, "model": {"path": "/models/tiny"}, "data": {"sources": [{"path": "/rows.jsonl"}]}}
    return RunSpec.from_dict(values)


def test_the_same_spec_has_no_changes_and_a_name_is_none() -> None:
    other = spec()
    other.name = "renamed"
    assert check_resumable(spec(), other) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("optimizer.learning_rate", 0.001, "optimizer.learning_rate: 0.0002 -> 0.001"),
        ("schedule.max_steps", 9, "schedule.max_steps: 0 -> 9"),
        ("adapter.dropout", 0.5, "adapter.dropout: 0.0 -> 0.5"),
        ("hardware.devices", ["cpu"], 'hardware.devices: ["auto"] -> ["cpu"]'),
        ("data.system_prompt", "Be kind.", 'data.system_prompt: "" -> "Be kind."'),
    ],
)
def test_what_may_change_is_named(path: str, value: object, words: str) -> None:
    (told,) = check_resumable(spec(), with_changes(spec(), {path: value}))
    assert told == f"{words}. {EFFECTS[path]}"


def test_what_a_change_does_is_declared_for_every_setting() -> None:
    values = spec().to_dict()
    settings = {f"{section}.{name}" for section in SECTIONS for name in values[section]}
    assert settings == {*FIXED, *EFFECTS}
    assert not set(FIXED) & EFFECTS.keys()


def test_a_checkpoint_that_noted_no_settings_is_told() -> None:
    (told,) = check_resumable(None, spec())
    assert "earlier version" in told


def test_a_long_text_is_cut() -> None:
    (told,) = check_resumable(spec(), with_changes(spec(), {"data.system_prompt": "Be kind. " * 10_000}))
    assert len(told) < 500


def test_a_text_is_shown_as_it_was_written_up_to_a_length() -> None:
    for num_more, end in ((147, '"'), (148, "…")):
        text = "好" * 150 + " "
        (told,) = check_resumable(spec(), with_changes(spec(), {"data.system_prompt": text + "是" * num_more}))
        assert told.startswith(f'data.system_prompt: "" -> "{text}{"是" * 147}{end}. ')


def test_another_data_file_is_named() -> None:
    (words,) = check_resumable(spec(), with_changes(spec(), {"data.sources[0].path": "/other.jsonl"}))
    assert words.startswith("data.sources: ")
    assert "/other.jsonl" in words


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("adapter.rank", 8, "adapter.rank: 16 -> 8"),
        ("adapter.target_modules", ["q_proj"], 'adapter.target_modules: all-linear -> ["q_proj"]'),
        ("optimizer.name", "adamw_8bit", "optimizer.name: adamw -> adamw_8bit"),
        ("quantization.kind", "nf4", "quantization.kind: none -> nf4"),
        ("objective.kind", "other", "objective.kind: sft -> other"),
        ("model.path", "/models/large", "model.path: /models/tiny -> /models/large"),
    ],
)
def test_what_a_checkpoint_depends_on_is_refused(path: str, value: object, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_resumable(spec(), with_changes(spec(), {path: value, "schedule.epochs": 9.0}))
    assert caught.value.code == "resume-refused"
    assert caught.value.message.endswith(f" {words}.")
    assert "Change them back" in caught.value.hint


def test_a_model_that_was_moved_is_the_same() -> None:
    assert check_resumable(spec(), with_changes(spec(), {"model.path": "D:\\somewhere\\tiny"})) == []
