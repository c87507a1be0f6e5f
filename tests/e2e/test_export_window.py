"""From a finished run to a verified GGUF file through the real window on a screen, in two clicks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_ask import trained
from tests.e2e.test_real_window import screen as screen
from tests.engine import causal_types
from tests.engine.tokenizers_made import write_tokenizer

DRIVER = Path(__file__).with_name("drive_export.py")
MOST_CLICKS = 2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model that llama.cpp has."""
    write_tokenizer("qwen-2", tmp_path / "tokenizer")
    return causal_types.write_model("llama", tmp_path / "model", tmp_path / "tokenizer", vocab_size=480)


def test_two_clicks_lead_to_a_verified_file(screen: str, training_home: Path, model: Path, tmp_path: Path) -> None:
    assert training_home.is_dir()
    run = trained(model, tmp_path)
    shots = Path(os.environ.get("TUNESMITH_SCREENSHOTS") or tmp_path / "shots")
    shots.mkdir(parents=True, exist_ok=True)
    report = tmp_path / "seen.json"
    environment = os.environ | {"DISPLAY": screen, "QT_QPA_PLATFORM": "xcb", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), run.id, str(shots), str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=420)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(report.read_text(encoding="utf-8"))
    title, figures = seen["title"].split("\n", 1)
    assert title in ("Verified equal", "Verified: only rounding differs")
    assert figures.startswith("Same next token at ")
    assert seen["clicks"] == MOST_CLICKS
    (file,) = run.path.glob("exports/*/*.gguf")
    assert file.read_bytes().startswith(b"GGUF")
