"""An answer in pieces: never half a character or half an emoji, nothing lost, and thinking told apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tunesmith_engine.chat.pieces import Detokenizer, Thinking, num_whole

FAMILY, FLAG, THUMB, HEART = "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️"
SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
TEXT = f"Grüße, 世界! {FAMILY} and {FLAG}{FLAG} {THUMB}{HEART} {SCOTLAND}. Naïve café 한국어, x = 3²…"
WHOLE = (FAMILY, FLAG, THUMB, HEART, SCOTLAND)


def pieces_of(decode: Callable[[list[int]], str], tokens: list[int], size: int) -> list[str]:
    detokenizer = Detokenizer(decode)
    found = [detokenizer.take(tokens[at : at + size]) for at in range(0, len(tokens), size)]
    return [*found, detokenizer.finish()]


def of_bytes(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def split_inside(pieces: list[str]) -> list[str]:
    """What of the emoji of TEXT is cut by a border of pieces."""
    places, end = set(), 0
    for piece in pieces:
        end += len(piece)
        places.add(end)
    text = "".join(pieces)
    cut = []
    for emoji in WHOLE:
        at = text.find(emoji)
        while at >= 0:
            cut += [emoji for place in places if at < place < at + len(emoji)]
            at = text.find(emoji, at + len(emoji))
    return cut


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_pieces_of_a_byte_level_tokenizer_are_whole(tokenizer: PreTrainedTokenizerBase, size: int) -> None:
    tokens = tokenizer(TEXT)["input_ids"]
    pieces = pieces_of(lambda ids: str(tokenizer.decode(ids)), tokens, size)
    assert "".join(pieces) == TEXT
    assert "\ufffd" not in "".join(pieces)
    assert split_inside(pieces) == []


def byte_fallback(tokens: list[int]) -> str:
    """As SentencePiece decodes: a group of bytes that is no text becomes as many marks."""
    try:
        return bytes(tokens).decode()
    except UnicodeDecodeError:
        return "".join(chr(token) if token < 128 else "\ufffd" for token in tokens)


def test_pieces_of_bytes_that_decode_as_a_group_are_whole() -> None:
    pieces = pieces_of(byte_fallback, list("世界 ok".encode()), 1)
    assert "".join(pieces) == "世界 ok"
    assert all("\ufffd" not in piece for piece in pieces)


@given(st.text(max_size=60), st.integers(1, 5))
def test_nothing_of_any_text_is_lost(text: str, size: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert "".join(pieces_of(of_bytes, list(text.encode()), size)) == text


@given(st.binary(max_size=40), st.integers(1, 5))
def test_bytes_that_are_no_text_end_as_they_are_read_whole(data: bytes, size: int) -> None:
    assert "".join(pieces_of(of_bytes, list(data), size)) == data.decode("utf-8", "replace")


def test_a_long_answer_is_not_decoded_from_its_beginning_each_time() -> None:
    longest = 0

    def decode(tokens: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return of_bytes(tokens)

    text = TEXT * 60
    assert "".join(pieces_of(decode, list(text.encode()), 4)) == text
    assert longest < 400


def test_text_is_shown_as_soon_as_it_is_certain() -> None:
    assert num_whole("Hello") == 5
    assert num_whole("Hello 👍") == 6
    assert num_whole("Hello 👍 ") == 8
    assert num_whole(f"{FLAG}🇫") == 2
    assert num_whole("") == 0


@pytest.mark.parametrize("size", [1, 3, 100])
def test_thinking_is_told_apart(size: int) -> None:
    text = "Hm.<think>\nIs 2 < 3?\n</think>\nYes: 2 <thin."
    thinking = Thinking()
    found = [part for at in range(0, len(text), size) for part in thinking.take(text[at : at + size])]
    found += thinking.finish()
    assert "".join(words for words, thought in found if thought) == "\nIs 2 < 3?\n"
    assert "".join(words for words, thought in found if not thought) == "Hm.\nYes: 2 <thin."


def test_a_template_may_have_opened_the_thinking() -> None:
    thinking = Thinking(begins=True)
    assert thinking.take("I think</think>so") == [("I think", True), ("so", False)]
