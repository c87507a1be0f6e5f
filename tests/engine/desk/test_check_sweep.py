"""A check of files that went wrong names every bad row and no other, and never fails itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.desk.checking import check, spec_of
from tests.engine.foreign_data.case import Case
from tests.engine.foreign_data.corpus import cases
from tunesmith_engine.desk.problems import MOST_SHOWN

COUNT, COUNT_LONG = 40, 2000


def fault(case: Case, folder: Path) -> str:
    """Say what is wrong with what a check said of a file, or nothing."""
    answer = check(folder, spec_of(case.path))
    json.dumps(answer, allow_nan=False)
    errors = [problem for problem in answer["problems"] if problem["severity"] == "error"]
    if any(problem["count"] > MOST_SHOWN for problem in errors):
        return ""
    lines = {row["line"] for problem in errors for row in problem["rows"]}
    if case.is_error and not errors:
        return "no error"
    if case.line is not None and case.whole is None and case.line not in lines and 0 not in lines:
        return f"line {case.line} is not named: {lines}"
    if case.num_good is None:
        return ""
    if lines - {0} != set(case.bad):
        return f"named {sorted(lines)}, bad are {case.bad}"
    num_good = answer["num_good_rows"]
    return "" if num_good == case.num_good else f"{num_good} good rows, {case.num_good} expected"


@pytest.mark.parametrize("count", [COUNT, pytest.param(COUNT_LONG, marks=pytest.mark.long)])
def test_bad_rows_of_files_that_went_wrong_are_named(tmp_path: Path, count: int) -> None:
    faults = []
    for number, case in enumerate(cases(tmp_path, count, seed=14)):
        if found := fault(case, tmp_path / f"check-{number}"):
            faults.append((case.name, str(case.path), found))
    assert faults == []
