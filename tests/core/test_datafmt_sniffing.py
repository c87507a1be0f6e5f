"""The first look at a data file: layout, number of rows, and the check that runs before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.parquet_files import parquet_of
from tunesmith_core import datafmt
from tunesmith_core.datafmt import sniffing
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path


def test_a_short_file_is_counted_and_a_long_one_estimated(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"prompt": "q", "completion": "a"}'] * 200)
    exact = datafmt.sniff(path, num_rows=300)
    assert (exact.kind, exact.format, exact.columns) == ("jsonl", "prompt-completion", ("prompt", "completion"))
    assert exact.mapping == {"prompt": "prompt", "completion": "completion"}
    assert exact.num_rows_estimate == 200
    assert exact.num_bytes == path.stat().st_size
    assert datafmt.sniff(path).num_rows_estimate == pytest.approx(200, rel=0.05)


def test_a_malformed_row_is_counted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"text": "a"}', "{broken", '{"text": "b"}'])
    assert datafmt.sniff(path).num_rows_estimate == 3


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "a"},
        {"messages": [{"role": "user", "content": 'Say "ü😀".\n'}, {}], "none": None, "list": [], "pair": (True, -2.5)},
        {"number": 123_456_789_012, "zero": 0},
    ],
    ids=str,
)
def test_the_bytes_of_a_row_are_nearly_those_of_its_json(row: dict[str, object]) -> None:
    exact = len(json.dumps(row, ensure_ascii=False).encode())
    assert sniffing.row_bytes(row) == pytest.approx(exact, abs=3)
    assert sniffing.row_bytes({**row, "more": 10**5000}) > 1500


def test_unknown_columns_and_bad_rows_are_no_error_of_the_first_look(tmp_path: Path) -> None:
    seen = datafmt.sniff(write_lines(tmp_path / "a.jsonl", ["bad", '{"x": 1}']))
    assert (seen.format, seen.columns, seen.mapping) == ("auto", ("x",), {})


def test_parquet_is_recognised_and_left_to_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_of(7))
    seen = datafmt.sniff(path)
    assert (seen.kind, seen.format, seen.num_rows_estimate) == ("parquet", "auto", 7)
    datafmt.check_head(SourceSpec(path=str(path)))


def test_a_good_head_passes_and_only_the_head_is_looked_at(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"text": "a"}'] * 60 + ["bad"])
    datafmt.check_head(SourceSpec(path=str(path)), num_rows=60)
    with pytest.raises(UserError, match="line 61"):
        datafmt.check_head(SourceSpec(path=str(path)))


def test_the_head_ends_after_so_many_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffing, "HEAD_BYTES", 500)
    path = write_lines(tmp_path / "a.jsonl", ['{"text": "a"}'] * 60 + ["bad"])
    datafmt.check_head(SourceSpec(path=str(path)))


def test_the_first_problem_of_the_head_is_raised(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"text": "a"}', '{"other": "b"}', '{"text": ""}'])
    with pytest.raises(UserError, match=r"line 2: the row has no column") as caught:
        datafmt.check_head(SourceSpec(path=str(path)))
    assert caught.value.code == "dataset-column-missing"
    assert caught.value.message == f'{path}, line 2: the row has no column "text". Its columns are: other.'


def test_a_row_without_a_chosen_column_names_what_it_is_for(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"q": "a", "a": "b"}', "{}"])
    with pytest.raises(UserError) as caught:
        datafmt.check_head(SourceSpec(path=str(path), columns={"prompt": "q", "completion": "a"}))
    assert caught.value.message == f'{path}, line 2: the row has no column "q" (prompt). Its columns are: none.'


def test_columns_that_nobody_recognizes_are_told_before_a_bad_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["frage,notiz", "Wer?,Ich.,zu viel", "Wer?,Ich."])
    with pytest.raises(UserError) as caught:
        datafmt.check_head(SourceSpec(path=str(path)))
    assert caught.value.code == "dataset-column-missing"


def test_bad_rows_pass_when_they_are_to_be_skipped(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ["bad", '{"text": ""}', '{"text": "a"}'])
    assert datafmt.check_head(SourceSpec(path=str(path)), skip_bad_rows=True) == (1, 2)
    with pytest.raises(UserError, match="line 1"):
        datafmt.check_head(SourceSpec(path=str(path)))
    only_bad = write_lines(tmp_path / "b.jsonl", [json.dumps({"text": ""})] * 3)
    with pytest.raises(UserError, match="line 1"):
        datafmt.check_head(SourceSpec(path=str(only_bad)), skip_bad_rows=True)


def test_another_file_is_checked_by_the_same_mapping(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "eval.jsonl", ['{"body": "a"}'])
    datafmt.check_head(SourceSpec(path=str(path), columns={"text": "body"}))


def test_no_example_has_more_tokens_than_its_row_has_bytes(tmp_path: Path) -> None:
    rows = ['{"prompt": "q", "completion": "' + "é" * length + '"}' for length in (3, 50, 7)]
    short = datafmt.sniff(write_lines(tmp_path / "a.jsonl", rows))
    longest = len(rows[1].encode())
    assert short.longest_row_bytes == longest
    assert short.max_tokens() == longest + sniffing.TEMPLATE_TOKENS
    assert short.max_tokens("Be é.") == longest + sniffing.TEMPLATE_TOKENS + 6

    many = datafmt.sniff(write_lines(tmp_path / "b.jsonl", rows * 40), num_rows=2)
    assert many.longest_row_bytes is not None
    assert many.longest_row_bytes >= longest


@pytest.mark.parametrize("num_rows", [10, 1])
def test_columns_that_are_not_trained_do_not_make_a_row_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int
) -> None:
    row = {"question": "Who?", "answer": "Me.", "remark": "long " * 900}
    trained = len(json.dumps({"question": "Who?", "answer": "Me."}))
    path = write_lines(tmp_path / "a.jsonl", [json.dumps(row)] * 9)
    assert datafmt.sniff(path, num_rows).longest_row_bytes == trained
    chosen = datafmt.sniff(path, num_rows, columns={"prompt": "question", "completion": "passage"})
    assert chosen.longest_row_bytes is not None
    assert chosen.longest_row_bytes > 900 * 5
    assert chosen.mapping == {"prompt": "question", "completion": "answer"}
    pair = write_lines(tmp_path / "b.jsonl", [json.dumps({"prompt": "q", "chosen": "a", "rejected": "b" * 900})] * 9)
    assert datafmt.sniff(pair, num_rows).longest_row_bytes == len('{"prompt": "q", "chosen": "a"}')
    monkeypatch.setattr(sniffing, "PARSED_BYTES", 100)
    measured = trained if num_rows > 1 else len(json.dumps(row)) + 1
    assert datafmt.sniff(path, num_rows).longest_row_bytes == measured


def test_the_longest_row_of_a_big_file_stays_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", ['{"text": "a"}'] * 60)
    monkeypatch.setattr(sniffing, "SCANNED_BYTES", 100)
    assert datafmt.sniff(path).max_tokens() is None
    table = write_lines(tmp_path / "a.csv", ["text", *["a"] * 60, "abc"])
    assert datafmt.sniff(table).longest_row_bytes == len('{"text": "abc"}')
    broken = write_lines(tmp_path / "b.csv", ["text", *["a"] * 60, '"open'])
    assert datafmt.sniff(broken).max_tokens() is None
    monkeypatch.setattr(sniffing, "PARSED_BYTES", 100)
    assert datafmt.sniff(table).max_tokens() is None


def test_a_bad_row_of_a_list_on_one_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"instruction": "q", "output": "a"}, 7, {"instruction": "q", "output": ""}]
    path.write_text(json.dumps([rows[0], rows[0], rows[2]]), encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.json, row 3, column"):
        datafmt.check_head(SourceSpec(path=str(path)))
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert datafmt.check_head(SourceSpec(path=str(path)), skip_bad_rows=True) == (1, 2)


def test_a_head_of_bad_rows_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffing, "HEAD_ROWS", 20)
    only_bad = write_lines(tmp_path / "a.jsonl", ["bad"] * 30 + ['{"text": "a"}'])
    with pytest.raises(UserError, match="line 20"):
        datafmt.sniff(only_bad)
    some_good = write_lines(tmp_path / "b.jsonl", ['{"text": "a"}', *["bad"] * 30, '{"text": "a"}'])
    assert datafmt.check_head(SourceSpec(path=str(some_good)), skip_bad_rows=True) == (1, 20)
    with pytest.raises(UserError, match="line 1"):
        sniffing.head_rows(only_bad, 5)


def test_rows_before_a_place_where_nothing_more_can_be_read_are_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["question,answer", "a,b", "c,d", '"e,f', "g,h"])
    assert datafmt.sniff(path).num_rows_estimate == 2
    with pytest.raises(UserError, match="line 4, column 1: the quote that opens here has no closing quote"):
        sniffing.head_rows(path, 5)
    with pytest.raises(UserError, match="line 4, column 1: the quote that opens here has no closing quote"):
        datafmt.check_head(SourceSpec(path=str(path)))
    broken = write_lines(tmp_path / "b.csv", ["question,answer", '"e,f'])
    with pytest.raises(UserError, match=r"line 2.*: the quote that opens here has no closing quote"):
        datafmt.sniff(broken)


def test_the_rows_of_a_wide_table_are_not_all_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.csv", [",".join(f"c{number}" for number in range(50)), *["a"] * 60])
    assert datafmt.sniff(path).longest_row_bytes is not None
    monkeypatch.setattr(sniffing, "UNFOLDED_BYTES", 10_000)
    assert datafmt.sniff(path).longest_row_bytes is None


def test_a_workbook_is_left_to_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "a.ods"
    path.write_bytes(b"PK\x03\x04rest")
    found = datafmt.sniff(path)
    assert (found.kind, found.format, found.columns, found.num_rows_estimate) == ("ods", "auto", (), None)
    assert found.max_tokens() is None
    assert datafmt.check_head(SourceSpec(path=str(path))) == (0, 0)


def test_a_folder_is_as_large_as_its_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x" * 5000)
    assert datafmt.sniff(tmp_path).num_bytes == 10_000
