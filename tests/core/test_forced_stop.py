"""The forced stop on a made-up clock."""

from __future__ import annotations

import pytest

from tunesmith_core.forced_stop import Force, ForcedStop, Limits
from tunesmith_core.protocol import Event

PROMISED_S = 10.0


def event(kind: str, **data: object) -> Event:
    return Event(1, 0.0, kind, data)


def asked(mode: str = "save", now_s: float = 100.0) -> ForcedStop:
    forced_stop = ForcedStop(Limits())
    forced_stop.ask(mode, now_s)
    return forced_stop


def test_nothing_happens_without_a_stop() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("step", step_s=1.0), 0.0)
    assert forced_stop.force(1e9) is Force.WAIT


def test_an_engine_that_ignores_a_stop_is_ended_gently_then_at_once_within_ten_seconds() -> None:
    forced_stop = asked()
    assert [forced_stop.force(now) for now in (106.9, 107.0, 107.9, 108.0)] == [
        Force.WAIT,
        Force.TERMINATE,
        Force.TERMINATE,
        Force.KILL,
    ]
    limits = Limits()
    assert limits.stop_s + limits.terminate_s < PROMISED_S


@pytest.mark.parametrize("kind", ["step", "phase", "eval", "sample", "checkpoint", "warning", "gpu"])
def test_nothing_but_a_save_gives_more_time(kind: str) -> None:
    forced_stop = asked()
    for now in range(100, 108):
        forced_stop.see(event(kind, name="training", step=now, step_s=200.0, seconds=0.1), float(now))
    assert forced_stop.force(108.0) is Force.KILL


def test_a_stop_that_only_the_engine_took_counts() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("ack", command="sample", ok=True), 0.0)
    assert forced_stop.mode is None
    forced_stop.see(event("ack", command="stop", ok=False), 0.0)
    assert forced_stop.mode is None
    forced_stop.see(event("ack", command="stop", ok=True), 0.0)
    assert forced_stop.mode == "save"
    forced_stop.see(event("stopping", mode="discard"), 0.0)
    assert (forced_stop.mode, forced_stop.force(7.0)) == ("discard", Force.TERMINATE)


def test_a_discard_sharpens_a_save_with_a_new_clock_and_not_the_reverse() -> None:
    forced_stop = asked("save", 0.0)
    forced_stop.ask("discard", 5.0)
    for now in (6.0, 7.0, 8.0):
        # Both commands may lie there, when the engine takes none.
        forced_stop.ask("save", now)
        forced_stop.ask("discard", now)
    assert forced_stop.mode == "discard"
    assert [forced_stop.force(now) for now in (11.9, 12.0, 13.0)] == [Force.WAIT, Force.TERMINATE, Force.KILL]


def test_a_save_under_way_may_end() -> None:
    forced_stop = asked("save", 100.0)
    forced_stop.see(event("phase", name="saving"), 102.0)
    assert [forced_stop.force(now) for now in (161.9, 162.0)] == [Force.WAIT, Force.TERMINATE]
    forced_stop.see(event("checkpoint", step=3, seconds=30.0), 150.0)
    assert forced_stop.limit_s == 90.0
    assert [forced_stop.force(now) for now in (239.9, 240.0)] == [Force.WAIT, Force.TERMINATE]


def test_files_that_grow_are_a_save_under_way() -> None:
    forced_stop = asked("save", 100.0)
    forced_stop.see_files({("a", 1)}, 101.0)
    forced_stop.see_files({("a", 2)}, 150.0)
    forced_stop.see_files({("a", 2)}, 200.0)
    assert [forced_stop.force(now) for now in (209.9, 210.0)] == [Force.WAIT, Force.TERMINATE]
    # It is saved: what comes now needs no more than any other stop.
    forced_stop.see_files(set(), 205.0)
    assert [forced_stop.force(now) for now in (211.9, 212.0)] == [Force.WAIT, Force.TERMINATE]


def test_what_is_discarded_need_not_be_saved() -> None:
    forced_stop = asked("save", 100.0)
    forced_stop.see(event("phase", name="saving"), 101.0)
    forced_stop.ask("discard", 120.0)
    forced_stop.see_files({("a", 1)}, 125.0)
    forced_stop.see(event("phase", name="saving"), 126.0)
    assert [forced_stop.force(now) for now in (126.9, 127.0)] == [Force.WAIT, Force.TERMINATE]


def test_steps_are_unsaved_until_a_checkpoint() -> None:
    forced_stop = ForcedStop(Limits())
    assert not forced_stop.is_unsaved
    forced_stop.see(event("step", step=1), 0.0)
    assert forced_stop.is_unsaved
    forced_stop.see(event("checkpoint", step=1, seconds=None), 0.0)
    assert not forced_stop.is_unsaved


def test_after_a_result_the_end_is_due_soon() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("result", status="finished"), 100.0)
    assert [forced_stop.force(now) for now in (119.0, 120.0)] == [Force.WAIT, Force.KILL]


def test_a_result_gives_a_stop_no_more_time() -> None:
    forced_stop = asked("save", 100.0)
    forced_stop.see(event("result", status="stopped"), 106.0)
    assert [forced_stop.force(now) for now in (106.9, 107.0)] == [Force.WAIT, Force.KILL]
