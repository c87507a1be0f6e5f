"""What a bigger model found likely, beside an answer: this program's own column, logs of chats, and what is no such."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunesmith_core.datafmt import Chat, PromptCompletion, recognition, resolve_layout, stored_answer, with_stored
from tunesmith_core.datafmt.stored import stored_column
from tunesmith_core.errors import TunesmithError

PAIR = PromptCompletion("Who?", "Me.")
OWN = stored_column([5, 2], [[(5, -0.1234567), (9, -2.5)], [(2, 0.0)]], "abc")


def logged(token: str, logprob: float = -0.5, raw: list[int] | None = None) -> dict[str, Any]:
    return {"token": token, "bytes": raw, "logprob": logprob}


def _layout(column: str = "logprobs") -> Any:
    rows = [{"prompt": "Who?", "completion": "Me.", column: OWN}]
    return with_stored(resolve_layout(rows, "auto", {}, "a.jsonl"), rows, "a.jsonl")


def _read(value: object, conversation: Any = PAIR) -> Any:
    return stored_answer({"logprobs": value}, _layout(), conversation, "a.jsonl, line 3")


def test_own_rows_are_compact_and_come_back() -> None:
    assert OWN["top_logprobs"] == [[-0.123, -2.5], [0.0]]
    for value in (OWN, json.dumps(OWN)):
        found = _read(value)
        assert (found.text, found.tokens, found.vocabulary) == ("Me.", (5, 2), "abc")
        assert found.likeliest == (((5, -0.123), (9, -2.5)), ((2, 0.0),))


def test_logged_chat_completions_are_read_by_bytes() -> None:
    first = {**logged("M"), "top_logprobs": [logged("M", -0.1), logged("\ufffd", -3.0, [255, 254])]}
    last = {**logged("e."), "top_logprobs": [logged("e.", -0.2)]}
    messages = ({"role": "assistant", "content": "No."}, {"role": "user", "content": "?"})
    chat = Chat((*messages, {"role": "assistant", "content": "Me."}, messages[1]))
    found = _read({"content": [first, last]}, chat)
    assert (found.text, found.tokens, found.vocabulary) == ("Me.", (b"M", b"e."), "")
    assert found.likeliest == (((b"M", -0.1), (b"\xff\xfe", -3.0)), ((b"e.", -0.2),))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "no JSON",
        {},
        {"content": []},
        {"content": [{**logged("M"), "top_logprobs": []}]},
        {"content": [logged("M")]},
        {"content": [{**logged("M"), "top_logprobs": [logged("M", float("nan"))]}]},
        {"content": [{**logged("M"), "top_logprobs": [logged("M", 0.5)]}]},
        {"content": [{**logged("M"), "top_logprobs": [logged("M", raw=[300])]}]},
        {**OWN, "token_ids": [5]},
        {**OWN, "token_ids": [5, -2]},
        {**OWN, "token_ids": [5, True]},
        {**OWN, "top_ids": [[5], [2]]},
        {**OWN, "top_logprobs": [["a", -2.5], [0.0]]},
        {**OWN, "top_logprobs": [[True, -2.5], [0.0]]},
        {name: each for name, each in OWN.items() if name != "vocabulary"},
    ],
)
def test_what_can_not_be_read_is_named(value: object) -> None:
    with pytest.raises(TunesmithError, match=r'a.jsonl, line 3, column "logprobs": the probabilities') as caught:
        _read(value)
    assert caught.value.code == "dataset-parse-error"
    with pytest.raises(TunesmithError, match="line 4"):
        stored_answer({}, _layout(), PAIR, lambda: "line 4")


def test_the_column_is_found_whatever_its_letters() -> None:
    layout = _layout("LogProbs")
    assert layout.columns["logprobs"] == "LogProbs"
    words = str(recognition(layout, [{"prompt": "Who?", "completion": "Me.", "LogProbs": OWN}]))
    assert 'The column "LogProbs" holds what a bigger model found likely.' in words
    assert "Not used" not in words


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "Who?", "completion": "Me."}, 'There is no column "logprobs"'),
        ({"text": "Long ago", "logprobs": OWN}, "learns from prompts with responses"),
    ],
)
def test_rows_without_it_are_refused_with_the_next_step(row: dict[str, Any], words: str) -> None:
    layout = resolve_layout([row], "auto", {}, "a.jsonl")
    with pytest.raises(TunesmithError, match=words) as caught:
        with_stored(layout, [row], "a.jsonl")
    assert caught.value.code == "dataset-column-missing"
    assert "Have a bigger model answer" in str(caught.value.hint)
