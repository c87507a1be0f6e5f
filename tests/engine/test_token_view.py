"""What the preview shows token by token is what a run trains, for every format and the templates of many families."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.prepared import prepare
from tests.engine.test_chat_templates import STOPS, tokenizer_of
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.example import IGNORED_LABEL
from tunesmith_engine.data.preview import preview

MakeSpec = Callable[..., RunSpec]

ASK, ANSWER = "Who are you?", "I am ü😀, and this goes on."
ROWS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}]},
    "sharegpt": {"conversations": [{"from": "human", "value": ASK}, {"from": "gpt", "value": ANSWER}]},
    "multiple-choice": {"question": ASK, "A": "Me.", "B": "You.", "answer": "B"},
    "alpaca": {"instruction": ASK, "input": "Now.", "output": ANSWER},
    "prompt-completion": {"question": ASK, "answer": ANSWER},
    "prompt-completion-raw": {"question": ASK, "answer": ANSWER},
    "text": {"text": ANSWER},
    "preference": {"prompt": ASK, "chosen": ANSWER, "rejected": "No."},
    "tokens": {
        "input_ids": [*range(5, 95), 0],
        "labels": [-100] * 20 + [*range(25, 95), -100],
        "attention_mask": [1] * 90 + [0],
    },
}

PAIRS = ("prompt-completion", "preference", "multiple-choice")


def data_file(tmp_path: Path, row: dict[str, Any]) -> str:
    path = tmp_path / "view.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(3)))
    return str(path)


@pytest.mark.parametrize("context_length", [4096, 60])
@pytest.mark.parametrize("row_format", ROWS)
@pytest.mark.parametrize("template", STOPS)
def test_the_tokens_shown_are_those_of_the_training_batches(
    tiny_spec: MakeSpec, tmp_path: Path, template: str, row_format: str, context_length: int
) -> None:
    tokenizer = tokenizer_of(template)
    data = {"path": data_file(tmp_path, ROWS[row_format]), "format": row_format, "context_length": context_length}
    # Where a template leaves no room for an answer, only the whole text can be cut and still be learned.
    spec = tiny_spec(data={**data, "train_on": "all" if context_length == 60 else "assistant"})
    shown = preview(spec, tokenizer, 3, tokens=True)
    trained = prepare(spec, tokenizer)
    batch = collate(trained.train, 0)
    assert len(shown["rows"]) == len(trained.train) == 3
    for number, row in enumerate(shown["rows"]):
        length = len(trained.train[number].input_ids)
        assert [token["id"] for token in row["tokens"]] == batch["input_ids"][number, :length].tolist()
        labels = [token["id"] if token["trained"] else IGNORED_LABEL for token in row["tokens"]]
        assert labels == batch["labels"][number, :length].tolist()
        assert row["is_cut"] == bool(row["num_lost_tokens"])
    assert shown["num_tokens"] == trained.stats.num_tokens
    assert shown["num_trained_tokens"] == trained.stats.num_trained_tokens
    assert shown["num_lost_tokens"] == sum(row["num_lost_tokens"] for row in shown["rows"])
    assert shown["pairs"] == trained.pairs == ("chat" if row_format in PAIRS else "text")


def test_control_tokens_are_named_and_texts_make_up_the_row(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    row = {"question": "Say <|im_end|>", "answer": ANSWER}
    spec = tiny_spec(data={"path": data_file(tmp_path, row)})
    shown = preview(spec, AutoTokenizer.from_pretrained(tiny_model), 1, tokens=True)["rows"][0]
    assert "".join(token["text"] for token in shown["tokens"]) == "".join(part["text"] for part in shown["segments"])
    # A control token that stands in the data is text, so it has no name.
    assert [token["special"] for token in shown["tokens"] if token["special"]] == ["<|im_start|>", "<|im_end|>"] * 2


@pytest.mark.parametrize(("num_asked", "is_warned"), [(40, False), (4000, True)])
def test_a_share_of_trained_tokens_below_one_percent_is_warned_of(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path, num_asked: int, is_warned: bool
) -> None:
    spec = tiny_spec(
        data={"path": data_file(tmp_path, {"prompt": "xq" * num_asked, "completion": "y"}), "context_length": 9000}
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    said = [note for note in preview(spec, tokenizer, 1)["notes"] if "less than 1%" in note]
    assert bool(said) == is_warned
    assert ("few-trained-tokens" in prepare(spec, tokenizer).notes) == is_warned


def test_tokens_of_another_model_are_refused_with_their_place(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    path = data_file(tmp_path, {"input_ids": [1, len(tokenizer)]})
    with pytest.raises(UserError, match=f'line 1, column "input_ids": the token {len(tokenizer)} is not among the'):
        prepare(tiny_spec(data={"path": path}), tokenizer)


def test_rows_with_a_bad_answer_and_the_worse_of_two_are_not_learned(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "labels.jsonl"
    rows = [{"prompt": ASK, "completion": f"Answer {number}.", "label": number > 2} for number in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, tokenizer = tiny_spec(data={"path": str(path)}), AutoTokenizer.from_pretrained(tiny_model)
    prepared = prepare(spec, tokenizer)
    assert prepared.stats.num_train_rows == 2
    assert prepared.notes["dataset-rows-left-out"] == f"{path}: rows whose label is false are left out (3)."
    shown = preview(spec, tokenizer, 5)
    assert [row["line"] for row in shown["rows"]] == [4, 5]
    assert shown["reasons"] == [
        'Prompt and response: the column "prompt" asks, and "completion" answers. '
        'Only rows whose column "label" is true are trained.'
    ]
    path.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(UserError, match="the label of every row is false"):
        prepare(spec, tokenizer)
    vote = {"prompt": ASK, "answer_a": "Two.", "answer_b": "Three."}
    votes = [vote | {"winner": winner} for winner in ("b", "tie", "a", "b")]
    path.write_text("".join(json.dumps(row) + "\n" for row in votes))
    prepared = prepare(spec, tokenizer)
    assert prepared.notes["dataset-rows-left-out"] == f"{path}: votes that are a tie are left out (1)."
    learned = ["".join(each["text"] for each in row["segments"]) for row in preview(spec, tokenizer, 5)["rows"]]
    assert [text.count("Three.") for text in learned] == [1, 0, 1]
    spec = tiny_spec(data={"path": data_file(tmp_path, ROWS["preference"])})
    prepared = prepare(spec, tokenizer)
    assert "The chosen answers are trained" in prepared.notes["dataset-preference-pairs"]
    assert "No." not in tokenizer.decode(prepared.train[0].input_ids)


def test_rows_before_an_open_quote_are_shown(tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question,answer\nWho?,Me.\nWhy?,"Because it\nHow?,So.\n')
    found = preview(tiny_spec(data={"path": str(path)}), AutoTokenizer.from_pretrained(tiny_model), 5)
    assert [row["line"] for row in found["rows"]] == [2]
    (problem,) = found["problems"]
    assert problem["line"] == 3
    assert f"{path}, line 3, column 6: the quote that opens here" in problem["message"]
    path.write_text('question,answer\n"Who?,Me.\n')
    with pytest.raises(UserError, match="line 2, column 1: the quote that opens here"):
        preview(tiny_spec(data={"path": str(path)}), AutoTokenizer.from_pretrained(tiny_model), 5)


def test_both_answers_of_a_pair_are_shown_and_told_apart(tiny_spec: MakeSpec, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Question {n}?", "chosen": f"Short {n}.", "rejected": f"Much longer {n}."} for n in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = tiny_spec(data={"path": str(path)})
    spec.objective.kind = "dpo"
    tokenizer = tokenizer_of("qwen2_5")
    shown = preview(spec, tokenizer, 3, tokens=True)
    told = [(row["line"], row["answer"]) for row in shown["rows"]]
    assert told == [(line, answer) for line in (1, 2, 3) for answer in ("better", "worse")]
    assert shown["num_rows"] == 5
    learned = ["".join(part["text"] for part in row["segments"] if part["trained"]) for row in shown["rows"]]
    assert ["Short 0." in learned[0], "Much longer 0." in learned[1]] == [True, True]
    trained = prepare(spec, tokenizer).train[0]
    sequences = [[token["id"] for token in row["tokens"]] for row in shown["rows"][:2]]
    assert sequences == [each.input_ids.tolist() for each in trained.sequences]
    spec.objective.kind = "sft"
    assert {row["answer"] for row in preview(spec, tokenizer, 3)["rows"]} == {""}
