"""Held-out documents are told apart by their perplexity, and words of documents are suggested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.engine.conftest import events, train
from tests.engine.prepared import prepare
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.held_documents import MOST_DOCUMENTS, documents_of
from tunesmith_engine.data.word_suggestions import suggested_words

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]


@pytest.fixture
def reading(tiny_spec: MakeSpec, tmp_path: Path) -> RunSpec:
    """Read four documents and hold two others out."""
    spec = tiny_spec()
    spec.data.train_on, spec.data.overlong = "all", "split"
    for folder, names in (("read", "abcg"), ("held", "de")):
        (tmp_path / folder).mkdir()
        for name in names:
            text = "\n\n".join(f"The glowmill {name} hums in street {number}." for number in range(12))
            (tmp_path / folder / f"{name}.md").write_text(text)
    spec.data.sources = [SourceSpec(path=str(tmp_path / "read"))]
    spec.evaluation.path = str(tmp_path / "held")
    return spec


def test_each_document_of_a_held_out_folder_is_told(reading: RunSpec, new_run: NewRun) -> None:
    run = new_run(reading)
    assert train(run) == 0
    for event in events(run, "eval"):
        told = event.data["source_losses"]
        assert [Path(each["path"]).name for each in told] == ["d.md", "e.md"]
        total = sum(each["loss"] * each["num_tokens"] for each in told)
        assert total / sum(each["num_tokens"] for each in told) == pytest.approx(event.data["loss"], rel=1e-6)


def test_a_share_that_is_held_out_is_told_too(reading: RunSpec, tiny_model: Path) -> None:
    reading.evaluation.path, reading.evaluation.percent = "", 50.0
    data = prepare(reading, AutoTokenizer.from_pretrained(tiny_model))
    assert len(data.held_out_parts) == 2
    assert sum(num for _, num in data.held_out_parts) == len(data.eval)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["a.md", "a.md", "b.md"], [("a.md", 2), ("b.md", 1)]),
        (["a.md", "a.md"], []),
        (["a.md", "b.md", "a.md"], []),
        (["x.jsonl", "y.jsonl"], []),
        (["x.jsonl", "a.md"], [("x.jsonl", 1), ("a.md", 1)]),
        ([f"{number}.md" for number in range(MOST_DOCUMENTS + 1)], []),
    ],
)
def test_documents_are_told_apart_where_there_are_some(documents: list[str], expected: list[tuple[str, int]]) -> None:
    assert documents_of(documents, range(len(documents)), ["x.jsonl", "y.jsonl"]) == expected


def test_words_that_fall_into_many_pieces_are_suggested(reading: RunSpec, tiny_model: Path) -> None:
    found = suggested_words(reading, AutoTokenizer.from_pretrained(tiny_model))["words"]
    assert found[0] == {"word": "glowmill", "count": 48, "pieces": 8}
    assert {each["word"] for each in found} == {"glowmill", "street", "hums", "The"}
