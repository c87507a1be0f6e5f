"""What a model found likely at each token of an answer that it wrote, kept in a column beside that answer.

Two shapes are read: this program's own, by numbers of tokens, and that of logged chat completions, by their texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tunesmith_core.datafmt.formats import Chat, Conversation, Layout, Place, PromptCompletion
from tunesmith_core.datafmt.labels import has_label
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence
from tunesmith_core.spec_sections import CHOICE_WORDS

STORED = "logprobs"
"""Role and name of the column."""

KEPT_TOKENS = 16
"""How many of the likeliest tokens are kept at each token of an answer that is written here. Other programs log up to
20. What is beyond has hardly any probability in answers of instruct models."""

LEAST_KEPT = 1e-4
"""Probability below which a token is not kept: most tokens of an answer are all but certain, so files stay small."""

DECIMALS = 3
"""Of a stored log-probability, which is then off by at most 0.05 %."""

ROUNDED = 0.01
"""By how much a log-probability may be above 0."""

STORED_HINT = Sentence(
    "Have a bigger model answer the prompts and keep its probabilities, or teach by example (SFT)."
)

Token = int | bytes
"""By its number, or by its bytes where another program wrote it."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer token by token.

    Attributes:
        text: the answer.
        tokens: of it, with the token that ended it where that is known.
        likeliest: at each of them some tokens with their log-probabilities in nats.
        vocabulary: fingerprint of the vocabulary in which tokens have their numbers, "" where they are bytes.
    """

    text: str
    tokens: tuple[Token, ...]
    likeliest: tuple[tuple[tuple[Token, float], ...], ...]
    vocabulary: str = ""


def stored_column(
    tokens: Iterable[int], likeliest: Iterable[Iterable[tuple[int, float]]], vocabulary: str
) -> dict[str, Any]:  # Any: JSON values
    """Return what this program writes into the column, see StoredAnswer."""
    kept = [list(each) for each in likeliest]
    return {
        "vocabulary": vocabulary,
        "token_ids": list(tokens),
        "top_ids": [[number for number, _ in each] for each in kept],
        "top_logprobs": [[round(value, DECIMALS) for _, value in each] for each in kept],
    }


def with_stored(layout: Layout, rows: Iterable[Mapping[str, Any]], path: str) -> Layout:
    """Return a layout that says which column holds what was found likely.

    Args:
        layout: of the rows.
        rows: the first rows of the file.
        path: of the file, named in errors.

    Raises:
        UserError: `dataset-column-missing` where there is no such column, or the rows hold no answers to questions.
    """
    column = next((name for row in rows for name in row if name.lower() == STORED), None)
    if column is None:
        raise TunesmithError(
            "dataset-column-missing",
            '{path}: the rows don\'t say what a bigger model found likely. There is no column "{column}".',
            hint=STORED_HINT,
            path=path,
            column=STORED,
        )
    if not has_label(layout.format):
        raise TunesmithError(
            "dataset-column-missing",
            "{path}: this objective learns from prompts with responses. The rows are read as: {format}.",
            hint=STORED_HINT,
            path=path,
            format=Sentence(CHOICE_WORDS[layout.format]),
        )
    return replace(layout, columns={**layout.columns, STORED: column})


def stored_answer(
    row: Mapping[str, Any], layout: Layout, conversation: Conversation, place: Place
) -> StoredAnswer:
    """Return what a row says of its last answer, whose text is in the conversation.

    Raises:
        UserError: `dataset-parse-error` where it says nothing, or nothing that can be read.
    """
    column = layout.columns[STORED]
    try:
        value = row[column]
        value = json.loads(value) if isinstance(value, str) else value
        found = _by_number(value) if "token_ids" in value else _by_text(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TunesmithError(
            "dataset-parse-error",
            '{place}, column "{column}": the probabilities of the answer are missing or can\'t be read.',
            hint=STORED_HINT,
            place=place if isinstance(place, str) else place(),
            column=column,
        ) from error
    return replace(found, text=_answer_in(conversation))


def _answer_in(conversation: Conversation) -> str:
    if isinstance(conversation, PromptCompletion):
        return conversation.completion
    assert isinstance(conversation, Chat), "`with_stored` takes no other rows"
    return next(str(each["content"]) for each in reversed(conversation.messages) if each["role"] == "assistant")


def _by_number(value: Mapping[str, Any]) -> StoredAnswer:
    tokens, likeliest = tuple(map(_number, value["token_ids"])), []
    for ids, logprobs in zip(value["top_ids"], value["top_logprobs"], strict=True):
        likeliest.append(tuple(zip(map(_number, ids), map(_logprob, logprobs), strict=True)))
    return _sound(StoredAnswer("", tokens, tuple(likeliest), str(value["vocabulary"])))


def _by_text(value: Mapping[str, Any]) -> StoredAnswer:
    content = value["content"]
    likeliest = (
        tuple((_bytes_of(each), _logprob(each["logprob"])) for each in token["top_logprobs"]) for token in content
    )
    return _sound(StoredAnswer("", tuple(map(_bytes_of, content)), tuple(likeliest)))


def _sound(found: StoredAnswer) -> StoredAnswer:
    if not found.tokens or len(found.tokens) != len(found.likeliest) or not any(found.likeliest):
        raise ValueError("not as many lists of likely tokens as tokens, or none of either")
    return found


def _bytes_of(token: Mapping[str, Any]) -> bytes:
    """Return the bytes of a logged token; its text is not exact where a character takes several tokens."""
    known = token.get("bytes")
    return bytes(known) if known is not None else str(token["token"]).encode()


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not the number of a token")
    return value


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value > ROUNDED:
        raise ValueError("not a log-probability")
    return float(value)
