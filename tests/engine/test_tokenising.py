"""Rows become the same tokens whatever is done at the same time, and what goes wrong is told in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.test_data_portions import Told
from tests.engine.test_data_render import MARKED
from tunesmith_core.datafmt import Chat, Conversation, Text, Tokens
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data import tokenising
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.tokenising import Encoded, Rendered, Tokeniser

WAIT_S = 30.0


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def encode(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[Rendered]], object]], None]:
    """Do something before rows go through the tokenizer."""
    real = Tokeniser._encode

    def set_up(before: Callable[[list[Rendered]], object]) -> None:
        def first(tokeniser: Tokeniser, group: list[Rendered]) -> Encoded:
            before(group)
            return real(tokeniser, group)

        monkeypatch.setattr(Tokeniser, "_encode", first)

    return set_up


def chat(number: int) -> Conversation:
    if number % 7 == 3:
        return Tokens((5, 6, 7), (-100, 6, 7), "input_ids")
    if number % 7 == 5:
        return Text(f"text {number} <|im_end|>")
    word = "<|im_end|>" if number % 5 == 0 else "é🙂" * (number % 11)
    question, answer = f"What is {number} {word}?", f"{word} It is {number}."
    return Chat(({"role": "user", "content": question}, {"role": "assistant", "content": answer}))


def rendered(renderer: Renderer, num_rows: int) -> Iterator[Rendered]:
    for number in range(num_rows):
        yield renderer.render(chat(number), f"line {number + 1}")


def tokens_of(tokenizer: PreTrainedTokenizerBase, num_rows: int) -> list[Any]:
    renderer = Renderer(tokenizer, DataSpec())
    rows = renderer.tokenise(rendered(renderer, num_rows))
    return [
        (each.example.input_ids.tolist(), each.example.labels.tolist(), each.text, each.ends.tolist(), each.question)
        for each in rows
    ]


def test_tokens_are_the_same_in_batches_of_any_size(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tokens_of(tokenizer, 90)
    for num_rows, num_characters in ((2, 200_000), (7, 200_000), (256, 300), (256, 1)):
        monkeypatch.setattr(tokenising, "BATCH_ROWS", num_rows)
        monkeypatch.setattr(tokenising, "BATCH_CHARACTERS", num_characters)
        assert tokens_of(tokenizer, 90) == expected


def test_the_next_batch_is_rendered_while_the_tokenizer_works(
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    encode: Callable[[Callable[[list[Rendered]], object]], None],
) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 4)
    renderer, is_next = Renderer(tokenizer, DataSpec()), threading.Event()

    def rows() -> Iterator[Rendered]:
        for number, row in enumerate(rendered(renderer, 8)):
            if number == 4:
                is_next.set()
            yield row

    encode(lambda _group: is_next.wait(WAIT_S) or pytest.fail("nothing was rendered meanwhile"))
    assert len(list(renderer.tokenise(rows()))) == 8


@pytest.mark.parametrize(("template", "length"), [(MARKED, 10), ("", 2000)], ids=["marks answers", "long rows"])
def test_nothing_is_rendered_meanwhile_where_that_takes_the_tokenizer_or_rows_are_long(
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    encode: Callable[[Callable[[list[Rendered]], object]], None],
    template: str,
    length: int,
) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 4)
    monkeypatch.setattr(tokenising, "BATCH_CHARACTERS", 1000)
    tokenizer.chat_template = template or tokenizer.chat_template
    renderer = Renderer(tokenizer, DataSpec())
    num_rendered = num_encoded = 0

    def rows() -> Iterator[Rendered]:
        nonlocal num_rendered
        for _ in range(8):
            num_rendered += 1
            yield renderer.render(Text("a" * length), "a line")

    def count(group: list[Rendered]) -> None:
        nonlocal num_encoded
        num_encoded += len(group)
        assert num_rendered - num_encoded <= 1

    encode(count)
    assert len(list(renderer.tokenise(rows()))) == 8


def test_what_is_wrong_with_a_row_comes_behind_what_the_tokenizer_says_of_those_before(
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    encode: Callable[[Callable[[list[Rendered]], object]], None],
) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 4)
    renderer = Renderer(tokenizer, DataSpec())

    def rows(num_good: int) -> Iterator[Rendered]:
        yield from rendered(renderer, num_good)
        raise TunesmithError("dataset-parse-error", "the row")

    good = renderer.tokenise(rows(4))
    assert len(list(islice(good, 4))) == 4, "those before it come first"
    with pytest.raises(TunesmithError, match="the row"):
        next(good)

    def refuse(_group: list[Rendered]) -> None:
        raise TunesmithError("model-files-missing-or-corrupt", "the tokenizer")

    encode(refuse)
    with pytest.raises(TunesmithError, match="the tokenizer"):
        list(renderer.tokenise(rows(4)))


def test_a_stop_ends_the_work_ahead(
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    encode: Callable[[Callable[[list[Rendered]], object]], None],
) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 64)
    renderer, groups, is_stopped = Renderer(tokenizer, DataSpec()), [], threading.Event()

    def rows() -> Iterator[Rendered]:
        yield from rendered(renderer, 64)
        is_stopped.set()
        raise KeyboardInterrupt

    def work(group: list[Rendered]) -> None:
        groups.append(group)
        is_stopped.wait(WAIT_S)

    encode(work)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        list(renderer.tokenise(rows()))
    assert len(groups) < 4, "what was not begun is left"
    assert threading.active_count() == before


def test_a_row_may_take_the_time_of_what_is_done_ahead_too(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 2)
    told = Told()
    renderer = Renderer(tokenizer, DataSpec(train_on="all"), told)

    def rows() -> Iterator[Rendered]:
        for _ in range(4):
            yield renderer.render(chat(1), "a line")

    lengths = [len(each.text) for each in renderer.tokenise(rows())]
    alone = 2.0 + told_characters(chat(1)) / 100_000 + 2 / 100
    ahead = sum(lengths[:2]) / 100_000
    assert [round(cpu_s, 3) for work, *_, cpu_s in told.told if work == "template"] == [
        *[round(alone, 3)] * 2,
        *[round(alone + ahead, 3)] * 2,
    ]


def told_characters(conversation: Conversation) -> int:
    assert isinstance(conversation, Chat)
    return sum(len(message["content"]) for message in conversation.messages)
