"""Engines that stall, how they are stopped, and whether anything that was trained is lost."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import events, result_of, step_losses, train
from tests.engine.stalling_engine import IMPORT, PLACES, WAYS
from tunesmith_core import environments
from tunesmith_core.forced_stop import Limits
from tunesmith_core.process_identity import identify
from tunesmith_core.protocol import STOP_MODES, pending_commands, post_command
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.supervisor import Supervisor

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]

PROMISED_S = 10.0
START_S = 600.0
"""A busy computer takes long to import PyTorch, which is no part of what is promised."""

SHORT = Limits(stop_s=0.5, terminate_s=0.3, save_s=0.5)
"""For an engine that no thread of its own can end: how long the supervisor waits in vain is not tested here."""

BEFORE_STEPS = (IMPORT, "device", "tokenizer", "data", "weights", "proof", "trial")
LATER = tuple(place for place in PLACES if place not in BEFORE_STEPS)
UNREACHABLE = ("update", "checkpoint", "export")
"""Places where the main thread holds what would be saved."""

SPEC: dict[str, Any] = {
    "method": {"dropout": 0.3},
    "schedule": {"max_steps": 6},
    "evaluation": {"percent": 20.0, "every_steps": 3, "sample_prompts": ["Hi"], "sample_max_tokens": 3},
    "saving": {"every_steps": 2},
}


@dataclass(frozen=True)
class Stall:
    """Where, at which call of that place, how, and which stop is asked for."""

    place: str
    call: int
    way: str
    mode: str

    @property
    def by_force(self) -> bool:
        """Whether only the supervisor can end it."""
        return self.way == "blocks" or self.place in UNREACHABLE

    def __str__(self) -> str:
        return f"{self.place}-{self.call}-{self.way}-{self.mode}"


CALLS = {"gradients": 7, "update": 4, "evaluation": 2, "sample": 2, "checkpoint": 2}
"""Calls in the middle of a run, for places that every step or several of them come to."""

ALL = [
    Stall(place, CALLS.get(place, 1), way, mode)
    for place, way, mode in itertools.product([IMPORT, *PLACES], WAYS, STOP_MODES)
] + [Stall(place, 1, "computes", mode) for place, mode in itertools.product(CALLS, STOP_MODES)]


def adapter(run: Run) -> bytes:
    return (run.adapter_path / "adapter_model.safetensors").read_bytes()


def stopped(run: Run, stall: Stall, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let a run stall and stop it there; return how many seconds the stop took."""
    asked_s: list[float] = []
    engine_pids: list[int] = []

    def ask() -> None:
        deadline = time.monotonic() + START_S
        while not (run.path / "stalled").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        engine = run.leased("engine")
        engine_pids.extend([engine.pid] if engine else [])
        asked_s.append(time.monotonic())
        post_command(run.control_path, "stop", mode=stall.mode)

    script = str(Path(__file__).with_name("stalling_engine.py"))
    command = [sys.executable, "-X", "utf8", script, stall.place, str(stall.call), stall.way]
    with monkeypatch.context() as patched:
        patched.setattr(environments, "engine_command", lambda *arguments: [*command, *arguments])
        thread = threading.Thread(target=ask)
        thread.start()
        Supervisor(run, SHORT if stall.by_force else Limits()).supervise()
        seconds = time.monotonic() - (asked_s[0] if asked_s else time.monotonic() - START_S)
        thread.join()
    assert (run.path / "stalled").exists(), "the place was not met"
    assert [pid for pid in engine_pids if identify(pid)] == []
    return seconds


def judged(run: Run, whole: Run, stall: Stall, seconds: float) -> str:
    """Return "kept", "nothing to keep", "lost and told" or what is wrong with a stopped run."""
    status, reported = run.status(), [event.data["step"] for event in events(run, "step")]
    saved = [event.data["step"] for event in events(run, "checkpoint")]
    last_step, last_saved = max(reported, default=0), max(saved, default=0)
    told = (status.error or {}).get("code")
    lost = stall.mode == "save" and last_saved < last_step
    if seconds > PROMISED_S:
        return f"took {seconds:.1f} s"
    if (status.state, told) != (("failed", "engine-hung") if lost else ("stopped", None)):
        return f"{status.state} {told}"
    if lost and not (stall.by_force and f"Steps after {last_saved} were not saved" in str(status.error)):
        return f"lost steps: {status.error}"
    left = [] if stall.by_force else list(run.checkpoints_path.glob(".*"))  # what a killed one leaves, the next removes
    if status.step != last_step or left:
        return f"at step {status.step} of {last_step}, left {left}"
    if last_step and not saved:
        return "nothing to keep"
    (run.path / "stalled").unlink()
    for stale in pending_commands(run.control_path):  # as `launch.resume` does
        stale.unlink()
    assert train(run) == 0
    if events(run, "hello")[-1].data["resumed_from_step"] != (last_saved or None):
        return "resumed elsewhere"
    if adapter(run) != adapter(whole) or step_losses(run)[len(reported) :] != step_losses(whole)[last_saved:]:
        return "resumed to another end"
    if result_of(run)["eval_loss_before"] != result_of(whole)["eval_loss_before"]:
        return "another loss of the base model"
    return "lost and told" if lost else "kept"


def whole_run(tiny_spec: MakeSpec, new_run: NewRun) -> Run:
    """Return the run that nobody stopped."""
    run = new_run(tiny_spec(**SPEC))
    assert train(run) == 0
    return run


def outcome(stall: Stall, whole: Run, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let a run stall, stop it, and judge it; see `judged`."""
    run = new_run(whole.load_spec())
    return judged(run, whole, stall, stopped(run, stall, monkeypatch))


def stop_all(
    place: str,
    whole: Run,
    new_run: NewRun,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Stop every stall at a place, and fail where one lost something."""
    outcomes = {stall: outcome(stall, whole, new_run, monkeypatch) for stall in ALL if stall.place == place}
    counts = Counter(outcomes.values())
    with capfd.disabled():
        sys.stdout.write(f"\n{len(outcomes)} stalls stopped: {place}, {dict(counts)}{os.linesep}")
    good = ("kept", "nothing to keep", "lost and told")
    bad = {str(stall): text for stall, text in outcomes.items() if text not in good}
    assert not bad
    assert all(stall.by_force for stall, text in outcomes.items() if text == "lost and told")
