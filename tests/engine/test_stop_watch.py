"""The watch that ends a run beside its main thread, here beside a thread that plays it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.engine.conftest import events
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine import stop_watch
from tunesmith_engine.host import Host
from tunesmith_engine.stop_watch import End, StopWatch

LIMIT_S = 60.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@dataclass
class Play:
    """A watched run, and what became of it."""

    host: Host
    left: list[int] = field(default_factory=list)
    num_ends: int = 0
    through: threading.Event = field(default_factory=threading.Event)

    def end(self) -> dict[str, object]:
        self.num_ends += 1
        return {"status": "stopped", "step": 3}

    def watch(self, end: End | None = None) -> StopWatch:
        """Watch; who leaves only says so, and the thread that left does nothing more."""

        def conclude(end: End) -> int:
            self.host.event("result", **end())
            return 5

        return StopWatch(self.host, end or self.end, conclude, self.left.append)

    def rest_until(self, moment: Callable[[], object], watch: StopWatch) -> None:
        """Be the main thread, which computes until a moment."""
        with watch:
            with watch.at_rest():
                wait_for(moment)
            self.through.set()

    def rest_beside(self, watch: StopWatch) -> threading.Thread:
        """Be the main thread in a thread of its own, until the run was left."""
        thread = threading.Thread(target=self.rest_until, args=(lambda: self.left, watch), daemon=True)
        thread.start()
        wait_for(lambda: self.left)
        return thread

    def free(self, watch: StopWatch, thread: threading.Thread) -> None:
        """Undo what holds up a process that is left."""
        self.host.turn = threading.RLock()
        watch._state.release()
        thread.join()

    def stop(self, mode: str) -> None:
        post_command(self.host.run.control_path, "stop", mode=mode)


@pytest.fixture
def play(
    tiny_spec: Callable[..., RunSpec], new_run: Callable[[RunSpec], Run], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Play]:
    monkeypatch.setattr(stop_watch, "POLL_S", 0.01)
    with Host(new_run(tiny_spec())) as host:
        yield Play(host)


def test_who_computes_never_comes_out(play: Play) -> None:
    play.stop("save")
    watch = play.watch()
    thread = play.rest_beside(watch)
    assert not play.through.wait(0.3)
    assert (play.left, play.num_ends) == ([5], 1)
    # The thread that left keeps the turn to write, so nothing can follow the result.
    assert not play.host.turn.acquire(timeout=0.1)
    assert events(play.host.run)[-1].type == "result"
    play.free(watch, thread)


def test_a_step_may_end_by_itself_before_it_is_lost(play: Play) -> None:
    watch = play.watch()
    watch.patience_s = LIMIT_S
    play.stop("save")
    play.rest_until(lambda: play.host.stop_mode, watch)
    assert play.through.is_set()
    assert (play.left, play.num_ends) == ([], 0)


def test_what_is_discarded_needs_no_patience(play: Play) -> None:
    watch = play.watch()
    watch.patience_s = LIMIT_S
    play.stop("discard")
    play.free(watch, play.rest_beside(watch))


def test_who_holds_the_state_is_waited_for(play: Play) -> None:
    play.stop("save")
    with play.watch():
        wait_for(lambda: play.host.stop_mode)
        time.sleep(0.2)
        assert play.num_ends == 0


@pytest.mark.parametrize("num_failures", [1, stop_watch.NUM_TRIES])
def test_an_end_that_fails_is_tried_again_and_then_left_to_the_main_thread(
    play: Play, num_failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stop_watch, "RETRY_S", 0.01)

    def end() -> dict[str, object]:
        play.num_ends += 1
        if play.num_ends <= num_failures:
            raise MemoryError("no room beside the step")
        return {"status": "stopped", "step": 3}

    play.stop("save")
    watch = play.watch(end)
    if num_failures < stop_watch.NUM_TRIES:
        play.free(watch, play.rest_beside(watch))
        assert play.num_ends == num_failures + 1
    else:
        play.rest_until(lambda: play.num_ends == num_failures, watch)
        assert play.through.is_set()
        assert (play.left, events(play.host.run, "result")) == ([], [])
    assert "could not be ended beside its step" in caplog.text
