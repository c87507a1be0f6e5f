"""From a finished run to the first answer of its model through the real window on a screen, in two clicks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_real_window import screen as screen
from tunesmith_assets import samples
from tunesmith_core import conversations
from tunesmith_core.runs import open_run
from tunesmith_core.spec import RunSpec

DRIVER = Path(__file__).with_name("drive_chat.py")
MOST_CLICKS = 2
LIMIT_S = 3000


def chat(way: str, run: str, screen: str, tmp_path: Path) -> dict[str, Any]:
    """Drive a chat and return what was seen; the times go where TUNESMITH_REPORT says."""
    shots = Path(os.environ.get("TUNESMITH_SCREENSHOTS") or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    report = tmp_path / f"{way}.json"
    environment = os.environ | {"DISPLAY": screen, "QT_QPA_PLATFORM": "xcb", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), way, run, str(shots), str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    if told := os.environ.get("TUNESMITH_REPORT"):
        with Path(told).open("a", encoding="utf-8") as file:
            file.write(f"{way}: {seen}\n")
    return seen


@pytest.mark.parametrize("name", ["tiny_model", pytest.param("example_model", marks=pytest.mark.long)])
def test_two_clicks_lead_to_the_first_answer(
    name: str, request: pytest.FixtureRequest, screen: str, training_home: Path, tmp_path: Path
) -> None:
    assert training_home.is_dir()
    spec = RunSpec.from_dict(samples.example_spec("en", str(request.getfixturevalue(name))))
    spec.schedule.max_steps, spec.evaluation.every_steps = 2, 60
    spec.hardware.devices = ["cpu"]
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
    watched = chat("watch", str(path), screen, tmp_path)
    assert watched["clicks"] == MOST_CLICKS
    run = open_run(watched["run"])
    for talk in conversations.load(run):
        conversations.delete(run, talk)
    again = chat("come-back", run.id, screen, tmp_path)
    assert again["clicks"] == MOST_CLICKS
    assert again["answer"] == watched["answer"]
    assert again["tokens"] > 0
