"""Data files that went wrong: each gives its rows or a verdict with its place, and nothing is cut in silence."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.foreign_data import judge
from tests.engine.foreign_data.case import Case
from tests.engine.foreign_data.corpus import cases
from tunesmith_core.datafmt import file_kind
from tunesmith_core.datafmt.documents import PLAIN

MOST_SECONDS = 10
MOST_COUNTED_BYTES = 1024**2

Outcome = dict[str, Any]


def outcomes(folder: Path, corpus: list[Case]) -> list[dict[str, Outcome]]:
    """Read each file in each way, in processes that are replaced when one dies."""
    paths, told = folder / "paths.json", folder / "outcomes.jsonl"
    paths.write_text(json.dumps([str(case.path) for case in corpus]), encoding="utf-8")
    told.touch()
    found: list[dict[str, Outcome]] = [{} for _ in corpus]
    first = 0
    while first < len(corpus):
        code = subprocess.run([sys.executable, judge.__file__, paths, told, str(first)], check=False).returncode
        for line in told.read_text(encoding="utf-8").splitlines():
            number, way, outcome = json.loads(line)
            found[number][way] = outcome or {"code": "bug", "message": f"ended with {code}", "hint": "", "exit": 1}
        first = number + 1
        told.write_text("")
    return found


def fault(case: Case, told: dict[str, Outcome]) -> str:
    """Say what is wrong with how reading a file ended, or nothing."""
    for way, outcome in told.items():
        if found := _fault_of(case, way, outcome):
            return f"{way}: {found}"
    return ""


def _fault_of(case: Case, way: str, outcome: Outcome) -> str:
    if outcome.get("seconds", 0) > MOST_SECONDS:
        return f"took {outcome['seconds']:.0f} s"
    if "code" in outcome:
        return _fault_of_error(case, way, outcome)
    if "good" not in outcome or "head" in way:
        return ""
    if case.is_error:
        return "was read"
    numbers = outcome["good"] + outcome["skipped"]
    is_document = file_kind(case.path) == PLAIN
    if is_document and outcome["good"] != sorted(outcome["good"]):
        return f"pieces are out of order: {outcome['good']}"
    # Pieces of a long line of a document begin in the same line.
    is_twice = not is_document and len(set(numbers)) < len(numbers)
    if is_twice or outcome["counted"] != len(outcome["skipped"]):
        return f"rows counted wrongly: {outcome['counted']} skipped, {len(outcome['skipped'])} told"
    skipped = tuple(sorted(outcome["skipped"]))
    if case.bad and (way == "rows" or skipped != case.bad or len(outcome["good"]) != case.num_good):
        return f"bad are {case.bad}, skipped {outcome['skipped']}, read {len(outcome['good'])} of {case.num_good}"
    if case.num_good and len(outcome["good"]) != case.num_good:
        return f"{len(outcome['good'])} rows of {case.num_good}"
    if case.line and len(outcome["good"]) != case.whole:
        return f"cut in silence at line {case.line}: {len(outcome['good'])} rows"
    return "" if is_document else _cut(case, len(numbers))


def _fault_of_error(case: Case, way: str, outcome: Outcome) -> str:
    said = f"{outcome['code']}: {outcome['message']}"
    if outcome["code"] == "path-too-long":
        # It is told shortened, and is no fault of the data.
        return "" if outcome["exit"] == 3 and str(case.path)[:40] in said else said[-400:]
    if outcome["code"] == "bug" or outcome["exit"] != 2 or not outcome["hint"] or str(case.path) not in said:
        return said[-400:]
    planted = case.bad[0] if case.bad else case.line
    if case.num_good and case.bad and way == "rows, skipping":
        return f"nothing was left: {said:.300}"
    if planted and "head" not in way and not re.search(rf"(line|row) {planted}\b", said):
        return f"{planted} is not named: {said:.300}"
    return ""


def _cut(case: Case, num_rows: int) -> str:
    """Count the rows of a text by other means."""
    try:
        if case.path.stat().st_size > MOST_COUNTED_BYTES:
            return ""
        text = case.path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError:
        return ""
    # UTF-16, with a mark or without one, is not what the lines below count.
    if text.startswith("PAR1") or text[:2] in ("\udcff\udcfe", "\udcfe\udcff") or "\0" in text:
        return ""
    if text.lstrip()[:1] == "{" and case.path.suffix not in (".csv", ".tsv"):
        lines = [line for line in re.split("\r\n|\r|\n", text) if line.strip()]
        if case.path.suffix != ".json" or len(lines) == num_rows:
            return "" if len(lines) == num_rows else f"{num_rows} rows in {len(lines)} lines"
    if text.lstrip()[:1] in "[{" and case.path.suffix not in (".csv", ".tsv"):
        expected = sum(_num_items(text))
    else:
        delimiter = "\t" if case.path.suffix == ".tsv" else ","
        csv.field_size_limit(2**30)
        rows = csv.reader(re.split("(?<=\n)|(?<=\r)(?!\n)", text), delimiter=delimiter)
        expected = sum(any(row) for row in rows) - 1
    return "" if num_rows == expected else f"{num_rows} rows of {expected}"


def _num_items(text: str) -> Iterator[int]:
    place = 0
    while text[place:].strip():
        place = len(text) - len(text[place:].lstrip())
        try:
            value, place = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            yield 10**6
            return
        lists = [value] if isinstance(value, list) else [each for each in value.values() if isinstance(each, list)]
        yield len(next((each for each in lists if each and isinstance(each[0], dict)), ()))


def sweep(folder: Path, count: int) -> dict[str, str]:
    corpus = list(cases(folder, count))
    told = outcomes(folder, corpus)
    return {
        f"{number}: {case.name}"[:200]: found
        for number, (case, each) in enumerate(zip(corpus, told, strict=True))
        if (found := fault(case, each))
    }


def test_a_foreign_data_file_gives_rows_or_a_verdict(tmp_path: Path) -> None:
    assert sweep(tmp_path, 100) == {}


@pytest.mark.long
def test_a_thousand_foreign_data_files(tmp_path: Path) -> None:
    assert sweep(tmp_path, 1000) == {}
