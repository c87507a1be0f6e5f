"""From a table of questions and answers to a finished run through the real window, in three clicks and no red word."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_real_window import screen as screen

DRIVER = Path(__file__).with_name("drive_data.py")
MOST_CLICKS = 3


def drive(screen: str, data: Path, tmp_path: Path) -> dict[str, Any]:
    """Run the driver and return what it saw."""
    shots = Path(os.environ.get("TUNESMITH_SCREENSHOTS") or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    report = tmp_path / "seen.json"
    environment = os.environ | {"DISPLAY": screen, "QT_QPA_PLATFORM": "xcb", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), str(data), str(shots), str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=420)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return seen


@pytest.mark.parametrize("header", ["Question text,Best answer", "question,answer"])
def test_a_table_of_questions_trains_as_a_chat(
    header: str, screen: str, training_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, training_home / "models" / "tiny-chat")
    data = tmp_path / "table.csv"
    lines = [f"What does plant {number} need?,It needs {number} drops." for number in range(24)]
    data.write_text("\n".join([header, *lines]) + "\n")
    seen = drive(screen, data, tmp_path)

    assert seen["errors"] == []
    assert seen["clicks"] <= MOST_CLICKS
    assert seen["state"] == "finished"
    assert seen["steps"] > 0
    assert seen["pairs"] == "chat"
    assert "trained as a chat" in seen["facts"]
