"""Files that would become gigabytes or take minutes: read within bounds of memory and processor time, or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.foreign_data.bombs import BOMBS, plant
from tests.engine.foreign_data.case import Case
from tests.engine.foreign_data.test_data_sweep import fault, outcomes

MOST_MIB = 1024
"""Of a process that reads a file, libraries included."""
MOST_HEAD_MIB, MOST_HEAD_SECONDS = 300, 2
"""Of a look at the head, which the window takes in its own process. A shared processor may take three times as long;
a bomb that goes off takes minutes."""

SAMPLE = ("deep.jsonl", "deep-closed.json", "deep-arguments.jsonl", "digits.jsonl", "commas.csv", "list.parquet")


def faults(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Read bombs in one fresh process and say which of them took too much."""
    found: dict[str, str] = {}
    cases = [Case(name, folder / name) for name in names]
    for case in cases:
        plant(case.path)
    for name, case, told in zip(names, cases, outcomes(folder, cases), strict=True):
        if problem := fault(case, told):
            found[name] = problem
        case.path.unlink()
        for way, outcome in told.items():
            peak, grown = outcome.get("peak_mib", 0), outcome.get("grown_mib", 0)
            seconds = outcome.get("seconds", 0)
            if peak > MOST_MIB:
                found[f"{name}, {way}"] = f"{peak} MiB"
            if "head" in way and (grown > MOST_HEAD_MIB or seconds > 3 * MOST_HEAD_SECONDS):
                found[f"{name}, {way}"] = f"{grown} MiB, {seconds:.1f} s"
    return found


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    assert faults(tmp_path, SAMPLE) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_goes_off(tmp_path: Path, name: str) -> None:
    assert faults(tmp_path, (name,)) == {}
