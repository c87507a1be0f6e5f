"""What is announced before each piece of work on rows: which rows it is about, and how long it may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tunesmith_core.datafmt import Chat, Text
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.tokenising import Rendered


class Told(Portions):
    """Keeps what was announced."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, int, float]] = []

    def begin(self, *arguments: Any, **options: Any) -> None:
        super().begin(*arguments, **options)
        now = self.now
        self.told.append((now.work, now.row, now.last_row, round(now.cpu_s, 3)))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


# Reading


def test_each_row_is_announced_and_a_large_file_may_take_longer(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": 5}\n{"text": "b"}' + " " * 10_000_000)
    source = Source(SourceSpec(path=str(path)), skip_bad_rows=True, portions=told)
    for number, _ in source.conversations():
        told.told.append(("read", number, 0, 0.0))
    assert told.told == [
        ("reader", 0, 0, 21.0),
        ("reader", 1, 0, 21.0),
        ("read", 1, 0, 0.0),
        ("reader", 1, 0, 21.0),
        ("reader", 2, 0, 21.0),
        ("reader", 2, 0, 21.0),
        ("reader", 3, 0, 21.0),
        ("read", 3, 0, 0.0),
        ("reader", 3, 0, 21.0),
    ]
    assert (told.now.path, told.now.kind) == (str(path), "jsonl")


def test_a_path_that_can_not_be_looked_at_is_told_by_whoever_opens_it(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "none.jsonl"
    with pytest.raises(TunesmithError, match=r"none\.jsonl"):
        list(Source(SourceSpec(path=str(path)), skip_bad_rows=False, portions=told).conversations())
    assert told.told == [("reader", 0, 0, 20.0)]


def test_after_a_hundred_thousand_bad_rows_the_first_one_is_told(tmp_path: Path) -> None:
    source = Source(SourceSpec(path=str(tmp_path / "rows.jsonl")), skip_bad_rows=True)
    first = TunesmithError("dataset-parse-error", "the first")
    another = TunesmithError("dataset-parse-error", "another")
    source.bad_row(1, first)
    for number in range(2, 100_000):
        source.bad_row(number, another)
    with pytest.raises(TunesmithError, match="the first"):
        source.bad_row(100_000, another)


# Rendering


def chat_of(*contents: str, **fields: Any) -> Chat:
    roles = ("user", "assistant")
    return Chat(tuple({"role": roles[n % 2], "content": text, **fields} for n, text in enumerate(contents)))


def test_a_long_chat_may_take_longer_and_write_more(tokenizer: PreTrainedTokenizerBase, told: Told) -> None:
    renderer = Renderer(tokenizer, DataSpec(train_on="all"), told)
    told.row = 7
    renderer.render(chat_of("x" * 90_000, "y" * 10_000), "line 7")
    renderer.render(chat_of(*["a", "b"] * 100), "line 7")
    # A hundred thousand characters a second, a hundred messages a second.
    assert told.told == [("template", 7, 0, 3.02), ("template", 7, 0, 4.002)]


@pytest.mark.parametrize(
    ("chat", "num_characters"),
    [
        (chat_of("abc", "de"), 5),
        (chat_of("abc", "de", name="n"), sum(len(str(each)) for each in chat_of("abc", "de", name="n").messages)),
        (Chat(chat_of("abc", "de").messages, tools=({"name": "f"},)), 5 + len("[{'name': 'f'}]") + 1),
    ],
)
def test_a_template_may_write_a_million_characters_and_four_for_each_of_the_row(
    tokenizer: PreTrainedTokenizerBase, told: Told, chat: Chat, num_characters: int
) -> None:
    most = 1_000_000 + 4 * num_characters
    renderer = Renderer(tokenizer, DataSpec(train_on="all"), told)
    told.about(Path("rows.jsonl"), "jsonl")
    told.row = 3
    tokenizer.chat_template = f"{{{{ 'x' * {most} }}}}"
    assert renderer.render(chat, "line 3").trained == [(0, most)]
    tokenizer.chat_template = f"{{{{ 'x' * {most + 1} }}}}"
    with pytest.raises(TunesmithError) as caught:
        renderer.render(chat, "line 3")
    assert (caught.value.code, caught.value.message) == (
        "foreign-limit",
        f"rows.jsonl, line 3: the chat template wrote more than {most:,} characters.",
    )


# Tokens


def rendered(renderer: Renderer, told: Told, *lengths: int) -> Iterator[Rendered]:
    for row, length in enumerate(lengths, 1):
        told.row = row
        yield renderer.render(Text("a" * (length - len("<|im_end|>"))), f"line {row}")


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([100] * 16, [("tokenizer", 1, 16, 2.016)]),
        ([100] * 33, [("tokenizer", 1, 16, 2.016), ("tokenizer", 17, 32, 2.016), ("tokenizer", 33, 33, 2.001)]),
        ([10_000, 10_000, 100], [("tokenizer", 1, 2, 2.2), ("tokenizer", 3, 3, 2.001)]),
        (
            [10_000, 10_001, 9_999, 1000],
            [("tokenizer", 1, 1, 2.1), ("tokenizer", 2, 3, 2.2), ("tokenizer", 4, 4, 2.01)],
        ),
        ([30_000, 100], [("tokenizer", 1, 1, 2.3), ("tokenizer", 2, 2, 2.001)]),
    ],
)
def test_up_to_16_rows_and_20_000_characters_are_tokenised_together(
    tokenizer: PreTrainedTokenizerBase, told: Told, lengths: list[int], groups: list[tuple[str, int, int, float]]
) -> None:
    renderer = Renderer(tokenizer, DataSpec(), told)
    rows = list(renderer.tokenise(rendered(renderer, told, *lengths)))
    assert [len(row.text) for row in rows] == lengths
    assert told.told == groups


def test_two_batches_of_256_rows_are_rendered_before_the_first_is_tokenised(
    tokenizer: PreTrainedTokenizerBase, told: Told
) -> None:
    renderer = Renderer(tokenizer, DataSpec(), told)
    taken: list[Rendered] = []

    def rows() -> Iterator[Rendered]:
        for row in rendered(renderer, told, *[20] * 600):
            taken.append(row)
            yield row

    tokens = renderer.tokenise(rows())
    next(tokens)
    assert len(taken) == 512, "the others are not in memory yet"
    assert len(list(tokens)) == 599


def test_rows_longer_than_the_model_knows_are_no_warning(
    tokenizer: PreTrainedTokenizerBase, told: Told, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer.model_max_length = 8
    renderer = Renderer(tokenizer, DataSpec(), told)
    list(renderer.tokenise([renderer.render(Text("a" * 100), "line 1")]))
    list(renderer.tokenise([renderer.render(chat_of("<|im_end|>" * 9, "a" * 100), "line 1")]))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
