"""The supervisor and launch with a scripted engine: ends, stops, queue, crashes, leftovers."""

from __future__ import annotations

from tunesmith_core import launch
from tunesmith_core.runs import RunState


def test_a_started_run_finishes(fake_engine, make_spec):
    run = launch.start(make_spec("good"))
    status = launch.wait(run)
    assert status.state is RunState.FINISHED, run.supervisor_log_path.read_text()
    assert status.step == 3
