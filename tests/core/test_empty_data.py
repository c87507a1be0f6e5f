"""A data file without rows ends every command with an error that names the file and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.test_cli import Make, Script
from tunesmith_core import cli, files
from tunesmith_core.error_codes import CODES

EMPTY = {
    "nothing.jsonl": "",
    "blank.jsonl": "\n \n",
    "nothing.csv": "",
    "header.csv": "prompt,completion\n",
    "header.tsv": "prompt\tcompletion\n",
    "list.json": "[]",
    "rows.parquet": None,
}


def _write(path: Path) -> None:
    content = EMPTY[path.name]
    if content is None:
        pyarrow = pytest.importorskip("pyarrow", reason="is not among the launcher's packages")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)
    else:
        path.write_text(content)


@pytest.mark.parametrize("command", ["train", "plan", "check"])
@pytest.mark.parametrize("name", EMPTY)
def test_data_without_rows_is_named_with_the_next_step(
    command: str,
    name: str,
    tmp_path: Path,
    make_spec: Make,
    fake_engine: Script,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_engine({})
    spec = make_spec("c")
    spec.data.sources[0].path = str(tmp_path / name)
    _write(tmp_path / name)
    files.atomic_write_json(tmp_path / "spec.json", spec.to_dict())
    assert cli.main([command, str(tmp_path / "spec.json")]) == 2
    told = capsys.readouterr()
    assert f"{tmp_path / name}: " in told.err
    assert CODES["dataset-empty"].action in told.err
    assert "fit" not in told.out + told.err
