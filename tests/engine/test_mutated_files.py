"""Files of every kind with a planted fault: none crashes or hangs the reader, and each fault is told with its place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.engine import mutated_files

REPOSITORY = Path(__file__).parents[2]
SEED = 20261125


def judged(num_files: int, folder: Path) -> dict[int, tuple[str, str]]:
    """Return how reading each file ended and what was done to it; a file that ends the process crashes."""
    found: dict[int, tuple[str, str]] = {}
    first = 0
    while first < num_files:
        arguments = [str(SEED), str(first), str(num_files), str(folder)]
        command = [sys.executable, "-m", mutated_files.__name__, *arguments]
        output = folder / "outcomes.jsonl"
        with output.open("wb") as file:
            subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, cwd=REPOSITORY, check=False)
        for line in output.read_text(encoding="utf-8").splitlines():
            number, outcome, *name = json.loads(line)
            found[number] = (outcome or "crashes: the process ended", str(name[:1]))
            first = number + 1
    return found


def check(num_files: int, folder: Path) -> None:
    found = judged(num_files, folder)
    wrong = {number: ended for number, ended in found.items() if ended[0] != "right"}
    counts = Counter(ended.partition(":")[0] for ended, _ in found.values())
    sys.stderr.write(f"\n{num_files} files: {dict(counts)}\n")
    assert len(found) == num_files
    assert not wrong, dict(list(wrong.items())[:10])


def test_every_planted_fault_is_told_with_its_place(tmp_path: Path) -> None:
    check(200, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_planted_fault_is_told_with_its_place_10000_times(tmp_path: Path) -> None:
    check(10_000, tmp_path)


def test_a_fault_at_another_place_is_found_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n  {"text": nope}\n')
    right = mutated_files.Case("value", path, f"{path}, line 2, column 12")
    assert mutated_files.judge(right) == "right"
    for place in ("line 2, column 1", "line 1", "line 2", "line 21"):
        assert mutated_files.judge(mutated_files.Case("value", path, f"{path}, {place}")).startswith("wrong place")
    path.write_text('{"text": "a"}\n')
    assert mutated_files.judge(right).startswith("wrong place")
