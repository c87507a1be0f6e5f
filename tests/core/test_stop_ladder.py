"""The stop ladder on a made-up clock."""

from __future__ import annotations

from tunesmith_core.protocol import Event
from tunesmith_core.stop_ladder import Limits, Rung, StopLadder


def event(kind: str, **data: object) -> Event:
    return Event(1, 0.0, kind, data)


def test_nothing_happens_without_a_stop() -> None:
    ladder = StopLadder(Limits())
    ladder.see(event("step", step_s=1.0), 0.0)
    assert ladder.rung(1e9) is Rung.WAIT


def test_silence_after_a_stop_is_ended_gently_then_at_once() -> None:
    ladder = StopLadder(Limits())
    ladder.ask("save", 100.0)
    assert [ladder.rung(now) for now in (159.0, 160.0, 169.0, 170.0)] == [
        Rung.WAIT,
        Rung.TERMINATE,
        Rung.TERMINATE,
        Rung.KILL,
    ]


def test_progress_gives_time_and_mere_steps_do_not() -> None:
    ladder = StopLadder(Limits())
    ladder.see(event("stopping", mode="discard"), 100.0)
    assert ladder.mode == "discard"
    ladder.see(event("phase", name="saving"), 150.0)
    assert ladder.rung(200.0) is Rung.WAIT
    ladder.see(event("step"), 205.0)
    assert ladder.rung(211.0) is Rung.TERMINATE


def test_asking_again_changes_the_mode_and_not_the_clock() -> None:
    ladder = StopLadder(Limits())
    ladder.see(event("ack", command="sample", ok=True), 0.0)
    assert ladder.mode is None
    ladder.see(event("ack", command="stop", ok=True), 0.0)
    assert ladder.mode == "save"
    ladder.ask("discard", 50.0)
    assert (ladder.mode, ladder.rung(61.0)) == ("discard", Rung.TERMINATE)


def test_slow_saves_and_steps_get_three_times_their_duration() -> None:
    ladder = StopLadder(Limits())
    ladder.see(event("checkpoint", seconds=100.0), 0.0)
    assert ladder.limit_s == 300.0
    ladder.see(event("step", step_s=200.0), 0.0)
    assert ladder.limit_s == 600.0
    ladder.see(event("step", step_s=None), 0.0)
    assert ladder.limit_s == 600.0


def test_after_a_result_the_end_is_due_soon() -> None:
    ladder = StopLadder(Limits())
    ladder.see(event("result", status="finished"), 100.0)
    assert [ladder.rung(now) for now in (119.0, 120.0)] == [Rung.WAIT, Rung.KILL]
