"""From files to examples: splits, cuts, counts, order, batches, the preview, and every refusal by name."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.prepared import prepare
from tests.tiny_model import write_chats
from tunesmith_core import position_limits
from tunesmith_core.actions import RAISE_CONTEXT
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import IGNORED_LABEL, DataStats, Example, PreparedData, epoch_order, split_rows
from tunesmith_engine.data import preview as data_preview
from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.preview import histogram, preview

MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def write_rows(path: Path, rows: list[Any]) -> str:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def test_rows_become_examples_and_a_share_is_held_out(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    spec = tiny_spec(evaluation={"percent": 25.0})
    data = prepare(spec, tokenizer)
    stats = data.stats
    assert (stats.num_train_rows, stats.num_eval_rows) == (len(data.train), len(data.eval)) == (12, 4)
    assert stats.num_tokens == sum(len(example.input_ids) for example in data.train)
    assert stats.num_trained_tokens == sum((example.labels != IGNORED_LABEL).sum() for example in data.train)
    assert stats.longest_tokens == max(len(example.input_ids) for example in data.train + data.eval)
    again = prepare(spec, tokenizer)
    assert [e.input_ids.tolist() for e in again.eval] == [e.input_ids.tolist() for e in data.eval]
    texts = {tokenizer.decode(example.input_ids) for example in data.train + data.eval}
    assert len(texts) == 16


def test_an_own_evaluation_file_is_not_trained_on(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    held_out = write_chats(tmp_path / "eval.jsonl", 3)
    data = prepare(tiny_spec(evaluation={"path": str(held_out), "percent": 50.0}), tokenizer)
    assert (len(data.train), len(data.eval)) == (16, 3)


def test_longer_rows_are_cut_or_skipped_and_counted(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    whole = prepare(tiny_spec(), tokenizer)
    lengths = [len(example.input_ids) for example in whole.train]
    limit = sorted(lengths)[8]
    num_longer = sum(length > limit for length in lengths)
    assert 0 < num_longer < 16
    cut = prepare(tiny_spec(data={"context_length": limit}), tokenizer)
    assert cut.stats.num_truncated_rows == num_longer
    assert cut.stats.longest_tokens == limit
    assert cut.train[-1].input_ids.tolist() == whole.train[-1].input_ids[:limit].tolist()
    skipped = prepare(tiny_spec(data={"context_length": limit, "overlong": "skip"}), tokenizer)
    assert skipped.stats.num_overlong_rows == skipped.stats.num_skipped_rows == num_longer
    assert skipped.stats.num_train_rows == 16 - num_longer


def test_a_cut_through_an_answer_is_a_warning_with_what_to_do(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    def row(question: str, answer: str) -> dict[str, str]:
        return {"prompt": question, "completion": answer}

    # Cut within the answer, within the question, and not at all.
    rows = [row("a", "word " * 20), row("word " * 40, "a"), row("a", "a")]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    whole = prepare(tiny_spec(data={"path": path, "context_length": 300}), tokenizer)
    assert not whole.notes
    longest = whole.stats.longest_tokens
    spec = tiny_spec(data={"path": path, "context_length": 24})
    left_out, note = prepare(spec, tokenizer).notes.values()
    assert preview(spec, tokenizer, 1)["notes"] == [left_out, note]
    assert left_out == "Rows left out because their answers begin beyond the context length of 24 tokens: 1 of 3."
    assert "24 tokens: 1 of 2. In 1 of them, the end of an answer is lost" in note
    assert f"To keep every row whole, raise the context length to {longest} tokens, or skip" in note
    assert prepare(spec, tokenizer).stats.num_open_rows == 1
    # The longest is left out, and no other is cut.
    (note,) = prepare(tiny_spec(data={"path": path, "context_length": longest - 10}), tokenizer).notes.values()
    assert f"1 of 3. Raise the context length to {longest} tokens." in note
    assert not prepare(tiny_spec(data={"path": path, "context_length": longest}), tokenizer).notes
    skipping = tiny_spec(data={"path": path, "context_length": 24, "overlong": "skip"})
    (note,) = prepare(skipping, tokenizer).notes.values()
    assert preview(skipping, tokenizer, 1)["notes"] == [note]
    assert "24 tokens are skipped: 2 of 3" in note
    assert "No row is left" not in note


def test_the_preview_tells_that_a_model_has_too_few_positions(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "one two three " * 9}, {"text": "one"}])
    monkeypatch.setattr(data_preview, "positions_of", lambda _spec: 20)
    spec = tiny_spec(data={"path": path, "context_length": 64})
    found = preview(spec, tokenizer, 1)
    words = f"data.context_length: the longest row has {found['longest_kept_tokens']} tokens, but "
    assert found["notes"][0].startswith(words)
    assert TunesmithError.from_dict(found["too_long"]).message.endswith("supports only 20.")
    # What is cut, or skipped, is none that the model reads.
    for spec.data.context_length, spec.data.overlong in ((20, "cut"), (24, "skip")):
        assert preview(spec, tokenizer, 1)["too_long"] is None


def test_the_preview_tells_of_rows_longer_than_the_model_is_made_for(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "one two three " * 9}, {"text": "one"}])
    monkeypatch.setattr(data_preview, "stated_context", lambda _spec: 20)
    spec = tiny_spec(data={"path": path, "context_length": 64})
    found = preview(spec, tokenizer, 1)
    assert found["notes"][0] == (
        f"The longest row has {found['longest_kept_tokens']} tokens, but the model is made for 20. It may not work "
        "well beyond that. Set the context length to 20 tokens."
    )
    assert found["too_long"] is None, "positions that are computed have no end"
    write_rows(Path(path), [{"prompt": "one two three " * 2, "completion": "four"}])
    note = preview(spec, tokenizer, 1)["notes"][0]
    assert "made for 20" in note
    assert "Set the context length" not in note, "nothing would be learned within it"
    write_rows(Path(path), [{"text": "one two three " * 9}, {"text": "one"}])
    for spec.data.context_length, spec.data.overlong in ((20, "cut"), (24, "skip")):
        assert not [note for note in preview(spec, tokenizer, 1)["notes"] if "The longest row" in note]


@pytest.mark.parametrize(
    ("made_for", "advice", "actions"),
    [
        (0, "Raise the context length to {longest} tokens.", (RAISE_CONTEXT,)),
        (60, "Raise the context length to 60 tokens.", (RAISE_CONTEXT,)),
        (40, "The first token to learn comes after {before} others, but the model is made for 40 tokens at most. Use "
             "shorter prompts, other data, or a model for longer texts.", ()),
    ],
)
def test_preview_and_run_say_what_would_help_where_nothing_is_learned(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    made_for: int, advice: str, actions: tuple[str, ...],
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "x" * 50, "completion": "y" * 30}] * 2)
    monkeypatch.setattr(position_limits, "context_length", lambda _folder: made_for)
    spec = tiny_spec(data={"path": path, "context_length": 1000, "format": "prompt-completion-raw"})
    (row,) = preview(spec, tokenizer, 1, tokens=True)["rows"]
    before = [token["trained"] for token in row["tokens"]].index(True)
    spec.data.context_length = 32
    found = preview(spec, tokenizer, 1)
    problem = TunesmithError.from_dict(found["nothing_left"])
    assert (problem.code, problem.hint) == (
        "no-trained-tokens", advice.format(longest=row["num_tokens"], before=before)
    )
    _, note = found["notes"]
    assert note == f"{problem.message} {problem.hint}"
    assert problem.message == f"{path}: no row has a token to learn within 32 tokens. Rows: 2."
    with pytest.raises(UserError) as raised:
        prepare(spec, tokenizer)
    assert (raised.value.message, raised.value.hint) == (problem.message, problem.hint)
    assert raised.value.actions == problem.actions == actions


def test_the_preview_names_the_one_file_that_has_nothing_to_learn(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    good = write_rows(tmp_path / "good.jsonl", [{"prompt": "x", "completion": "y"}])
    long = write_rows(tmp_path / "long.jsonl", [{"prompt": "x" * 50, "completion": "y"}])
    spec = tiny_spec(data={"path": good, "context_length": 32, "format": "prompt-completion-raw"})
    assert preview(spec, tokenizer, 1)["nothing_left"] is None
    spec.data.sources.append(dataclasses.replace(spec.data.sources[0], path=long))
    problem = preview(spec, tokenizer, 1)["nothing_left"]
    assert problem["message"].startswith(long)
    write_rows(Path(long), [{"prompt": "x" * 50, "completion": "y"}] * 5001)
    found = preview(spec, tokenizer, 1)
    assert found["nothing_left"] is None, "rows behind those may have more"
    assert any("None of the first" in note for note in found["notes"])


def test_rows_whose_answer_is_cut_off_are_dropped_and_counted(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = [{"prompt": "x" * 200, "completion": "a"}, {"prompt": "x", "completion": "a"}]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    data = prepare(tiny_spec(data={"path": path}), tokenizer)
    assert (data.stats.num_train_rows, data.stats.num_untrained_rows, data.stats.num_skipped_rows) == (1, 1, 1)


@pytest.mark.parametrize(
    ("rows", "changes", "code", "said"),
    [
        ([{"prompt": "x" * 200, "completion": "a"}], {}, "no-trained-tokens", "no row has a token to learn"),
        ([{"text": "x" * 200}], {"overlong": "skip"}, "dataset-empty", "every row is longer than the context length"),
        ([], {}, "dataset-empty", "empty"),
        ([{"text": "a"}, "bad"], {}, "dataset-parse-error", "line 2, column 1"),
        ([{"text": "a"}, {"body": "b"}], {}, "dataset-column-missing", 'line 2: the row has no column "text"'),
        ([{"text": "a"}, {"text": ""}], {}, "dataset-parse-error", 'line 2, column "text": is empty'),
        (["bad", {"text": ""}], {"skip_bad_rows": True}, "dataset-parse-error", "line 1"),
        ([{"text": ""}, {"text": ""}], {"skip_bad_rows": True}, "dataset-parse-error", "line 1"),
        ([{"text": "a"}], {"columns": {"nonsense": "text"}}, "spec-invalid", "nonsense"),
    ],
)
def test_data_that_can_not_be_trained_on_is_refused_by_name(
    tiny_spec: MakeSpec,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    rows: list[Any],
    changes: dict[str, Any],
    code: str,
    said: str,
) -> None:
    path = write_rows(tmp_path / "bad.jsonl", rows)
    with pytest.raises(UserError) as caught:
        prepare(tiny_spec(data={"path": path, **changes}), tokenizer)
    assert caught.value.code == code
    assert said in caught.value.message


def test_bad_rows_are_skipped_and_counted_when_asked_for(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    tokenizer.chat_template = "{% if messages[0].content == '!' %}{{ raise_exception('no') }}{% endif %}" + str(
        tokenizer.chat_template
    )
    answer = {"role": "assistant", "content": "a"}
    good, refused = ([{"role": "user", "content": text}, answer] for text in ("?", "!"))
    rows = ["bad", {"messages": good}, {"messages": []}, {"messages": refused}, {"messages": good}]
    path = write_rows(tmp_path / "mixed.jsonl", rows)
    stats = prepare(tiny_spec(data={"path": path, "skip_bad_rows": True}), tokenizer).stats
    assert (stats.num_train_rows, stats.num_bad_rows, stats.num_skipped_rows) == (2, 3, 3)
    only_refused = write_rows(tmp_path / "refused.jsonl", [{"messages": refused}])
    with pytest.raises(UserError, match="line 1: the chat template rejects"):
        prepare(tiny_spec(data={"path": only_refused, "skip_bad_rows": True}), tokenizer)


def test_chats_without_a_template_are_refused_even_when_bad_rows_are_skipped(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase
) -> None:
    tokenizer.chat_template = None
    with pytest.raises(UserError) as caught:
        prepare(tiny_spec(data={"skip_bad_rows": True}), tokenizer)
    assert caught.value.code == "dataset-chat-template-missing"


def test_parquet_gives_the_same_examples_as_jsonl(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    spec = tiny_spec()
    rows = [json.loads(line) for line in Path(spec.data.sources[0].path).read_text().splitlines()]
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    expected = prepare(spec, tokenizer)
    got = prepare(tiny_spec(data={"path": str(path)}), tokenizer)
    assert [e.input_ids.tolist() for e in got.train] == [e.input_ids.tolist() for e in expected.train]
    assert got.stats == expected.stats


def test_parquet_problems_are_named(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    spec = tiny_spec(data={"path": str(path)})
    parquet.write_table(pyarrow.table({"text": ["a", ""]}), path)
    with pytest.raises(UserError, match=r'rows\.parquet, row 2, column "text": is empty'):
        prepare(spec, tokenizer)
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)
    with pytest.raises(UserError) as caught:
        prepare(spec, tokenizer)
    assert caught.value.code == "dataset-empty"
    path.write_bytes(b"PAR1" + b"\0" * 50)
    with pytest.raises(UserError, match="the Parquet file is damaged") as caught:
        prepare(spec, tokenizer)
    assert caught.value.code == "dataset-parse-error"


def test_an_epoch_takes_each_row_once_in_an_order_of_its_own() -> None:
    first, second = (epoch_order(50, 42, epoch, True) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first == epoch_order(50, 42, 0, True) != epoch_order(50, 43, 0, True)
    assert epoch_order(5, 42, 3, False) == [0, 1, 2, 3, 4]
    # A run of an earlier version is resumed with the rows that it has not seen.
    assert epoch_order(5, 42, 0, True) == [1, 2, 0, 3, 4]
    assert split_rows(10, 20.0, 42)[1] == [3, 4]


@pytest.mark.parametrize(
    ("num_rows", "percent", "num_eval"),
    [(100, 5.0, 5), (2, 5.0, 1), (2, 99.0, 1), (3, 99.0, 2), (3, 50.0, 2), (1, 50.0, 0), (100, 0.0, 0), (9, 1.0, 1)],
)
def test_the_split_keeps_rows_on_both_sides(num_rows: int, percent: float, num_eval: int) -> None:
    train, held_out = split_rows(num_rows, percent, 42)
    assert len(held_out) == num_eval
    assert sorted(train + held_out) == list(range(num_rows))
    assert (train, held_out) == split_rows(num_rows, percent, 42)


def test_copies_stay_on_one_side_and_nothing_else_changes() -> None:
    for seed in range(30):
        assert split_rows(100, 10.0, seed, range(100)) == split_rows(100, 10.0, seed)
        contents = [row % 60 for row in range(100)]
        train, held_out = split_rows(100, 10.0, seed, contents)
        assert not {contents[row] for row in train} & {contents[row] for row in held_out}
        assert (len(held_out), sorted(train + held_out)) == (10, list(range(100)))
        assert split_rows(100, 10.0, seed, contents) == (train, held_out)
    # Groups that are larger than the share: the smallest is kept out.
    assert split_rows(7, 10.0, 42, [5, 5, 5, 5, 9, 9, 9])[1] == [4, 5, 6]
    assert split_rows(6, 10.0, 42, [5] * 6) == split_rows(6, 10.0, 42)


def test_a_run_holds_out_no_row_that_it_trains(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    spec = tiny_spec(evaluation={"percent": 25.0})
    path = Path(spec.data.sources[0].path)
    path.write_text(path.read_text() * 2)
    data = prepare(spec, tokenizer)
    train, held_out = ({tuple(each.input_ids.tolist()) for each in rows} for rows in (data.train, data.eval))
    assert held_out
    assert not train & held_out
    earlier = data.earlier
    assert earlier is not None, "a version that did not look for copies split these rows otherwise"
    for more in ({}, {"format": "float32"}):
        assert data.as_in(earlier.hashes() | more) is earlier
        assert data.as_in(earlier.hashes() | {"held_out": data.held_out_hash()} | more) is data
        assert data.as_in(data.hashes() | more) is data


def test_batches_are_padded_on_the_right(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    short, *_, long = sorted(prepare(tiny_spec(), tokenizer).train, key=lambda example: len(example.input_ids))
    batch = collate([short, long], 0)
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == dict.fromkeys(
        ("input_ids", "labels", "attention_mask"), (2, len(long.input_ids))
    )
    length = len(short.input_ids)
    assert batch["input_ids"][0, :length].tolist() == short.input_ids.tolist()
    assert set(batch["input_ids"][0, length:].tolist()) == {0}
    assert set(batch["labels"][0, length:].tolist()) == {IGNORED_LABEL}
    assert batch["attention_mask"].sum(dim=1).tolist() == [length, len(long.input_ids)]


def test_the_preview_shows_what_is_learned_and_lists_problems(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows: list[Any] = [json.loads(line) for line in Path(tiny_spec().data.sources[0].path).read_text().splitlines()]
    path = write_rows(tmp_path / "mixed.jsonl", [*rows[:2], "bad", {"messages": []}, *rows[2:]])
    spec = tiny_spec(data={"path": path})
    shown = preview(spec, tokenizer, 3)
    assert json.loads(json.dumps(shown)) == shown
    assert [row["line"] for row in shown["rows"]] == [1, 2, 5]
    first = shown["rows"][0]
    assert first["segments"] == [
        {"text": "<|im_start|>user\nWhat is 0 plus one?<|im_end|>\n<|im_start|>assistant\n", "trained": False},
        {"text": "It is 1<|im_end|>", "trained": True},
        {"text": "\n", "trained": False},
    ]
    assert (first["num_trained_tokens"], first["is_cut"]) == (8, False)
    assert (shown["num_rows"], shown["num_skipped"], shown["num_cut"], shown["is_complete"]) == (16, 2, 0, True)
    assert [problem["line"] for problem in shown["problems"]] == [3, 4]
    assert sum(bar["num_rows"] for bar in shown["histogram"]) == 16


def test_the_preview_shows_the_cut_and_whole_characters(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "pairs.jsonl", [{"prompt": "ü😀", "completion": "😀é" * 10}])
    shown = preview(
        tiny_spec(data={"path": path, "context_length": 16, "format": "prompt-completion-raw"}), tokenizer, 5
    )
    (row,) = shown["rows"]
    assert (row["num_tokens"], row["is_cut"], shown["num_cut"]) == (16, True, 1)
    assert row["segments"][0] == {"text": "ü😀", "trained": False}
    assert row["segments"][1]["text"].startswith("😀é")


def test_the_preview_shows_which_rows_are_skipped_and_that_none_is_left(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "texts.jsonl", [{"text": "word " * 40}, {"text": "word"}, {"text": "word " * 50}])
    spec = tiny_spec(data={"path": path, "context_length": 16, "overlong": "skip"})
    shown = preview(spec, tokenizer, 3)
    assert [row["is_skipped"] for row in shown["rows"]] == [True, False, True]
    assert shown["rows"][0]["num_trained_tokens"] == 0 < shown["rows"][1]["num_trained_tokens"]
    assert {part["trained"] for part in shown["rows"][0]["segments"]} == {False}
    assert (shown["num_rows"], shown["num_skipped"], shown["num_cut"], shown["num_untrained"]) == (1, 2, 0, 0)
    assert shown["num_trained_tokens"] == shown["rows"][1]["num_trained_tokens"]
    write_rows(Path(path), [{"text": "word " * 40}])
    (note,) = preview(spec, tokenizer, 3)["notes"]
    assert "every row is longer than the context length of 16 tokens. Rows: 1." in note
    with pytest.raises(UserError, match="every row is longer than the context length of") as raised:
        prepare(spec, tokenizer)
    assert "split" in raised.value.hint
    assert raised.value.hint in note


def test_the_preview_lists_a_hundred_problems_and_counts_what_is_not_learned(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows: list[Any] = ["bad"] * 105 + [{"prompt": "x" * 40, "completion": "y"}, {"prompt": "x", "completion": "y"}]
    path = write_rows(tmp_path / "mixed.jsonl", rows)
    shown = preview(
        tiny_spec(data={"path": path, "context_length": 16, "format": "prompt-completion-raw"}), tokenizer, 1
    )
    assert [problem["line"] for problem in shown["problems"]] == list(range(1, 101))
    assert (shown["num_skipped"], shown["num_rows"], shown["num_cut"], shown["num_untrained"]) == (105, 2, 0, 1)
    assert any(f"Raise the context length to {shown['longest_tokens']} tokens." in note for note in shown["notes"])
    assert [row["line"] for row in shown["rows"]] == [106]


def test_a_preview_of_classes_counts_no_row_as_not_learned(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = [{"question": "x" * 40, "answer": "y", "label": name} for name in ("a", "b")]
    path = write_rows(tmp_path / "classes.jsonl", rows)
    spec = tiny_spec(data={"path": path, "context_length": 16, "format": "labeled"}, objective={"kind": "classify"})
    assert preview(spec, tokenizer, 2)["num_untrained"] == 0


@pytest.mark.parametrize(("num_rows", "is_complete"), [(5000, True), (5001, False)])
def test_the_preview_looks_at_5000_rows_and_says_whether_there_are_more(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, num_rows: int, is_complete: bool
) -> None:
    path = write_rows(tmp_path / "many.jsonl", [{"text": "a"}] * num_rows)
    shown = preview(tiny_spec(data={"path": path}), tokenizer, 7)
    assert (shown["num_rows"], len(shown["rows"]), shown["is_complete"]) == (5000, 7, is_complete)
    assert (shown["longest_tokens"], shown["context_length"], shown["num_untrained"]) == (2, 128, 0)


def test_a_histogram_covers_every_length() -> None:
    bars = histogram([0, 1, 99, 100])
    assert [bar["num_rows"] for bar in bars if bar["num_rows"]] == [2, 1, 1]
    assert bars[0]["from_tokens"] == 0
    assert bars[-1]["to_tokens"] > 100
    assert all(one["to_tokens"] == other["from_tokens"] for one, other in itertools.pairwise(bars))
    # At most 24 of equal width, and the last one holds the longest.
    shapes = [(len(bars), bars[0]["to_tokens"]) for bars in (histogram([longest]) for longest in (0, 23, 24, 100))]
    assert shapes == [(1, 1), (24, 1), (13, 2), (21, 5)]


def test_statistics_are_plain_numbers(tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    assert json.loads(json.dumps(dataclasses.asdict(prepare(tiny_spec(), tokenizer).stats)))["num_train_rows"] == 16
    assert set(dataclasses.asdict(DataStats()).values()) == {0, ""}, "of no rows"


def test_a_digest_tells_rows_and_what_is_learned_of_them() -> None:
    def example(*ids: int, first_learned: int = 1) -> Example:
        labels = [IGNORED_LABEL] * first_learned + list(ids[first_learned:])
        return Example(np.array(ids, np.int32), np.array(labels, np.int32))

    rows = [example(1, 2), example(3)]
    others = ([example(1, 2, 3)], [example(3), example(1, 2)], [example(1, 2, first_learned=2), example(3)])
    digests = [PreparedData(each, rows, DataStats()).tokens_hash() for each in (rows, *others)]
    assert len(set(digests)) == 4
    data = PreparedData(others[0], rows, DataStats())
    assert data.held_out_hash() == digests[0] != data.tokens_hash()
    # Checkpoints of earlier versions hold it, and must still match the same rows.
    assert digests[0] == "374386570568f5a9"


@pytest.mark.parametrize("name", ["nothing.jsonl", "header.csv", "list.json", "rows.parquet"])
def test_the_preview_of_a_file_without_rows_names_it(
    name: str, tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text({"header.csv": "prompt,completion\n", "list.json": "[]"}.get(name, ""))
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)
    with pytest.raises(UserError) as caught:
        preview(tiny_spec(data={"path": str(path)}), tokenizer, 3)
    assert (caught.value.code, str(path) in caught.value.message) == ("dataset-empty", True)


# Several files


def _two_files(tmp_path: Path) -> list[dict[str, Any]]:
    chats = write_chats(tmp_path / "chats.jsonl", 3)
    (tmp_path / "pairs.csv").write_text("frage,antwort\nOne?,Two.\nThree?,Four.\n", encoding="utf-8")
    columns = {"prompt": "frage", "completion": "antwort"}
    return [
        {"path": str(chats)},
        {"path": str(tmp_path / "pairs.csv"), "format": "prompt-completion", "columns": columns},
    ]


def _of_files(spec: RunSpec, sources: list[dict[str, Any]]) -> RunSpec:
    values = spec.to_dict()
    values["data"]["sources"] = sources
    return RunSpec.from_dict(values)


def test_files_of_different_formats_and_columns_train_together(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    sources = _two_files(tmp_path)
    both = prepare(_of_files(tiny_spec(), sources), tokenizer)
    alone = [prepare(_of_files(tiny_spec(), [source]), tokenizer) for source in sources]
    assert [data.stats.num_train_rows for data in (both, *alone)] == [5, 3, 2]
    assert [e.input_ids.tolist() for e in both.train] == [e.input_ids.tolist() for d in alone for e in d.train]
    assert both.stats.num_trained_tokens == sum(data.stats.num_trained_tokens for data in alone)


def test_an_error_in_the_second_file_names_that_file(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    spec = _of_files(tiny_spec(), _two_files(tmp_path))
    (tmp_path / "pairs.csv").write_text("frage,antwort\nOne?,Two.\nThree?,\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.csv, line 3") as caught:
        prepare(spec, tokenizer)
    assert "chats.jsonl" not in caught.value.message


def test_rows_of_a_model_that_nobody_reviewed_are_told(
    tiny_spec: MakeSpec, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    def row(**more: object) -> dict[str, object]:
        return {"question": "Who?", "answer": "Me.", **more}

    rows = [row(), row(synthetic=True), row(synthetic=True, reviewed=True), row(synthetic="True"), row(synthetic=False)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    notes = prepare(tiny_spec(data={"path": path}), tokenizer).notes
    assert notes["dataset-not-reviewed"] == f"{path}: rows that a model wrote and nobody has reviewed (2)."
    path = write_rows(tmp_path / "reviewed.jsonl", [row(), rows[2]])
    assert "dataset-not-reviewed" not in prepare(tiny_spec(data={"path": path}), tokenizer).notes
