"""Settings as text: what is shown can be typed back, and the words for a wrong value agree with core."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith_core.declared import value_problem
from tunesmith_core.spec import iter_settings
from tunesmith_gui.new_run.setting_text import (
    SHARES,
    SettingProblem,
    choice_text,
    help_text,
    number_text,
    parse,
    unit_text,
    value_text,
)

SETTINGS = {setting.path: setting for setting in iter_settings()}
NUMBERS = [setting for setting in SETTINGS.values() if setting.type in (int, float)]


@pytest.mark.parametrize("setting", [s for s in SETTINGS.values() if s.type is not bool], ids=lambda s: s.path)
def test_a_default_is_read_back_from_its_text(setting: Any) -> None:
    assert parse(setting, value_text(setting, setting.default)) == setting.default


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_a_number_keeps_its_value_as_text(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=1e-5, abs=0)


@given(st.sampled_from(NUMBERS), st.integers(-5, 2_000_000))
def test_ranges_agree_with_core(setting: Any, value: int) -> None:
    problem, scale = value_problem(value, setting.declaration), 100 if setting.path in SHARES else 1
    if problem is None:
        assert parse(setting, str(value * scale)) == value
        return
    with pytest.raises(SettingProblem) as caught:
        parse(setting, str(value * scale))
    words, bound = str(caught.value).lower().rsplit(" ", 1)
    core_words, core_bound = problem.rsplit(" ", 1)
    assert words == core_words
    assert float(bound) == pytest.approx(float(core_bound.replace(",", "")) * scale, rel=1e-5)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_told_problem(text: str) -> None:
    for setting in SETTINGS.values():
        if setting.type is bool:
            continue
        with contextlib.suppress(SettingProblem):
            value = parse(setting, text)
            assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("optimizer.learning_rate", " 2e-4 ", 2e-4),
        ("data.context_length", "2 048", 2048),
        ("adapter.target_modules", "q_proj, v_proj", ["q_proj", "v_proj"]),
        ("adapter.target_modules", "all-linear", "all-linear"),
        ("evaluation.sample_prompts", "Who, me?\n\nWhat?", ["Who, me?", "What?"]),
        ("data.sources[0].columns", "prompt = q, completion = a", {"prompt": "q", "completion": "a"}),
        ("model.dtype", "float16", "float16"),
    ],
)
def test_texts_become_values(path: str, text: str, value: object) -> None:
    assert parse(SETTINGS[path], text) == value


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("optimizer.learning_rate", "abc", "Must be a number such as 2e-4, not “abc”"),
        ("schedule.epochs", "three", "Must be a number such as 3, not “three”"),
        ("evaluation.percent", "a few", "Must be a number such as 5, not “a few”"),
        ("adapter.dropout", "none", "Must be a number such as 0.1, not “none”"),
        ("optimizer.learning_rate", "inf", "Must be a finite number"),
        ("adapter.rank", "0", "Must be at least 1"),
        ("adapter.rank", "1.5", "Must be a whole number, not “1.5”"),
        ("adapter.target_modules", " , ", "Name at least one module, or all-linear"),
        ("data.sources[0].columns", "prompt", "Write it as: role = column, role = column"),
        ("model.dtype", "int3", "Must be one of auto, float32, bfloat16, float16"),
    ],
)
def test_wrong_texts_are_explained(path: str, text: str, words: str) -> None:
    with pytest.raises(SettingProblem) as caught:
        parse(SETTINGS[path], text)
    assert str(caught.value) == words


@pytest.mark.parametrize("path", [each.path for each in iter_settings() if each.type is float])
def test_the_example_for_a_wrong_number_is_a_right_one(path: str) -> None:
    with pytest.raises(SettingProblem) as caught:
        parse(SETTINGS[path], "abc")
    example = str(caught.value).removeprefix("Must be a number such as ").removesuffix(", not “abc”")
    assert isinstance(parse(SETTINGS[path], example), float)


def test_every_choice_is_shown_in_words() -> None:
    choices = [choice for setting in iter_settings() for choice in setting.declaration.choices]
    raw = [choice for choice in choices if choice_text(choice) == choice]
    assert set(raw) == {"float32", "bfloat16", "float16"}, "names of number formats are what people call them"


def test_help_says_meaning_range_and_effect() -> None:
    meaning, allowed, effect = help_text(SETTINGS["adapter.rank"]).split("\n")
    assert "Size of the adapter" in meaning
    assert allowed == "Range: 1 to 4096"
    assert "memory" in effect


def test_a_share_of_a_spec_is_shown_in_percent() -> None:
    setting = SETTINGS["teacher.own_answers"]
    assert value_text(setting, 0.07) == "7"
    assert parse(setting, "50") == 0.5
    assert (unit_text(setting), unit_text(SETTINGS["adapter.dropout"])) == ("%", "")
    assert "0 to 100" in help_text(setting)
    with pytest.raises(SettingProblem, match="at most 100"):
        parse(setting, "101")
