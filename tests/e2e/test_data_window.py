"""From a table of questions and answers to a finished run through the real window, in three clicks and no red word."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.documents import write_pdf
from tests.e2e.test_real_window import screen as screen
from tests.workbooks import write_workbook

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


QUESTION, ANSWER = "Où pousse la plante {}?", "Près du café, au n° {}."
TABLES = {
    "table.csv": ("Question text", "Best answer", "utf-8"),
    "pairs.csv": ("question", "answer", "utf-8"),
    "windows.csv": ("question", "answer", "windows-1252"),
    "table.xlsx": ("Question text", "Best answer", ""),
}
"""By name of a file: its columns and its encoding."""


def write_table(path: Path) -> Path:
    """Write a table of questions and answers."""
    *header, encoding = TABLES[path.name]
    rows = [header, *([QUESTION.format(number), ANSWER.format(number)] for number in range(24))]
    if path.suffix == ".xlsx":
        return write_workbook(path, {"Plants": rows})
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def check(seen: dict[str, Any], name: str) -> None:
    """Say what was seen, and check what is true of each file."""
    sys.stderr.write(f"\n{name}: {seen['clicks']} clicks, seconds {seen['seconds']}, errors {seen['errors']}\n")
    assert seen["errors"] == []
    assert seen["clicks"] <= MOST_CLICKS
    assert seen["state"] == "finished"
    assert seen["steps"] > 0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "table.xlsx" else pytest.mark.long) for name in TABLES]
)
def test_a_table_of_questions_trains_as_a_chat(
    name: str, screen: str, training_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, training_home / "models" / "tiny-chat")
    seen = drive(screen, write_table(tmp_path / name), tmp_path)
    check(seen, name)
    assert seen["pairs"] == "chat"
    assert "trained as a chat" in seen["facts"]

    question = QUESTION.format(7)
    ready, done = asked(seen["run"], question)
    template = AutoTokenizer.from_pretrained(tiny_model).apply_chat_template
    rendered = template([{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False)
    assert ready["has_template"]
    assert done["prompt_tokens"] == len(rendered)


def test_the_pages_of_a_pdf_train_as_text(screen: str, training_home: Path, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_model, training_home / "models" / "tiny-chat")
    pages = [f"Chapter {number}.\nThe plant of this page needs {number} drops a day." for number in range(24)]
    check(drive(screen, write_pdf(tmp_path / "book.pdf", pages), tmp_path), "book.pdf")


def asked(run: str, question: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask what a run has trained; return what was said at the start and at the end of the answer."""
    command = [sys.executable, "-m", "tunesmith_core", "chat", run, "--max-tokens", "4", "--device", "cpu", "--json"]
    done = subprocess.run(
        command, input=question + "\n", capture_output=True, encoding="utf-8", check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    events = {event["type"]: event for event in map(json.loads, done.stdout.splitlines())}
    return events["ready"], events["done"]
