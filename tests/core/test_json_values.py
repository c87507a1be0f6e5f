"""Dataclasses come back from JSON as they were, and what is none of them is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tunesmith_core.json_values import read
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
