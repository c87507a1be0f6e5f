"""Rules about what stands in a text: each finds its places and says what could stand there instead."""

from __future__ import annotations

from collections.abc import Iterable

from tunesmith_engine.desk.text_rules.finding import Finding, TextRule
from tunesmith_engine.desk.text_rules.garbled import GARBLED
from tunesmith_engine.desk.text_rules.html import HTML
from tunesmith_engine.desk.text_rules.personal import PERSONAL
from tunesmith_engine.desk.text_rules.secrets import SECRETS
from tunesmith_engine.desk.text_rules.special_tokens import special_token_rule

__all__ = ["Finding", "TextRule", "text_rules"]


def text_rules(special_tokens: Iterable[str] = ()) -> tuple[TextRule, ...]:
    """Return the rules, with the special tokens of a tokenizer beside those of well-known families."""
    return SECRETS, PERSONAL, GARBLED, HTML, special_token_rule(special_tokens)
