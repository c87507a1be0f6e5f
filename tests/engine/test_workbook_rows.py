"""A workbook is read as the CSV file that its program would save of it."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.workbooks import Shown, write_open_document, write_workbook
from tunesmith_core.datafmt import file_kind, sniff
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.runs import Run
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import head as data_head
from tunesmith_engine.data import percent_cells
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


def test_numbers_are_read_as_somebody_typed_them(tmp_path: Path) -> None:
    # 15 % and sums are kept as binary fractions, which have more digits than a spreadsheet shows.
    typed = [0.15000000000000002, 0.1 + 0.2, 2.9999999999999996, -1.005, 1234567.891, 12345678901234567, 1e-7]
    path = write_workbook(tmp_path / "a.xlsx", {"Data": [["name", "number"], *[["a", each] for each in typed]]})
    read = [row["number"] for _, row in rows_of(path)]
    assert read == ["0.15", "0.3", "3", "-1.005", "1234567.891", "12345678901234568", "1e-07"]


def test_percentages_are_read_as_they_are_shown_and_other_formats_as_numbers(tmp_path: Path) -> None:
    shown = [Shown(0.05, 9), Shown(0.125, 10), Shown(0.15000000000000002, "0.0%"), Shown(-1, '0.0" of "%')]
    plain = [0.05, Shown(1234.5, '#,##0.00" €"'), Shown(0.25, '0.00" % not"'), Shown(0.5, "0.00\\%"), Shown(0.5, 2)]
    sheets: dict[str, Any] = {
        "Cover": [["a", "b"], [1, 2]],
        "Data": [[], [None, "name", "share"], *[[None, "a", each] for each in [*shown, *plain]], [None, "b", "5%"]],
    }
    path = write_workbook(tmp_path / "a.xlsx", sheets)
    source = Source(SourceSpec(path=str(path), sheet="Data"), False)
    read = [row["share"] for _, row in source.rows()]
    assert read == ["5%", "12.5%", "15%", "-100%", "0.05", "1,234.50 €", "0.25", "0.5", "0.5", "5%"]
    assert "dataset-percentages-unknown" not in source.notes


def test_cells_that_do_not_say_their_place_are_percentages_too(tmp_path: Path) -> None:
    whole = write_workbook(tmp_path / "whole.xlsx", {"A": [["name", "share"], ["a", Shown(0.05, 9)]]})
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(path, "w") as written:
        for name in read.namelist():
            text = read.read(name)
            written.writestr(name, re.sub(rb' r="[A-Z]?\d+"', b"", text) if "sheet1" in name else text)
    assert rows_of(path) == [(2, {"name": "a", "share": "5%"})]


def test_percentages_of_an_open_document_are_read_as_they_are_shown(tmp_path: Path) -> None:
    def cell(kind: str, value: str, more: str = "") -> str:
        kept = "" if kind == "string" else f'office:value="{value}"'
        words = f"<text:p>{value}</text:p>"
        return f'<table:table-cell office:value-type="{kind}" {kept} {more}>{words}</table:table-cell>'

    share, number = cell("percentage", "0.05"), cell("float", "0.05")
    rows = [
        ("", cell("string", "name") + cell("string", "share") + cell("string", "other")),
        ('table:number-rows-repeated="2"', cell("string", "a") + share + number),
        ("", cell("percentage", "1", 'table:number-columns-repeated="2"') + cell("currency", "3.5")),
        ("", cell("currency", "3.5", 'office:currency="EUR"') + cell("float", "3.5")),
    ]
    written = "".join(f"<table:table-row {more}>{cells}</table:table-row>" for more, cells in rows)
    before = f'<table:table table:name="Before"><table:table-row>{share * 3}</table:table-row></table:table>'
    path = write_open_document(tmp_path / "a.ods", f'{before}<table:table table:name="A">{written}</table:table>')
    source = Source(SourceSpec(path=str(path), sheet="A"), False)
    assert [list(row.values()) for _, row in source.rows()] == [
        ["a", "5%", "0.05"], ["a", "5%", "0.05"], ["100%", "100%", "3.5"], ["3.5 EUR", "3.5", ""]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ('"€" #,##0.00', 12.5, "€ 12.50"),
        ('"€" #,##0.00', -1234.5, "-€ 1,234.50"),
        ('[$€-407] #,##0.00;[Red]-[$€-407] #,##0.00', 12.5, "€ 12.50"),
        ('#,##0.00\\ [$kr-41D]', 12.5, "12.50 kr"),
        ("[$EUR] 0", 13, "EUR 13"),
        ('_("$"* #,##0.00_)', 12.5, "$12.50"),
        ("£0.0", 12.5, "£12.5"),
        # No amounts, or more than an amount.
        ('0.00" kg"', 12.5, "12.5"),
        ("[$-409]0.00", 12.5, "12.5"),
        ('#,##0, "€"', 1500.5, "1500.5"),
        ('"€" # ?/?', 12.5, "12.5"),
    ],
)
def test_amounts_are_read_with_their_currency(tmp_path: Path, code: str, value: float, shown: str) -> None:
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["item", "price"], ["tea", Shown(value, code)]]})
    source = Source(SourceSpec(path=str(path)), False)
    assert [row["price"] for _, row in source.rows()] == [shown]


@pytest.mark.parametrize(("value", "is_told"), [(0.05, True), (12.5, True), (5, False)])
def test_that_percentages_can_not_be_told_is_said_where_it_matters(
    value: float, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(percent_cells.SPANS, "xlsx")  # as of the binary kinds, which nothing here can write
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["text", "share"], ["one", 1], ["two", Shown(value, 9)]]})
    source = Source(SourceSpec(path=str(path)), False)
    assert [row["share"] for _, row in source.rows()] == ["1", str(value)]
    said = f"{path}: number formats are not read, so that 5% is read as 0.05 and €12.50 as 12.5."
    assert source.notes.get("dataset-percentages-unknown") == (said if is_told else None)


def test_a_workbook_whose_styles_are_broken_is_read_and_says_so(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["text", "share"], ["one", 0.05]]})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/styles.xml", "<styleSheet><cellXfs></cellXfs></styleSheet>rest")
    source = Source(SourceSpec(path=str(path)), False)
    assert [row["share"] for _, row in source.rows()] == ["0.05"]
    assert "dataset-percentages-unknown" in source.notes


def test_the_first_sheet_with_rows_is_read_and_the_others_are_told(tmp_path: Path) -> None:
    pair = [["question", "answer"], ["Why?", "So it is."]]
    sheets = {"Notes": [], "Secret": pair, "Data": pair, "More": pair}
    source = Source(SourceSpec(path=str(write_workbook(tmp_path / "a.xlsx", sheets, hidden=["Secret"]))), False)
    ((number, conversation),) = source.conversations()
    assert (number, source.row_format) == (2, "prompt-completion")
    assert getattr(conversation, "completion", "") == "So it is."
    assert list(source.notes) == ["dataset-parts-unread"]
    assert source.notes["dataset-parts-unread"].endswith('a.xlsx: the sheet "Data" is read. These are not: "More".')
    assert source.place(2) == f"{source.path}, row 2"


def test_the_sheet_of_a_workbook_in_an_archive_is_told_and_can_be_chosen(tmp_path: Path) -> None:
    sheets = {name: [["text"], [f"Of {name}."]] for name in ("Data", "More")}
    book = write_workbook(tmp_path / "a.xlsx", sheets)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(book, "a.xlsx")
    for chosen, read, other in (("", "Data", "More"), ("More", "More", "Data")):
        source = Source(SourceSpec(path=str(tmp_path / "a.zip"), sheet=chosen), False)
        assert [row for _, row in source.rows()] == [{"text": f"Of {read}."}]
        said = source.notes.get("dataset-parts-unread", "")
        # Whoever named it knows.
        words = f'a.xlsx: the sheet "{read}" is read. These are not: "{other}".'
        assert said.endswith(words) if not chosen else said == ""


def test_a_run_reads_the_sheet_that_the_window_proposes(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    sheets = {"Odd": [["a", "b"], ["1", "2"]], "Pairs": [["question", "answer"], ["Why?", "So it is."]]}
    path = write_workbook(tmp_path / "a.xlsx", sheets)
    source = Source(SourceSpec(path=str(path)), False)
    assert [getattr(row, "completion", "") for _, row in source.conversations()] == ["So it is."]
    assert source.sheet == head(tmp_path / "first", path)["sheet"] == "Pairs"
    # What is said about the columns counts in the choice.
    said = SourceSpec(path=str(path), columns={"prompt": "a", "completion": "b"})
    source = Source(said, False)
    assert [getattr(row, "completion", "") for _, row in source.conversations()] == ["2"]
    assert source.sheet == "Odd"


def test_sheets_that_all_workbooks_of_an_archive_have_can_be_chosen(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    pair = [["question", "answer"], ["Why?", "So."]]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, other in (("a.xlsx", "Mine"), ("b.xlsx", "Yours")):
            sheets = {"Data": pair, other: pair, "More": [*pair, ["And?", "No."]]}
            archive.write(write_workbook(tmp_path / name, sheets), name)
    found = head(tmp_path / "first", tmp_path / "a.zip")
    assert (found["sheet"], found["sheets"], len(found["rows"])) == ("Data", ["Data", "More"], 2)
    assert len(head(tmp_path / "second", tmp_path / "a.zip", "More")["rows"]) == 4


def test_lines_above_the_heading_are_no_rows_and_are_told(tmp_path: Path) -> None:
    rows = [["Questions of 2025"], [], [None, "by Ann"], ["question", "answer"], ["Why?", "So it is."], ["Only one"]]
    source = Source(SourceSpec(path=str(write_workbook(tmp_path / "a.xlsx", {"A": rows}))), False)
    read = list(source.rows())
    assert read[0] == (5, {"question": "Why?", "answer": "So it is."})
    assert len(read) == 2
    said = source.notes["dataset-titles-unread"]
    assert said.endswith('lines above the heading of the sheet are not read: "Questions of 2025", "by Ann".')
    single = write_workbook(tmp_path / "b.xlsx", {"A": [["text"], ["one"], ["two"]]})
    assert [row for _, row in rows_of(single)] == [{"text": "one"}, {"text": "two"}]
    late = write_workbook(tmp_path / "c.xlsx", {"A": [["text"], ["one"], ["two"], ["three"], ["four", "odd"]]})
    assert [row["text"] for _, row in rows_of(late)] == ["one", "two", "three", "four"]


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
    with pytest.raises(UserError, match="the workbook is damaged, or only a part of it was copied") as refusal:
        rows_of(path)
    assert refusal.value.code == "dataset-parse-error"


def head(
    folder: Path, path: Path, sheet: str = "", encoding: str = "utf-8", **asked: bool
) -> dict[str, Any]:
    folder.mkdir()
    with Host(Run(folder)) as host:
        found = workbook_head(host, HeadSpec(AbsolutePath(str(path)), 20, sheet, encoding, **asked))
    assert "error" not in found  # by that key a child process says that the operation failed
    return found


def test_the_window_gets_the_first_rows_their_number_and_the_longest(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    rows = [["Task", "Result"], *([f"Add {n}.", n] for n in range(30))]
    path = write_workbook(tmp_path / "a.xlsx", {"A": rows})
    found = head(tmp_path / "operation", path)
    assert (found["num_rows"], found["sheet"], found["sheets"]) == (30, "A", ["A"])
    assert len(found["rows"]) == 20
    assert found["rows"][0] == {"Task": "Add 0.", "Result": "0"}
    assert found["longest_row_bytes"] == len('{"Task": "Add 29.", "Result": "29"}')


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_the_longest_row_counts_no_column_that_is_not_trained(kind: str, tmp_path: Path, home: Path) -> None:
    assert home.exists()
    rows = [{"question": f"Why {n}?", "answer": "So.", "source": "s" * 900} for n in range(30)]
    path = tmp_path / f"a.{kind}"
    if kind == "xlsx":
        write_workbook(path, {"A": [list(rows[0]), *(list(row.values()) for row in rows)]})
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    same = tmp_path / "a.jsonl"
    same.write_text("".join(json.dumps(row) + "\n" for row in rows))
    longest = head(tmp_path / "operation", path)["longest_row_bytes"]
    assert longest == sniff(same).longest_row_bytes == len('{"question": "Why 29?", "answer": "So."}')


def test_the_window_gets_the_sheet_that_it_asks_for_or_one_that_is_recognized(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    pair = [["question", "answer"], ["Why?", "So it is."]]
    twice, odd = [["a", "a"], ["1", "2"]], [["a", "b"], ["1", "2"]]
    sheets: dict[str, Any] = {"Cover": twice, "Odd": odd, "Pairs": pair, "Gone": pair, "Empty": []}
    path = write_workbook(tmp_path / "a.xlsx", sheets, hidden=["Gone"])
    proposed = head(tmp_path / "first", path)
    assert (proposed["sheet"], proposed["num_rows"], proposed["problem"]) == ("Pairs", 1, None)
    assert proposed["sheets"] == ["Cover", "Odd", "Pairs"]
    asked = head(tmp_path / "second", path, "Odd")
    assert (asked["sheet"], asked["rows"]) == ("Odd", [{"a": "1", "b": "2"}])
    broken = head(tmp_path / "third", path, "Cover")
    assert (broken["problem"]["code"], broken["sheets"]) == ("dataset-parse-error", ["Cover", "Odd", "Pairs"])
    unknown = write_workbook(tmp_path / "b.xlsx", {"Cover": twice, "Odd": odd})
    assert head(tmp_path / "fourth", unknown)["sheet"] == "Cover"


def test_text_in_an_archive_is_read_in_the_encoding_that_was_said(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("question,answer\nWer?,M\u00fcller\n".encode("cp1252")))
    assert head(tmp_path / "operation", path, encoding="windows-1252")["rows"][0]["answer"] == "M\u00fcller"


def test_a_workbook_is_recognized_by_its_content(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["text"], ["one"]]})
    found = sniff(path)
    assert (found.kind, found.num_rows_estimate, found.num_bytes) == ("xlsx", None, path.stat().st_size)
    text = tmp_path / "text.xlsx"
    text.write_text("question,answer\n")
    with pytest.raises(UserError, match=r'ends in "\.xlsx", but the content is something else'):
        file_kind(text)


def write_pairs(kind: str, folder: Path, answers: list[str]) -> Path:
    """Write a file that libraries read, with these answers to one question."""
    path = folder / f"a.{kind}"
    table = pyarrow.table({"question": ["Why?"] * len(answers), "answer": answers})
    if kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "arrow":
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    else:
        write_workbook(path, {"A": [["question", "answer"], *(["Why?", answer] for answer in answers)]})
    return path


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "arrow"])
def test_bad_rows_are_told_with_the_first(kind: str, tmp_path: Path, home: Path) -> None:
    assert home.exists()
    found = head(tmp_path / "some", write_pairs(kind, tmp_path, ["So.", "", "Yes.", ""]))
    assert (found["num_good"], found["num_bad"], found["refused"]) == (2, 2, None)
    # The row of a sheet has the number that it has there.
    place = "row 3" if kind == "xlsx" else "row 2"
    assert TunesmithError.from_dict(found["first_bad"]).message.endswith(f'{place}, column "answer": is empty.')
    found = head(tmp_path / "all", write_pairs(kind, tmp_path, ["", ""]), counts=False)
    assert (found["num_good"], found["num_bad"], found["refused"], found["num_rows"]) == (0, 2, None, None)
    # Rows that can be read, but not learned from as asked.
    found = head(tmp_path / "pairs", write_pairs(kind, tmp_path, ["So."]), in_pairs=True)
    assert (found["num_good"], found["first_bad"]) == (0, None)
    assert found["refused"]["code"]


def test_so_many_bad_rows_are_enough(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.exists()
    monkeypatch.setattr(data_head, "HEAD_ROWS", 3)
    found = head(tmp_path / "bad", write_pairs("xlsx", tmp_path, ["So.", *[""] * 9]))
    assert (found["num_good"], found["num_bad"], found["num_rows"]) == (1, 3, 10)
    found = head(tmp_path / "good", write_pairs("xlsx", tmp_path, [*["So."] * 9, ""]))
    assert (found["num_good"], found["num_bad"], found["num_rows"]) == (3, 0, 10)
