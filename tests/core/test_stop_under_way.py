"""A stop while an engine saves, by the supervisor in this process and a scripted engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tunesmith_core import supervisor
from tunesmith_core.forced_stop import Limits
from tunesmith_core.protocol import JournalWriter, post_command, read_journal
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.supervisor import Supervisor

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

PATIENCE_S = 60.0
TEST_LIMITS = Limits(stop_s=0.4, terminate_s=0.4, save_s=PATIENCE_S)


@pytest.fixture(autouse=True)
def fast_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)


def supervise_and_stop(run: Run, begun: Callable[[], object], *modes: str) -> None:
    """See a run through; ask it to stop once something has begun, for each mode after the one before was seen."""

    def ask() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not begun() and time.monotonic() < deadline:
            time.sleep(0.02)
        for mode in modes:
            post_command(run.control_path, "stop", mode=mode)
            time.sleep(0.3)

    thread = threading.Thread(target=ask)
    thread.start()
    Supervisor(run, TEST_LIMITS).supervise()
    thread.join()


def has_begun(run: Run, kind: str) -> Callable[[], bool]:
    return lambda: any(event.type == kind for event in read_journal(run.journal_path))


def test_who_saves_and_then_discards_waits_for_no_save(
    fake_engine: Script, make_spec: Make, caplog: pytest.LogCaptureFixture
) -> None:
    saving = ["event", "phase", {"name": "saving"}]
    fake_engine({"*": [["ignore_terminate"], ["hello"], ["steps", 2], saving, ["sleep", 30]]})
    run = create_run(make_spec("s"))
    supervise_and_stop(run, has_begun(run, "step"), "save", "discard")
    assert run.status().state is RunState.STOPPED
    assert "terminate" in caplog.text


def test_a_save_that_moves_on_may_finish(
    fake_engine: Script,
    make_spec: Make,
    caplog: pytest.LogCaptureFixture,  # after its result it may be ended, beside other work
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["save_slowly", 1.5], ["result", "stopped"]]})
    run = create_run(make_spec("s"))
    supervise_and_stop(run, lambda: any(run.checkpoints_path.glob(".staging-*/*")), "save")
    status = run.status()
    assert (status.state, status.last_checkpoint_step) == (RunState.STOPPED, 2)


def test_what_a_killed_engine_left_is_no_save(
    fake_engine: Script, make_spec: Make, caplog: pytest.LogCaptureFixture
) -> None:
    fake_engine({"*": [["ignore_terminate"], ["hello"], ["sleep", 30]]})
    run = create_run(make_spec("s"))
    left = run.checkpoints_path / ".staging-step-000002-abc"
    left.mkdir(parents=True)
    (left / "adapter.safetensors").write_bytes(b"half")
    # That one came to step 3 and had saved none, of which this one's stop knows nothing.
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("step", step=3, loss=1.0, lr=1.0, tokens_per_s=1.0, step_s=1.0)
    supervise_and_stop(run, has_begun(run, "hello"), "save")
    assert run.status().state is RunState.STOPPED
    assert "terminate" in caplog.text
