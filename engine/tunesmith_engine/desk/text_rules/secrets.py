"""Probable passwords and keys. Their values are never repeated in what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tunesmith_core.messages import Message
from tunesmith_engine.desk.sieve import NAMES, TEXT, WORDS, Group
from tunesmith_engine.desk.text_rules.finding import Finding, TextRule

INSTEAD = "[SECRET]"

KINDS = {
    "private": (
        Message("a private key"),
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
    ),
    "aws": (Message("an AWS access key"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "github": (Message("a GitHub token"), r"\bgh[pousr]_[A-Za-z0-9]{30,}\b|\bgithub_pat_[A-Za-z0-9_]{22,}\b"),
    "gitlab": (Message("a GitLab token"), r"\bglpat-[A-Za-z0-9_-]{20,}"),
    "hub": (Message("a Hugging Face token"), r"\bhf_[A-Za-z0-9]{30,}\b"),
    "google": (Message("a Google API key"), r"\bAIza[0-9A-Za-z_-]{35}"),
    "slack": (Message("a Slack token"), r"\bxox[abeoprs]-[0-9A-Za-z-]{16,}"),
    "stripe": (Message("a Stripe key"), r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,}\b"),
    "npm": (Message("an npm token"), r"\bnpm_[A-Za-z0-9]{30,}\b"),
    "service": (Message("an API key"), r"\bsk-[A-Za-z0-9_-]{20,}"),
    "web": (Message("an access token"), r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]*"),
    "assigned": (
        Message("an API key"),
        r"(?i:\b(?:api|secret|access|auth)[_ -]?(?:key|token)\b)[\"']?\s*[:=]\s*[\"']?(?=[A-Za-z_-]*[0-9])"
        r"[A-Za-z0-9_-]{20,}",
    ),
    "password": (
        Message("a password"),
        r"(?i:\b[\w-]{0,40}passw(?:or)?d)[\"']?\s*[:=]\s*[\"']?(?=[^\s\"',;]*[0-9!@#$%^&*])[^\s\"',;]{6,}",
    ),
}
"""What it is, and how it looks."""

_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (_, pattern) in KINDS.items()))


def find_secrets(text: str) -> Iterator[Finding]:
    """Yield what looks like a password or a key."""
    for found in _PATTERN.finditer(text):
        yield Finding(*found.span(), KINDS[found.lastgroup or ""][0], INSTEAD)


LEAST_LETTERS = 20
"""Of a key in one piece, with its beginning; few words of people are so long."""

BEGINNINGS = (
    *("AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AIza"),
    *("xox", "k_live_", "k_test_", "npm_", "sk-", ".eyJ"),
)
KEY_NAMES, PASSWORD_NAMES = ("key:", "token:"), ("passwd:", "password:")
"""Names behind which a value stands, as the view of names has them."""

SECRETS = TextRule(
    "secret",
    ((TEXT, b"-----BEGIN"),),
    find_secrets,
    (
        Group(
            ((WORDS, b"0" * LEAST_LETTERS),),
            (*((TEXT, word.encode()) for word in BEGINNINGS), *((NAMES, word.encode()) for word in KEY_NAMES)),
        ),
        Group(((TEXT, b":"), (TEXT, b"=")), tuple((NAMES, word.encode()) for word in PASSWORD_NAMES)),
    ),
)
