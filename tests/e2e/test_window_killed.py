"""`kill -9` of the window at random moments: the run finishes, its journal is whole, each new window re-attaches."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_model import write_chats
from tunesmith_core import environments, launch, paths
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec

LIMIT_S = 60.0
NUM_STEPS = 1500


def start_run(model: Path, data: Path) -> Run:
    """Start a run that lasts for several windows."""
    spec = RunSpec.from_dict(
        {
            "version": 1,
            "name": "long",
            "model": {"path": str(model)},
            "data": {"path": str(write_chats(data, 64)), "context_length": 128},
            "schedule": {"max_steps": NUM_STEPS, "micro_batch_size": 4, "gradient_accumulation_steps": 1},
            "evaluation": {"percent": 0},
            "hardware": {"device": "cpu", "cpu_threads": 1},
        }
    )
    return launch.start(spec)


def open_window() -> subprocess.Popen[bytes]:
    """Start the real window in a process of its own."""
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    command = environments.own_command("tunesmith_gui")
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
        time.sleep(0.02)


def attachments() -> list[tuple[str, int]]:
    """Run id and step of each re-attachment that a window has logged."""
    log = paths.logs_dir() / "window.log"
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [(name, int(step)) for name, step in re.findall(r"attached to run (\S+) at step (\d+)", text)]


def kill_windows(model: Path, tmp_path: Path, num_kills: int, seed: int) -> list[Run]:
    """Kill windows until enough died while a run was going; return the runs."""
    chance = random.Random(seed)
    runs = [start_run(model, tmp_path / "rows.jsonl")]
    kills = 0
    while kills < num_kills:
        run = runs[-1]
        before = len(attachments())
        window = open_window()
        try:
            if chance.random() < 0.7:
                wait_for(lambda: len(attachments()) > before or not run.is_supervised(), "the window to re-attach")  # noqa: B023
            time.sleep(chance.uniform(0.0, 1.5))
        finally:
            window.send_signal(signal.SIGKILL)
            window.wait()
        if run.is_supervised():
            kills += 1
        else:
            runs.append(start_run(model, tmp_path / "rows.jsonl"))
    return runs


def check(run: Run) -> None:
    """The run finished as if nobody had watched it."""
    status = launch.wait(run)
    assert status.state is RunState.FINISHED, status.error
    events = read_journal(run.journal_path)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.data["step"] for event in events if event.type == "step"] == list(range(1, NUM_STEPS + 1))
    assert (run.adapter_path / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("num_kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_windows_lose_nothing(training_home: Path, tiny_model: Path, tmp_path: Path, num_kills: int) -> None:
    assert training_home.is_dir()
    runs = kill_windows(tiny_model, tmp_path, num_kills, seed=num_kills)
    window = open_window()
    try:
        wait_for(lambda: attachments() or not runs[-1].is_supervised(), "the last window to re-attach")
    finally:
        window.terminate()
        window.wait()
    for run in runs:
        check(run)
    found = attachments()
    assert len(found) >= num_kills // 2
    for run in runs:
        steps = [step for name, step in found if name == run.id]
        assert steps == sorted(steps), "a later window saw an earlier step"
