"""How an answer is compared with the expected one: which ways suit some data, and what each of them gives.

Exact match and token F1 are those of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250), with each character of a script
without spaces as a token of its own.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunesmith_core.messages import Message

SHORT_TOKENS = 12
MOST_CHOICES, ROWS_PER_CHOICE, MOST_CHOICE_TOKENS = 10, 3, 6

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_TOKEN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_PUNCTUATION = str.maketrans("", "", string.punctuation + "，。！？；：“”‘’（）、")


@dataclass(frozen=True, slots=True)
class Metric:
    """A way to compare.

    Attributes:
        name: for programs.
        reason: why it suits the data.
        score: gives 0 to 1 for an answer and what is expected.
    """

    name: str
    reason: Message
    score: Callable[[str, str], float]


def normalized(text: str) -> str:
    """Return a text in lower case without punctuation, articles and superfluous space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def tokens(text: str) -> list[str]:
    """Return the words of a normalized text."""
    return _TOKEN.findall(normalized(text))


def exact_match(answer: str, expected: str) -> float:
    """Return 1 for the same text."""
    return float(normalized(answer) == normalized(expected))


def token_f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of the shares of words that both have in common."""
    given, wanted = tokens(answer), tokens(expected)
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))


def number_in(text: str) -> float | None:
    """Return the last number of a text, None without one."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def number_match(answer: str, expected: str) -> float:
    """Return 1 where the last numbers are equal."""
    given, wanted = number_in(answer), number_in(expected)
    return float(given is not None and wanted is not None and math.isclose(given, wanted, rel_tol=1e-6, abs_tol=1e-9))


def json_valid(answer: str, _expected: str = "") -> float:
    """Return 1 for text that is JSON."""
    try:
        json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    return 1.0


def json_equal(answer: str, expected: str) -> float:
    """Return 1 for JSON of the same content."""
    try:
        return float(json.loads(answer) == json.loads(expected))
    except (ValueError, RecursionError):
        return 0.0


def chosen(answer: str, expected: str) -> float:
    """Return 1 where an answer begins with the expected choice, and goes on with another word at most."""
    given, wanted = tokens(answer), tokens(expected)
    return float(bool(wanted) and given[: len(wanted)] == wanted)


def metrics_for(expected: Sequence[str]) -> list[Metric]:
    """Return the ways to compare that suit what is expected, the best first."""
    if all(_is_json_record(text) for text in expected):
        reason = Message("every expected answer is a JSON object or list")
        return [Metric("json_equal", reason, json_equal), Metric("json_valid", reason, json_valid)]
    lengths = [len(tokens(text)) for text in expected]
    choices = {normalized(text) for text in expected}
    if all(number_in(text) is not None for text in expected) and max(lengths) <= SHORT_TOKENS:
        reason = Message("every expected answer is short and holds a number")
        return [Metric("number_match", reason, number_match), *_texts(lengths)]
    is_choice = 1 < len(choices) <= MOST_CHOICES and len(choices) * ROWS_PER_CHOICE <= len(expected)
    if is_choice and max(lengths) <= MOST_CHOICE_TOKENS:
        reason = Message("the expected answers are {count} choices", count=len(choices))
        return [Metric("choice", reason, chosen), *_texts(lengths)]
    return _texts(lengths)


def _texts(lengths: Sequence[int]) -> list[Metric]:
    f1 = Metric("token_f1", Message("expected answers are texts"), token_f1)
    if sum(lengths) / len(lengths) > SHORT_TOKENS:
        return [f1]
    return [Metric("exact_match", Message("expected answers are short"), exact_match), f1]


def _is_json_record(text: str) -> bool:
    return text.strip()[:1] in ("{", "[") and json_valid(text) == 1.0
