"""Rows of the Data page as a table: what was changed is in it, and what has no place there is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tunesmith_core.errors import UserError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.rows import EditedRows, IndexSpec, SaveRowsSpec, index_rows
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.table import save_table

ROWS = [{"q": "Thé", "a": "1"}, {"q": "b", "m": [{"role": "user"}]}, {"q": "c", "a": None}]


def spec(tmp_path: Path, host: Host, target: str, lines: list[str]) -> SaveRowsSpec:
    path, folder = tmp_path / "a.jsonl", tmp_path / "index"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder.mkdir()
    index_rows(host, IndexSpec(SourceSpec(path=str(path)), AbsolutePath(str(folder))))
    deleted = folder / "deleted"
    deleted.write_bytes((2).to_bytes(8, "little"))
    edited = EditedRows({"0": {"q": "new", "a": "2"}}, AbsolutePath(str(folder)), AbsolutePath(str(deleted)))
    return SaveRowsSpec(AbsolutePath(str(tmp_path / target)), edited)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "operation").mkdir()
    return Host(Operation(tmp_path / "operation"))


def test_changed_rows_become_csv_and_parquet(tmp_path: Path, host: Host) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    with host:
        assert save_table(host, spec(tmp_path, host, "b.csv", lines)) == {"num_rows": 2}
    assert (tmp_path / "b.csv").read_bytes().startswith(b"\xef\xbb\xbfq,a,m"), "Excel needs the mark"
    with (tmp_path / "b.csv").open(encoding="utf-8-sig", newline="") as file:
        told = list(csv.DictReader(file))
    assert told == [{"q": "new", "a": "2", "m": ""}, {"q": "b", "a": "", "m": '[{"role": "user"}]'}]


def test_a_parquet_file_keeps_values(tmp_path: Path, host: Host) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    with host:
        save_table(host, spec(tmp_path, host, "b.parquet", lines))
    kept = parquet.read_table(tmp_path / "b.parquet").to_pylist()
    assert kept == [{"q": "new", "a": "2", "m": None}, {"q": "b", "a": None, "m": [{"role": "user"}]}]


def test_a_row_that_can_not_be_read_is_not_lost_in_silence(tmp_path: Path, host: Host) -> None:
    with host, pytest.raises(UserError, match="Row 2 can't be read"):
        save_table(host, spec(tmp_path, host, "b.csv", ['{"q": "a"}', '{"broken', '{"q": "c"}']))
    assert not (tmp_path / "b.csv").exists()
