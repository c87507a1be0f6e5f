"""A new method is one file: in a copy of the program it trains, resumes and reports like the one that came along.

The window and the command line of that copy know it without another line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.drive_window import NUM_STEPS
from tests.tiny_model import write_chats
from tunesmith_core import paths
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.runs import Run, RunState, open_run

DRIVER = Path(__file__).with_name("drive_window.py")
REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 120.0
MAX_METHOD_LINES = 80

SMOOTHED = '''"""Cross-entropy with a tenth of the target spread over all tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunesmith_engine.data import IGNORED_LABEL
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    import torch
    from peft import PeftModel

    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss import Batch

SMOOTHING = 0.1


class Smoothed(Method):
    """Keeps the model from becoming too sure."""

    def summed_loss(self, model: PeftModel, batch: Batch, some_positions: bool) -> torch.Tensor:
        """Return the sum of the trained tokens' smoothed cross-entropies in nats."""
        from torch.nn.functional import cross_entropy

        from tunesmith_engine.train.loss import logits_of

        return cross_entropy(
            logits_of(model, batch, some_positions).flatten(0, 1),
            batch.targets.flatten(),
            ignore_index=IGNORED_LABEL,
            reduction="sum",
            label_smoothing=SMOOTHING,
        )

    def report(self, parts: Parts) -> dict[str, Any]:  # Any: JSON values
        """Add how much is spread."""
        return super().report(parts) | {"smoothing": SMOOTHING}


METHOD = Smoothed()
'''
"""The whole of the method."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of the program with one file more."""
    folder = tmp_path / "program"
    for top in ("engine", "gui", "assets"):
        shutil.copytree(REPOSITORY / top, folder / top, ignore=shutil.ignore_patterns("__pycache__"))
    assert SMOOTHED.count("\n") <= MAX_METHOD_LINES
    (folder / "engine" / "tunesmith_engine" / "methods" / "smoothed.py").write_text(SMOOTHED)
    return folder


def tunesmith(program: Path, *arguments: str) -> str:
    """Run a command of the copy and return what it printed."""
    start = program / "engine" / "tunesmith_core" / "start.py"
    command = [sys.executable, "-I", "-X", "utf8", str(start), "tunesmith_core", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def events(run: Run, kind: str) -> list[Event]:
    """Return the events of a type."""
    return [event for event in read_journal(run.journal_path) if event.type == kind]


def check(run: Run, num_steps: int) -> None:
    """The run was stopped, resumed and finished with the new objective, and says so."""
    assert run.status().state is RunState.FINISHED, run.status().error
    assert [event.data["status"] for event in events(run, "result")] == ["stopped", "finished"]
    stopped_at = events(run, "result")[0].data["step"]
    assert 0 < stopped_at < num_steps
    assert events(run, "hello")[-1].data["resumed_from_step"] == stopped_at
    assert [event.data["step"] for event in events(run, "step")] == list(range(1, num_steps + 1))
    assert {event.data["smoothing"] for event in events(run, "setup")} == {0.1}
    assert events(run, "eval")[-1].data["loss"] < events(run, "eval")[0].data["loss"]
    assert "| Objective | smoothed |" in (run.adapter_path / "README.md").read_text(encoding="utf-8")


def test_through_the_command_line(program: Path, training_home: Path, tiny_model: Path, tmp_path: Path) -> None:
    assert training_home.is_dir()
    num_steps = 600
    spec = {
        "version": 2,
        "name": "toy",
        "model": {"path": str(tiny_model)},
        "data": {"sources": [{"path": str(write_chats(tmp_path / "rows.jsonl", 32))}], "context_length": 128},
        "objective": {"kind": "smoothed"},
        "schedule": {"max_steps": num_steps, "micro_batch_size": 2, "gradient_accumulation_steps": 1},
        "hardware": {"devices": ["cpu"], "cpu_threads": 1},
    }
    (tmp_path / "toy.json").write_text(json.dumps(spec))
    tunesmith(program, "train", str(tmp_path / "toy.json"), "--detach")
    (run,) = (Run(path.parent) for path in paths.runs_dir().glob("*/spec.json"))
    deadline = time.monotonic() + LIMIT_S
    while not events(run, "step"):
        assert time.monotonic() < deadline, run.status().error
        time.sleep(0.1)
    tunesmith(program, "stop", run.id)
    while run.is_supervised():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    tunesmith(program, "resume", run.id)
    check(run, num_steps)
    assert json.loads(tunesmith(program, "show", run.id, "--json"))["state"] == "finished"


@pytest.mark.long
def test_through_the_window(program: Path, training_home: Path, tiny_model: Path, tmp_path: Path) -> None:
    assert training_home.is_dir()
    shots, report = tmp_path / "shots", tmp_path / "seen.json"
    shots.mkdir()
    roots = [str(program / top) for top in ("engine", "gui", "assets")]
    environment = os.environ | {
        "QT_QPA_PLATFORM": "offscreen",
        "PYTHONPATH": os.pathsep.join([*roots, str(REPOSITORY), *sys.path]),
    }
    data = write_chats(tmp_path / "chats.jsonl", 64)
    command = [sys.executable, str(DRIVER), str(tiny_model), str(data), str(shots), str(report), "smoothed"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=420)
    assert done.returncode == 0, done.stderr[-3000:]
    check(open_run(json.loads(report.read_text(encoding="utf-8"))["run"]), NUM_STEPS)
