"""The main job through the real window on a screen: choose, start, watch, stop and save, resume, finish.

Then the spec that the window froze is trained again from the command line: the same losses come out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny_model import write_chats
from tunesmith_core import environments
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run, open_run

DRIVER = Path(__file__).with_name("drive_window.py")
NUM_STEPS = 400


@pytest.fixture
def screen() -> Iterator[str]:
    """A virtual screen of its own, 1280x800."""
    read_end, write_end = os.pipe()
    command = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "1280x800x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as numbers:
            yield f":{numbers.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


def losses(run: Run) -> dict[int, float]:
    """Loss by step; what was trained twice counts as it came out last."""
    return {event.data["step"]: event.data["loss"] for event in read_journal(run.journal_path) if event.type == "step"}


def drive(screen: str, model: Path, tmp_path: Path) -> dict[str, object]:
    """Run the driver and return what it saw; its screenshots stay where TUNESMITH_SCREENSHOTS says."""
    shots = Path(os.environ.get("TUNESMITH_SCREENSHOTS") or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    data, report = write_chats(tmp_path / "chats.jsonl", 64), tmp_path / "seen.json"
    environment = os.environ | {"DISPLAY": screen, "QT_QPA_PLATFORM": "xcb", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), str(model), str(data), str(shots), str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=420)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, object] = json.loads(report.read_text(encoding="utf-8"))
    return seen


def test_main_job_through_the_window(screen: str, training_home: Path, tiny_model: Path, tmp_path: Path) -> None:
    seen = drive(screen, tiny_model, tmp_path)

    assert seen["adapter.rank"], "a rank of 0 was refused without a reason"
    assert seen["optimizer.learning_rate"], "a learning rate of abc was refused without a reason"
    assert seen["picture_moved"]
    assert isinstance(seen["stopped_at"], int)
    assert 0 < seen["stopped_at"] < NUM_STEPS
    assert seen["finished_at"] == NUM_STEPS

    by_window = open_run(str(seen["run"]))
    assert (by_window.adapter_path / "adapter_model.safetensors").is_file()
    command = environments.own_command("tunesmith_core", "train", str(by_window.path / "spec.json"), "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (by_command,) = [Run(path) for path in (training_home / "runs").iterdir() if path != by_window.path]
    assert losses(by_command) == losses(by_window)
    assert len(losses(by_command)) == NUM_STEPS
