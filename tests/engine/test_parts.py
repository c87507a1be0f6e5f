"""Long texts as several examples: at the best border in reach, no token lost or repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.prepared import prepare
from tunesmith_core.datafmt import PromptCompletion, Text, Tokens
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_engine.data.cuts import Cuts
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.parts import parts
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.render import Renderer, Tokenised

MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def tokenised(tokenizer: PreTrainedTokenizerBase, text: str) -> Tokenised:
    """A text as the tokens of a row."""
    renderer = Renderer(tokenizer, DataSpec())
    (found,) = renderer.tokenise([renderer.render(Text(text), "row 1")])
    return found


def as_letters(text: str) -> Tokenised:
    """A text with a token for each letter."""
    ids = np.arange(len(text), dtype=np.int32)
    return Tokenised(Example(ids, ids.copy()), text, np.arange(1, len(text) + 1), is_text=True)


LONG = {
    "english": "# One\n\nSome words here. More of them!\n\n## Two\n\nAnd the rest, which is longer.\n" * 30,
    "chinese": "春天来了，花开了。鸟儿在唱歌！你听见了吗？" * 60,
    "emoji": "👩‍👩‍👧‍👦🏽é" * 200,
    "one-word": "x" * 3000,
    "blank": "\n" * 900,
    "spaces": "a" + " " * 3000 + "b",
    "dots": "…" * 700 + "." * 700,
}


@pytest.mark.parametrize("limit", [8, 9, 64, 257])
@pytest.mark.parametrize("name", LONG)
def test_no_token_is_lost_or_repeated(tokenizer: PreTrainedTokenizerBase, name: str, limit: int) -> None:
    whole = tokenised(tokenizer, LONG[name])
    found = parts(whole, limit)
    assert len(found) > 1
    for column in ("input_ids", "labels"):
        joined = np.concatenate([getattr(part.example, column) for part in found])
        assert joined.tolist() == getattr(whole.example, column).tolist()
    assert "".join(part.text for part in found) == whole.text
    lengths = [len(part.example.input_ids) for part in found]
    assert max(lengths) <= limit
    assert min(lengths[:-1]) >= limit // 2
    assert all(part.example.num_trained_tokens for part in found)
    assert all(part.ends[-1] == len(part.text) for part in found)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("aaaaaaaaaa. bbb\n\nccc\n# ddd eee. ffffffffffff", "# ddd"),
        ("aaaaaaaaaa. bbb\n\nccc\n<h2>d</h2> eee. ffffffff", "<h2>d"),
        ("aaaaaaaaaaaaaaa. bbb\n\nccc. ddd\neee ffffffffff", "ccc. "),
        ("aaaaaaaaaaaaaaaa\n\nbb\n\ncc dddddddddddddddddddd", "cc dd"),
        ("aaaaaaaaaaaaaaa. bbb\nccc ddd eeeeeeeeeeeeeeeeee", "bbb\nc"),
        ("aaaaaaaaaaaaaaaaaaaa。bbbb，cccccccccccccccccccc", "bbbb，"),
        ("aaaaaaaaaaaaaaaaaaaa bbbb\nccc dddddddddddddddd", "ccc d"),
        ("aaaaaaaaaaaaaaaaaaaa bbbbcccddddddddddddddddddd", "bbbbc"),
        ("a" * 48, "a" * 17),
    ],
)
def test_the_best_border_in_reach_is_taken(text: str, begins: str) -> None:
    assert parts(as_letters(text), 31)[1].text.startswith(begins)
    assert len(parts(as_letters(text), 31)[0].example.input_ids) >= 15


def test_a_border_out_of_reach_is_no_border() -> None:
    first, _ = parts(as_letters("aa. " + "b" * 40), 30)
    assert len(first.text) == 30


def test_a_part_of_one_token_would_teach_nothing() -> None:
    assert [len(part.text) for part in parts(as_letters("a" * 31), 30)] == [29, 2]


def test_tokens_of_one_character_stay_together(tokenizer: PreTrainedTokenizerBase) -> None:
    whole = tokenised(tokenizer, "猫" * 100)
    ends = whole.ends.tolist()
    assert len(set(ends)) < len(ends), "a character has several tokens in this model"
    assert {len(part.text) * "猫" for part in parts(whole, 16)} >= {part.text for part in parts(whole, 16)[:-1]}
    assert all(part.ends[0] >= 1 for part in parts(whole, 16)[1:])


@pytest.mark.parametrize("shared", [1, 2, 3, 4])
def test_a_cut_is_made_behind_the_last_whole_character(shared: int) -> None:
    whole = as_letters("a" * 60)
    # The last tokens within reach belong to one character, with those behind it.
    whole.ends[30 - shared : 33] = 33
    first, second = parts(whole, 30)[:2]
    assert len(first.example.input_ids) == 30 - shared
    assert second.ends[: shared + 4].tolist() == [*[shared + 3] * (shared + 3), shared + 4]


def test_only_texts_are_split(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = Renderer(tokenizer, DataSpec())
    rows = [
        Text("a " * 100),
        PromptCompletion("a " * 50, "b " * 50),
        PromptCompletion("a " * 50, "b " * 50, as_chat=False),
        Tokens(tuple(range(100)), tuple(range(100)), "input_ids"),
        Tokens(tuple(range(100)), (-100, *range(1, 100)), "input_ids"),
    ]
    found = list(renderer.tokenise(renderer.render(row, "a row") for row in rows))
    cuts = Cuts(40, splits=True)
    assert [len(cuts.parts(row)) > 1 for row in found] == [True, False, False, True, False]
    assert [len(Cuts(40).parts(row)) for row in found] == [1] * 5
    assert cuts.num_split == 2
    assert cuts.longest_tokens == max(len(found[0].example.input_ids), 100)


def test_a_run_trains_each_part_and_the_preview_shows_the_same(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in (LONG["english"][:400], "short")), "utf-8")
    spec = tiny_spec(data={"path": str(path), "context_length": 32, "overlong": "split"}, evaluation={"percent": 0.0})
    data = prepare(spec, tokenizer)
    whole = tokenised(tokenizer, LONG["english"][:400]).example.input_ids.tolist()
    assert np.concatenate([row.input_ids for row in data.train[:-1]]).tolist() == whole
    (note,) = data.notes.values()
    assert f"context length of 32 tokens: 1. They were split into {len(data.train) - 1} examples." in note
    shown = preview(spec, tokenizer, 2, tokens=True)
    assert shown["notes"] == [note]
    assert shown["num_rows"] == len(data.train)
    assert shown["num_lost_tokens"] == shown["num_cut"] == 0
    assert [row["part"] for row in shown["rows"]] == [*range(1, len(data.train)), 1]
    assert [[token["id"] for token in row["tokens"]] for row in shown["rows"]] == [
        row.input_ids.tolist() for row in data.train
    ]


def test_replay_and_weights_are_told_in_examples_of_texts_that_are_split(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    for name, texts in (("long", [LONG["english"][:400]]), ("replay", ["short"] * 20)):
        (tmp_path / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    spec = tiny_spec(data={"path": "x", "context_length": 32, "overlong": "split"}, evaluation={"percent": 0.0})
    spec.data.sources = [
        SourceSpec(path=str(tmp_path / "long")), SourceSpec(path=str(tmp_path / "replay"), replay=50.0)
    ]
    shown, data = preview(spec, tokenizer, 2), prepare(spec, tokenizer)
    num = shown["rows_used"][0]
    assert shown["rows_used"] == [num, 20]
    assert num > 2
    (told,) = [note for note in shown["notes"] if "Examples in an epoch" in note]
    assert f"Examples in an epoch: {2 * num}." in told
    assert told in data.notes.values()


def test_the_parts_of_a_text_are_on_one_side(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = tmp_path / "texts.jsonl"
    letters = "abcdefghijkl"
    # Each part tells of which text it is.
    path.write_text("".join(json.dumps({"text": f"{letter * 3} " * 90}) + "\n" for letter in letters))
    spec = tiny_spec(data={"path": str(path), "context_length": 32, "overlong": "split"}, evaluation={"percent": 25.0})
    data = prepare(spec, tokenizer)

    def texts(rows: list[Example]) -> set[str]:
        return {tokenizer.decode(row.input_ids[5:7]).strip()[-1] for row in rows}

    train, held_out = texts(data.train), texts(data.eval)
    assert train | held_out == set(letters)
    assert held_out
    assert not train & held_out
