"""Groups of rows that are held out as a whole."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.prepared import prepare
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.groups import split_groups
from tunesmith_engine.data.preview import preview

MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


class Rows:
    """Written rows, of which only groups and contents matter."""

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.groups = array("q", [group for group, _ in rows])
        self.contents = array("q", [content for _, content in rows])


def _is_one_group(rows: list[tuple[int, int]]) -> bool:
    """Whether all rows hang together by groups and contents."""
    reached, rest = [rows[0]], rows[1:]
    for group, content in reached:
        near = [row for row in rest if row[0] == group or row[1] == content]
        rest = [row for row in rest if row not in near]
        reached += near
    return not rest


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 200)), min_size=2, max_size=80),
    st.floats(0.1, 50.0),
    st.integers(0, 9),
)
def test_no_group_and_no_row_is_on_both_sides(rows: list[tuple[int, int]], percent: float, seed: int) -> None:
    spec = RunSpec()
    spec.evaluation.percent, spec.evaluation.group_column, spec.schedule.seed = percent, "group", seed
    if _is_one_group(rows):
        with pytest.raises(UserError, match="all rows are of one group"):
            split_groups(spec, Rows(rows))  # type: ignore[arg-type]
        return
    train, held_out, notes = split_groups(spec, Rows(rows))  # type: ignore[arg-type]
    assert sorted(train + held_out) == list(range(len(rows)))
    assert train
    assert held_out
    for part in range(2):
        assert not {rows[row][part] for row in train} & {rows[row][part] for row in held_out}
    assert (train, held_out, notes) == split_groups(spec, Rows(rows))  # type: ignore[arg-type]
    assert bool(notes) == (len(held_out) != max(1, round(len(rows) * percent / 100)))


def _of_groups(spec: RunSpec, path: Path, rows: list[dict[str, Any]]) -> RunSpec:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec.data.sources = [SourceSpec(path=str(path))]
    return spec


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_run_holds_whole_groups_out(
    name: str, tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = [{"text": f"{number} of {number % 10}", "customer": number % 10} for number in range(100)]
    spec = tiny_spec(evaluation={"percent": 20.0, "group_column": "customer"})
    data = prepare(_of_groups(spec, tmp_path / name, rows), tokenizer)
    held_out, train = (
        {tokenizer.decode(each.input_ids, skip_special_tokens=True)[-1] for each in part}
        for part in (data.eval, data.train)
    )
    assert (len(data.eval), len(held_out), len(held_out & train)) == (20, 2, 0)
    assert "dataset-groups" not in data.notes
    spec.evaluation.percent = 25.0
    note = 'Held out: 20 of 100 rows, because the groups of the column "customer" stay whole.'
    assert prepare(spec, tokenizer).notes["dataset-groups"] == note


def test_groups_reach_over_files_bad_rows_and_batches(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    spec = tiny_spec(evaluation={"percent": 50.0, "group_column": "g"}, data={"skip_bad_rows": True})
    for name in ("a", "b"):
        rows = [{"text": f"{name} {number} {number % 2}", "g": number % 2} for number in range(3000)]
        rows[5] = {"other": 1}
        _of_groups(spec, tmp_path / f"{name}.jsonl", rows)
    spec.data.sources = [SourceSpec(path=str(tmp_path / f"{name}.jsonl")) for name in ("a", "b")]
    data = prepare(spec, tokenizer)
    ends = [{tokenizer.decode(each.input_ids, skip_special_tokens=True)[-1] for each in data.eval}]
    ends.append({tokenizer.decode(each.input_ids, skip_special_tokens=True)[-1] for each in data.train})
    assert sorted(map(sorted, ends)) == [["0"], ["1"]]
    assert len(data.train) + len(data.eval) == 5998


def test_a_column_that_can_t_split_is_named_with_its_file(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = [{"text": f"Row {number}", "one": "same"} for number in range(20)]
    rows[7]["some"] = 1
    spec = _of_groups(tiny_spec(evaluation={"percent": 20.0}), tmp_path / "rows.jsonl", rows)
    for column, words in (
        ("one", r'rows\.jsonl: all rows are of one group by the column "one" \(evaluation\.group_column\)'),
        ("some", r'rows\.jsonl, line 1: the row has no column "some", which is the group column \(evaluation\.group_c'),
    ):
        spec.evaluation.group_column = column
        with pytest.raises(UserError, match=words) as caught:
            prepare(spec, tokenizer)
        assert caught.value.code == "dataset-groups"
    with pytest.raises(UserError, match='no column "some"'):
        preview(spec, tokenizer, 3)
    spec.evaluation.percent = 0.0
    assert len(prepare(spec, tokenizer).train) == 20, "nothing is held out, so the column has no part"
    assert np.array_equal(prepare(spec, tokenizer).eval, [])
