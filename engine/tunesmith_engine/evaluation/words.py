"""The words of an answer, and whether those that are expected stand in it: anywhere, or as what it says."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
EAST_ASIAN = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
TOKEN = re.compile(rf"[{EAST_ASIAN}]|[^\s{EAST_ASIAN}]+")
_PUNCTUATION = str.maketrans("", "", string.punctuation + "，。！？；：“”‘’（）、")

_SENTENCE = re.compile(r"[!?。！？\n]+|(?<=\w\w\w)\.(?=\s|$)")
"""Where a sentence ends; not after St. and the like."""

_CLAUSE = re.compile(r"[,;:](?=\s|$)|[，；：、（）]|\s[(–—-]")
_TURNS = frozenset(["but", "instead", "rather", "and", "than", "sondern", "aber", "und", "als", "但", "却", "而"])
"""From here on a clause says something else: not Rome but Paris."""

_NEGATIONS = frozenset(
    "not no never neither nor cannot cant isnt arent wasnt werent dont doesnt didnt wont wrong incorrect false "
    "nicht nein nie niemals weder kein keine keinen keinem keiner keines falsch".split()
)
_SPACELESS_NEGATION = re.compile("不(?:是|在|叫|为|会|能|对|属)|没有|并非|错误|非$")
"""Whole words: 不错 and 非常 deny nothing."""


def normalized(text: str) -> str:
    """Return a text in lower case without punctuation, articles and superfluous space; an article alone stays."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join((_ARTICLES.sub(" ", plain).strip() or plain).split())


def tokens(text: str) -> list[str]:
    """Return the words of a normalized text."""
    return TOKEN.findall(normalized(text))


def is_article(text: str) -> bool:
    """Return whether a text is a word that says nothing elsewhere, such as the A of A, B, C and D."""
    return _ARTICLES.fullmatch(normalized(text)) is not None


def _is_at_an_end(answer: str, expected: str) -> float:
    given, wanted = (text.translate(_PUNCTUATION).split() for text in (answer, expected))
    return float(wanted in (given[:1], given[-1:]))


def chosen(answer: str, expected: str) -> float:
    """Return 1 where an answer begins with the expected choice; an article may also be its last word."""
    if is_article(expected):
        return _is_at_an_end(answer, expected)
    given, wanted = tokens(answer), tokens(expected)
    return float(bool(wanted) and given[: len(wanted)] == wanted)


def holds(answer: str, expected: str) -> float:
    """Return 1 where the expected words stand in an answer, one after the other; an article first or last."""
    if is_article(expected):
        return _is_at_an_end(answer, expected)
    return float(bool(_places(tokens(answer), tokens(expected))))


def says(answer: str, expected: str) -> float:
    """Return 1 where an answer says what is expected, not only mentions it.

    The expected words stand whole in its first sentence, or in its last one as after some reasoning, and nothing denies
    them in their clause: "not Paris", "Paris ist es nicht" and "不是巴黎" are wrong, "Paris, not Rome" is right.
    """
    if is_article(expected):
        return _is_at_an_end(answer, expected)
    sentences = [each for each in _SENTENCE.split(answer) if tokens(each)]
    return float(any(_affirms(each, tokens(expected)) for each in (*sentences[:1], *sentences[-1:])))


def _affirms(sentence: str, wanted: list[str]) -> bool:
    words: list[str] = []
    ends: set[int] = set()
    for clause in _CLAUSE.split(sentence):
        words += tokens(clause)
        ends.add(len(words))
    for place in _places(words, wanted):
        first, last = place, place + len(wanted)
        while first > 0 and first not in ends and words[first - 1] not in _TURNS:
            first -= 1
        while last < len(words) and last not in ends and words[last] not in _TURNS:
            last += 1
        if not _denies(words[first:place]) and not _denies(words[place + len(wanted) : last]):
            return True
    return False


def _denies(words: Sequence[str]) -> bool:
    return not _NEGATIONS.isdisjoint(words) or _SPACELESS_NEGATION.search("".join(words)) is not None


def _places(words: list[str], wanted: list[str]) -> list[int]:
    """Return where some words stand in a row."""
    places = range(len(words) - len(wanted) + 1) if wanted else ()
    return [place for place in places if words[place : place + len(wanted)] == wanted]
