"""What is told before a run begins: rows that nobody has reviewed, and chats that the template can't write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.prepared import prepare
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import doubts as module
from tunesmith_engine.data.doubts import doubts

MakeSpec = Callable[..., RunSpec]


def pair(number: int, **more: object) -> dict[str, object]:
    return {"question": f"What is {number}?", "answer": f"It is {number}.", **more}


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:  # Any: a transformers tokenizer
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def synthetic(tmp_path: Path) -> str:
    """Two rows that a model wrote, one of them reviewed, and one that no model wrote."""
    rows = [pair(1, synthetic=True), pair(2, synthetic=True, reviewed=True), pair(3)]
    return written(tmp_path / "made.jsonl", rows)


def test_rows_that_nobody_has_reviewed_are_counted(
    tiny_spec: MakeSpec, tokenizer: Any, synthetic: str, tmp_path: Path
) -> None:
    spec = tiny_spec(data={"path": synthetic})
    spec.data.sources.append(SourceSpec(path=written(tmp_path / "own.jsonl", [pair(4), pair(5)])))
    found = doubts(spec, tokenizer)
    assert found["sources"] == [{"num_rows": 3, "num_unreviewed": 1}, {"num_rows": 2, "num_unreviewed": 0}]
    assert found["is_complete"]
    assert found["warnings"] == []
    spec.data.sources[0].reviewed_only = True
    assert doubts(spec, tokenizer)["sources"][0] == {"num_rows": 2, "num_unreviewed": 0}


def test_only_so_many_rows_are_read(
    tiny_spec: MakeSpec, tokenizer: Any, synthetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_READ", 2)
    found = doubts(tiny_spec(data={"path": synthetic}), tokenizer)
    assert (found["sources"][0]["num_rows"], found["is_complete"]) == (2, False)


def test_only_reviewed_rows_are_trained_where_that_is_said(
    tiny_spec: MakeSpec, tokenizer: Any, synthetic: str, tmp_path: Path
) -> None:
    spec = tiny_spec(data={"path": synthetic})
    assert len(prepare(spec, tokenizer).train) == 3
    spec.data.sources[0].reviewed_only = True
    prepared = prepare(spec, tokenizer)
    assert len(prepared.train) == 2
    assert "are left out (1)" in prepared.notes["dataset-not-reviewed"]
    spec.data.sources[0].path = written(tmp_path / "all.jsonl", [pair(1, synthetic=True)])
    with pytest.raises(UserError, match="nobody has reviewed any") as refusal:
        prepare(spec, tokenizer)
    assert refusal.value.code == "dataset-empty"


def chat(**more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho.", **more}]}


def test_parts_of_chats_that_the_template_leaves_out_are_named(
    tiny_spec: MakeSpec, tokenizer: Any, tmp_path: Path
) -> None:
    spec = tiny_spec(data={"path": written(tmp_path / "c.jsonl", [chat(mood="glad")])})
    (words,) = doubts(spec, tokenizer)["warnings"]
    assert '"mood"' in words


def test_chats_that_the_template_refuses_are_told(tiny_spec: MakeSpec, tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}{% if 'Ho' in m.content %}{{ raise_exception('no Ho') }}{% endif %}{{ m.role }}: "
        "{{ m.content }}\n{% endfor %}"
    )
    good = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}]}
    path = written(tmp_path / "c.jsonl", [good, chat()])
    with pytest.raises(TunesmithError, match="no Ho"):
        doubts(tiny_spec(data={"path": path, "skip_bad_rows": False}), tokenizer)
    (words,) = doubts(tiny_spec(data={"path": path, "skip_bad_rows": True}), tokenizer)["warnings"]
    assert "(1)" in words
    assert "line 2" in words
    assert "no Ho" in words
