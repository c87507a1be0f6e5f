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
"""Of a look at the head, which the window takes in its own process; half as long again for a processor that is shared."""

SAMPLE = ("deep.jsonl", "deep-closed.json", "deep-arguments.jsonl", "digits.jsonl", "wide.csv", "commas.csv", "list.parquet", "texts.parquet")  # fmt: skip


def faults(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        path = folder / name
        plant(path)
        case = Case(name, path)
        (told,) = outcomes(folder, [case])
        if problem := fault(case, told):
            found[name] = problem
        path.unlink()
        for way, outcome in told.items():
            peak, grown = outcome.get("peak_mib", 0), outcome.get("grown_mib", 0)
            seconds = outcome.get("seconds", 0)
            if peak > MOST_MIB:
                found[f"{name}, {way}"] = f"{peak} MiB"
            if "head" in way and (grown > MOST_HEAD_MIB or seconds > 1.5 * MOST_HEAD_SECONDS):
                found[f"{name}, {way}"] = f"{grown} MiB, {seconds:.1f} s"
    return found


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    assert faults(tmp_path, SAMPLE) == {}


@pytest.mark.long
def test_no_bomb_goes_off(tmp_path: Path) -> None:
    assert faults(tmp_path, BOMBS) == {}
