"""The stop forced_stop on a made-up clock."""

from __future__ import annotations

from tunesmith_core.forced_stop import Force, ForcedStop, Limits
from tunesmith_core.protocol import Event


def event(kind: str, **data: object) -> Event:
    return Event(1, 0.0, kind, data)


def test_nothing_happens_without_a_stop() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("step", step_s=1.0), 0.0)
    assert forced_stop.force(1e9) is Force.WAIT


def test_silence_after_a_stop_is_ended_gently_then_at_once() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.ask("save", 100.0)
    assert [forced_stop.force(now) for now in (159.0, 160.0, 169.0, 170.0)] == [
        Force.WAIT,
        Force.TERMINATE,
        Force.TERMINATE,
        Force.KILL,
    ]


def test_progress_gives_time_and_mere_steps_do_not() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("stopping", mode="discard"), 100.0)
    assert forced_stop.mode == "discard"
    forced_stop.see(event("phase", name="saving"), 150.0)
    assert forced_stop.force(200.0) is Force.WAIT
    forced_stop.see(event("step"), 205.0)
    assert forced_stop.force(211.0) is Force.TERMINATE


def test_asking_again_changes_the_mode_and_not_the_clock() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("ack", command="sample", ok=True), 0.0)
    assert forced_stop.mode is None
    forced_stop.see(event("ack", command="stop", ok=True), 0.0)
    assert forced_stop.mode == "save"
    forced_stop.ask("discard", 50.0)
    assert (forced_stop.mode, forced_stop.force(61.0)) == ("discard", Force.TERMINATE)


def test_slow_saves_and_steps_get_three_times_their_duration() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("checkpoint", seconds=100.0), 0.0)
    assert forced_stop.limit_s == 300.0
    forced_stop.see(event("step", step_s=200.0), 0.0)
    assert forced_stop.limit_s == 600.0
    forced_stop.see(event("step", step_s=None), 0.0)
    assert forced_stop.limit_s == 600.0


def test_after_a_result_the_end_is_due_soon() -> None:
    forced_stop = ForcedStop(Limits())
    forced_stop.see(event("result", status="finished"), 100.0)
    assert [forced_stop.force(now) for now in (119.0, 120.0)] == [Force.WAIT, Force.KILL]
