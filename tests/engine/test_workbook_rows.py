"""A workbook is read as the CSV file that its program would save of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workbooks import write_workbook
from tunesmith_core.datafmt import file_kind, sniff
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.runs import Run
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.workbook_rows import WorkbookRows
from tunesmith_engine.operations import workbook_head


def rows_of(path: Path) -> list[tuple[int, dict[str, Any]]]:
    def bad(_number: int, error: TunesmithError) -> None:
        raise error

    return list(WorkbookRows(path, file_kind(path), bad).rows())


def test_cells_are_texts_and_rows_have_the_numbers_of_the_sheet(tmp_path: Path) -> None:
    rows = [[], ["Question text", None, "Best answer"], ["1 + 1?", 7.0, 2], [], ["True?", 0.5, True], ["Who?"]]
    path = write_workbook(tmp_path / "a.xlsx", {"Data": rows})
    assert rows_of(path) == [
        (3, {"Question text": "1 + 1?", "column 2": "7", "Best answer": "2"}),
        (5, {"Question text": "True?", "column 2": "0.5", "Best answer": "TRUE"}),
        (6, {"Question text": "Who?", "column 2": "", "Best answer": ""}),
    ]


def test_the_first_sheet_with_rows_is_read_and_the_others_are_told(tmp_path: Path) -> None:
    pair = [["question", "answer"], ["Why?", "So it is."]]
    sheets = {"Notes": [], "Secret": pair, "Data": pair, "More": pair}
    source = Source(SourceSpec(path=str(write_workbook(tmp_path / "a.xlsx", sheets, hidden=["Secret"]))), False)
    ((number, conversation),) = source.conversations()
    assert (number, source.row_format) == (2, "prompt-completion")
    assert getattr(conversation, "completion", "") == "So it is."
    assert list(source.notes) == ["dataset-fields-unused"]
    assert source.notes["dataset-fields-unused"].endswith('which are not read: "More".')
    assert source.place(2) == f"{source.path}, row 2"


@pytest.mark.parametrize(
    ("sheets", "code", "said"),
    [
        ({"A": []}, "dataset-empty", "has no rows"),
        ({"A": [["question", "answer"]]}, "dataset-empty", "has no rows"),
        ({"A": [["a", "a"], ["1", "2"]]}, "dataset-parse-error", 'row 1: the header names the column "a" twice.'),
    ],
)
def test_a_workbook_without_rows_that_can_be_read_is_refused(
    sheets: dict[str, Any], code: str, said: str, tmp_path: Path
) -> None:
    path = write_workbook(tmp_path / "a.xlsx", sheets)
    with pytest.raises(UserError) as refusal:
        rows_of(path)
    assert refusal.value.code == code
    assert said in refusal.value.message
    assert str(path) in refusal.value.message


@pytest.mark.parametrize("name", ["a.xlsx", "a.ods", "a.xls", "a.xlsb"])
def test_a_damaged_workbook_is_named(name: str, tmp_path: Path) -> None:
    whole = write_workbook(tmp_path / "whole.xlsx", {"A": [["text"], ["one"]]}).read_bytes()
    path = tmp_path / name
    path.write_bytes((b"\xd0\xcf\x11\xe0" if name == "a.xls" else b"") + whole[: len(whole) // 2])
    with pytest.raises(UserError, match="the workbook can't be read") as refusal:
        rows_of(path)
    assert refusal.value.code == "dataset-parse-error"


def test_the_window_gets_the_first_rows_and_their_number(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    rows = [["Task", "Result"], *([f"Add {n}.", n] for n in range(30))]
    path = write_workbook(tmp_path / "a.xlsx", {"A": rows})
    folder = tmp_path / "operation"
    folder.mkdir()
    with Host(Run(folder)) as host:
        found = workbook_head(host, HeadSpec(AbsolutePath(str(path)), 20))
    assert found["num_rows"] == 30
    assert len(found["rows"]) == 20
    assert found["rows"][0] == {"Task": "Add 0.", "Result": "0"}


def test_a_workbook_is_recognized_by_its_content(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["text"], ["one"]]})
    found = sniff(path)
    assert (found.kind, found.num_rows_estimate, found.num_bytes) == ("xlsx", None, path.stat().st_size)
    text = tmp_path / "text.xlsx"
    text.write_text("question,answer\n")
    with pytest.raises(UserError, match=r'file type "\.xlsx" is not supported'):
        file_kind(text)
