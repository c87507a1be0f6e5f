"""Wherever an engine stalls and however, a stop ends the run within 10 s, and nothing that was trained is lost."""

from __future__ import annotations

import pytest

from tests.engine.stalls import BEFORE_STEPS, MakeSpec, NewRun, Stall, outcome, stop_all, whole_run
from tunesmith_core.runs import Run


@pytest.fixture
def whole(tiny_spec: MakeSpec, new_run: NewRun) -> Run:
    return whole_run(tiny_spec, new_run)


SAMPLE = [
    Stall("gradients", 7, "computes", "save"),
    Stall("update", 4, "naps", "save"),
]


@pytest.mark.parametrize("stall", SAMPLE, ids=str)
def test_a_stop_ends_a_stalled_run(
    stall: Stall,
    whole: Run,
    new_run: NewRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = "lost and told" if stall.place == "update" else "kept"
    assert outcome(stall, whole, new_run, monkeypatch) == wanted
    assert ("made to end" in caplog.text) is stall.by_force


@pytest.mark.long
@pytest.mark.parametrize("place", BEFORE_STEPS)
def test_every_stall_before_the_steps_is_stopped(
    place: str,
    whole: Run,
    new_run: NewRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stop_all(place, whole, new_run, monkeypatch, capfd)
    del caplog
