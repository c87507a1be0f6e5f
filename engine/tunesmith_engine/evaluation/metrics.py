"""How an answer is compared with the expected one: which ways suit some data, and what each of them gives.

Exact match and token F1 are those of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250), with each character of a script
without spaces as a token of its own. ROUGE-L gives for English what the package rouge-score 0.1.2 gives. That package
drops all letters but a to z, so a Chinese answer scores 0 whatever it says; here the words of every script count. chrF
is sacrebleu's.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unicodedata import category

from tunesmith_core.evaluations import RIGHT_OR_WRONG
from tunesmith_core.messages import Message
from tunesmith_engine.evaluation.numbers import number_match, readings
from tunesmith_engine.evaluation.words import TOKEN, chosen, holds, is_article, normalized, says, tokens

SHORT_TOKENS, NAME_TOKENS = 12, 4
MOST_CHOICES, ROWS_PER_CHOICE, MOST_CHOICE_TOKENS = 10, 3, 6

_SPACELESS = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Chinese, Japanese, Thai, Lao, Burmese and Khmer: scripts without spaces between words."""

_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f")


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


def rouge_l(answer: str, expected: str) -> float:
    """Return the F1 of the longest common subsequence of words (Lin 2004), in lower case and without punctuation."""
    given, wanted = _words(answer), _words(expected)
    common = _common_length(given, wanted)
    return 2 * common / (len(given) + len(wanted)) if common else 0.0


def _words(text: str) -> list[str]:
    """Return the words of letters, their marks and digits."""
    return TOKEN.findall("".join(each if category(each)[0] in "LMN" else " " for each in text.lower()))


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, a whole row of its table in one number (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    all_places = (1 << len(first)) - 1
    free = all_places
    for word in second:
        met = free & places.get(word, 0)
        free = (free + met) | (free - met)
    return len(first) - (free & all_places).bit_count()


def chrf(answer: str, expected: str) -> float:
    """Return the F2 of sequences of one to six characters (Popović 2015), which needs no words."""
    return float(_chrf().sentence_score(answer, [expected]).score) / 100


@cache
def _chrf() -> Any:  # Any: sacrebleu's metric
    # A tenth of a second of imports, for free texts only.
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


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


def alone(score: Callable[[str, str], float], choices: Collection[str]) -> Callable[[str, str], float]:
    """Return a way to compare by which an answer that holds another of the choices as well is wrong."""

    def judged(answer: str, expected: str) -> float:
        others = (choice for choice in choices if not is_article(choice) and not holds(expected, choice))
        return 0.0 if any(holds(answer, choice) for choice in others) else score(answer, expected)

    return judged


def metrics_for(expected: Sequence[str]) -> list[Metric]:
    """Return the ways to compare that suit what is expected, the best first."""
    if all(_is_json_record(text) for text in expected):
        reason = Message("every expected answer is a JSON object or list")
        return [Metric("json_equal", reason, json_equal), Metric("json_valid", reason, json_valid)]
    lengths = [len(tokens(text)) for text in expected]
    texts = _for_texts(expected, sum(lengths) / len(lengths) <= SHORT_TOKENS)
    choices = {normalized(text) for text in expected}
    if all(readings(text) for text in expected) and max(lengths) <= SHORT_TOKENS:
        reason = Message("every expected answer is short and holds a number")
        return [Metric("number_match", reason, number_match), *texts]
    is_choice = 1 < len(choices) <= MOST_CHOICES and len(choices) * ROWS_PER_CHOICE <= len(expected)
    if is_choice and max(lengths) <= MOST_CHOICE_TOKENS:
        reason = Message("the expected answers are {count} choices", count=len(choices))
        return [Metric("choice", reason, alone(chosen, choices)), *texts]
    return texts


def right_or_wrong(expected: Sequence[str]) -> Callable[[str, str], float] | None:
    """Return what gives 1 for a right answer and 0 for a wrong one, None where that is a matter of wording."""
    if not expected:
        return None
    best = metrics_for(expected)[0]
    if best.name in RIGHT_OR_WRONG:
        return best.score
    are_sentences = 2 * sum(map(_is_sentence, expected)) >= len(expected)
    if are_sentences or max(len(tokens(text)) for text in expected) > NAME_TOKENS:
        return None
    choices = {normalized(text) for text in expected}
    are_choices = len(choices) < len(expected) and len(choices) <= MOST_CHOICES
    return alone(says, choices) if are_choices else says


def _is_sentence(text: str) -> bool:
    """Return whether several words end like a sentence, which another one may say as well."""
    return len(tokens(text)) > 1 and text.rstrip("\"'\u201d\u2019\u00bb)").endswith(_ENDS)


def _for_texts(expected: Sequence[str], are_short: bool) -> list[Metric]:
    exact = Metric("exact_match", Message("expected answers are short"), exact_match)
    f1 = Metric("token_f1", Message("expected answers are texts"), token_f1)
    rouge = Metric("rouge_l", Message("expected answers are long texts"), rouge_l)
    if _is_spaceless("".join(expected)):
        # Without spaces, what F1 and ROUGE-L take for words are single characters.
        by_characters = Metric("chrf", Message("expected answers have no spaces between words"), chrf)
        return [exact, by_characters] if are_short else [by_characters, rouge]
    return [exact, f1] if are_short else [rouge, Metric("chrf", rouge.reason, chrf), f1]


def _is_spaceless(text: str) -> bool:
    letters = "".join(filter(str.isalpha, text))
    return 2 * len(_SPACELESS.findall(letters)) > len(letters)


def _is_json_record(text: str) -> bool:
    return text.strip()[:1] in ("{", "[") and json_valid(text) == 1.0
