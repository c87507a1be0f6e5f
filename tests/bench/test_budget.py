"""The table of budgets: noise and a busy machine are forgiven, more is not."""

from __future__ import annotations

import pytest

from tests.bench import budget


def test_one_good_try_among_noise_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_slowness", lambda _clock: 1.0)
    tries = iter([30.0, 20.0, 9.0])
    budget.report("noise", lambda: next(tries), 10, "ms")
    assert next(tries, None) is None


def test_a_busy_machine_is_given_more_time_but_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_slowness", lambda _clock: 3.0)
    budget.report("busy", lambda: 29.0, 10, "ms")
    with pytest.raises(AssertionError, match="memory: 29"):
        budget.report("memory", lambda: 29.0, 10, "MiB")


def test_what_is_slower_every_time_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_slowness", lambda _clock: 1.0)
    measured: list[float] = []
    with pytest.raises(AssertionError, match="slow: 11"):
        budget.report("slow", lambda: measured.append(11.0) or 11.0, 10, "ms")
    assert len(measured) == budget.TRIES
