"""Long texts as several examples: cut where a heading, a paragraph or a sentence ends, no token lost or repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tunesmith_engine.data.example import Example
from tunesmith_engine.data.tokenising import Tokenised

LEAST_TOKENS = 2
"""Of a part: nothing predicts the first token, so one alone would teach nothing."""

_SEEN_BEHIND = 12
"""Characters behind a border that say of which kind it is."""

BORDERS = tuple(
    map(
        re.compile,
        (
            r"(\n\s*?)(?= {0,3}#{1,6}\s|[ \t]*<h[1-6][\s>])",
            r"(\n[ \t]*\n\s*)",
            "(?:[.!?\u2026][\"')\\]\u2019\u201d\u00bb]*(?=\\s)|[\u3002\uff01\uff1f\u2026][\u300d\u300f\u2019\u201d\uff09]*)(\\s*)",
            r"(\n\s*)",
            r"(\s+)",
        ),
    )
)
"""The best first: before a heading of Markdown or HTML, a blank line, the end of a sentence, of a line, of a word.

The group is the space between both sides, in which the cut may lie.
"""


def parts(whole: Tokenised, limit: int) -> list[Tokenised]:
    """Return a text in parts of at most so many tokens, of which each is at least half as long but the last.

    Args:
        whole: the text as tokens.
        limit: most tokens of a part, at least 4.
    """
    num_tokens = len(whole.example.input_ids)
    if num_tokens <= limit:
        return [whole]
    cuts = [0, *_cuts(whole, limit), num_tokens]
    return [_part(whole, begin, end) for begin, end in pairwise(cuts)]


def _cuts(whole: Tokenised, limit: int) -> Iterator[int]:
    begin, num_tokens = 0, len(whole.example.input_ids)
    while num_tokens - begin > limit:
        begin = _best(whole, begin + limit // 2, min(begin + limit, num_tokens - LEAST_TOKENS))
        yield begin


def _best(whole: Tokenised, first: int, last: int) -> int:
    """Return before which token of first to last a text is cut best: the last border of the best kind."""
    ends, text = whole.ends, whole.text
    lowest, highest = int(ends[first - 1]), int(ends[last - 1])
    for border in BORDERS:
        for found in reversed(list(border.finditer(text, lowest, highest + _SEEN_BEHIND))):
            place = min(last, int(np.searchsorted(ends, found.end(1), side="right")))
            if place >= first and ends[place - 1] >= found.start(1) and _between_characters(whole, place):
                return place
    return next((place for place in range(last, first, -1) if _between_characters(whole, place)), last)


def _between_characters(whole: Tokenised, place: int) -> bool:
    """Return whether no character has tokens on both sides."""
    return bool(whole.ends[place] > whole.ends[place - 1])


def _part(whole: Tokenised, begin: int, end: int) -> Tokenised:
    example = Example(whole.example.input_ids[begin:end].copy(), whole.example.labels[begin:end].copy())
    starts_at = int(whole.ends[begin - 1]) if begin else 0
    text = whole.text[starts_at : int(whole.ends[end - 1])]
    return Tokenised(example, text, whole.ends[begin:end] - starts_at, whole.question, is_text=True)
