"""Dataclasses come back from JSON as they were, and what is none of them is refused."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import asdict
from typing import Any

import pytest

from tunesmith_core import json_values
from tunesmith_core.json_values import is_count, is_number, is_time, read
from tunesmith_core.setup_messages import Finding, Fix, Part, Plan, State


@pytest.mark.parametrize(
    "value",
    [
        Finding(
            State.FAILED, "3 files differ", "environment-damaged", "a\nb", Fix("Repair", "x", bytes=5), "files", "F"
        ),
        Finding(State.OK),
        Plan((Part("a", 1, 2), Part("b")), "/data", 10, 12.5, "cpu", "No GPU"),
    ],
)
def test_what_was_written_is_read(value: object) -> None:
    told = json.loads(json.dumps(asdict(value)))  # type: ignore[call-overload]
    assert read(type(value), told | {"of_a_newer_version": 1}) == value


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Finding, {"state": "odd"}),
        (Finding, {}),
        (Finding, {"state": "ok", "message": 3}),
        (Plan, {"parts": 3}),
        (Plan, {"parts": [{"name": "a", "disk_bytes": "x"}]}),
        (Plan, {"parts": [], "seconds": "long"}),
        (Part, []),
    ],
)
def test_what_does_not_fit_is_refused(kind: type, told: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        read(kind, told)


def test_a_plan_adds_up() -> None:
    plan = Plan((Part("a", 1, 20), Part("b"), Part("c", 2, 30)))
    assert (plan.download_bytes, plan.disk_bytes) == (3, 50)


def test_halves_of_characters_are_replaced_wherever_they_stand() -> None:
    told = json_values.parse(b'\xef\xbb\xbf{"a\\ud800": ["\\uDFFF!", {"b": "\\ud83d\\ude00"}], "c": [1, null, 2.5]}')
    assert told == {"a?": ["?!", {"b": "\U0001f600"}], "c": [1, None, 2.5]}
    assert json_values.parse(b'"\\\\ud800"') == "\\ud800"


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000])
def test_what_is_too_deep_or_too_long_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply, or a number is too long"):
        json_values.parse(text.encode())


@pytest.mark.parametrize(
    ("value", "number", "count", "time"),
    [
        (0, True, True, True),
        (-1, True, False, False),
        (-0.5, True, False, False),
        (2.5, True, False, True),
        (True, False, False, False),
        (None, False, False, False),
        ("1", False, False, False),
        (json_values.MOST - 1, True, True, False),
        (json_values.MOST, True, False, False),
        (10**11, True, True, True),
        (10**11 + 1, True, True, False),
        (json_values.LARGEST, True, False, False),
        (-json_values.LARGEST, True, False, False),
        (json_values.LARGEST * 1.001, False, False, False),
        (float("nan"), False, False, False),
        (float("inf"), False, False, False),
    ],
)
def test_numbers_counts_and_times_have_their_ranges(value: object, number: bool, count: bool, time: bool) -> None:
    assert (is_number(value), is_count(value), is_time(value)) == (number, count, time)


def test_the_largest_numbers_are_those_that_can_be_stored_and_drawn() -> None:
    assert 2**sys.float_info.mant_dig == json_values.MOST
    assert json_values.LARGEST == 1e39
    assert math.isfinite(json_values.LARGEST**2)


@pytest.mark.parametrize("kind", [int, float, str])
def test_only_a_decimal_number_may_be_whole(kind: type) -> None:
    fitting = {int: [1], float: [1, 1.5], str: ["1"]}[kind]
    for value in (1, 1.5, "1"):
        if value in fitting:
            assert read(kind, value) == value
        else:
            with pytest.raises(TypeError, match=f"is not of type {kind.__name__}"):
                read(kind, value)
    assert read(kind, None) is None
    assert read(tuple[kind, ...], [fitting[0]]) == (fitting[0],)
    assert read(kind | None, fitting[0]) == fitting[0]


LIMIT = json_values.MAX_DEPTH


@pytest.mark.parametrize(
    "text",
    [
        "[" * LIMIT + "]" * LIMIT,
        '{"a":' * LIMIT + "1" + "}" * LIMIT,
        json.dumps(["[" * 200, "\\" * 3 + '"[' * 200, {"{" * 200: "]"}]),
        json.dumps([{"a": [{"b": 1}]}] * 20_000),
        '"' + "[" * 500,
        '"\\"' + "[" * 500 + "\\",
    ],
)
def test_what_is_not_deep_is_parsed(text: str) -> None:
    assert json_values.excess(text) is None
    assert not json_values.may_exceed(text) or text.count("[") > LIMIT - 10
    try:
        expected = json.loads(text)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            json_values.parse(text.encode())
    else:
        assert json_values.parse(text.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[" * (LIMIT + 1) + "]" * (LIMIT + 1),
        '{"a":' * 100_000,
        '["]",' * 200 + "1" + "]" * 200,
        '[{"a":"\\\\"},' * 200,
        json.dumps(["x" * 70_000]) [:-1] + "," + "[" * 200,
    ],
)
def test_what_is_deep_is_refused_before_it_is_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_values.may_exceed(text)
    assert json_values.excess(text) == "brackets are nested too deeply"
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(ValueError, match="nested too deeply"):
        json_values.parse(text.encode())


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    with pytest.raises(ValueError, match="a number is too long"):
        json_values.parse(b"9" * 5000)


def test_where_a_value_ends() -> None:
    assert json_values.ends('[{"a": "]"}] x', 0)
    assert json_values.ends('["a", "b"]', 1)
    assert not json_values.ends('[{"a": "]"}', 0)
    assert json_values.excess('[{"a": 1') is None
    assert json_values.excess('{"a": 1}, [[', 0, max_values=1) is None
    assert json_values.excess("[1, 2, 3]", max_values=2) == "one row holds more than 2 values"
