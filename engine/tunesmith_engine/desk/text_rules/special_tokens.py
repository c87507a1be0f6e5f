"""What looks like a special token in a text: training reads it as plain text, see `tunesmith_engine.data.literals`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_engine.desk.sieve import TEXT, Mark
from tunesmith_engine.desk.text_rules.finding import Finding, TextRule

USUAL = (
    r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>|<(?:bos|eos|pad|unk|mask)>|<(?:start|end)_of_turn>"
    r"|\[/?INST\]|<</?SYS>>|\[(?:BOS|EOS|PAD|UNK|MASK|CLS|SEP)\]"
)
"""Special tokens of well-known families."""


def special_token_rule(tokens: Iterable[str]) -> TextRule:
    """Return the rule for those of a tokenizer and of well-known families."""
    own = sorted({token for token in tokens if len(token) > 1}, key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, own), USUAL]))
    firsts = {"<", "[", *(token[0] for token in own)}
    marks: tuple[Mark, ...] = tuple((TEXT, first.encode()) for first in sorted(firsts))

    def find(text: str) -> Iterator[Finding]:
        for found in pattern.finditer(text):
            word = shortened(found.group(), 40)
            yield Finding(*found.span(), Message("the special token {token}", token=word), "")

    return TextRule("special-token-in-text", marks, find)
