"""The vocabulary of a tokenizer, and what is said about one that llama.cpp does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunesmith_core.errors import TunesmithError

Values = dict[str, Any]  # Any: JSON values
SPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by number, with what each is."""

    tokens: list[str]
    types: list[int]


def refused(reason: str) -> TunesmithError:
    """Return the error about a tokenizer that llama.cpp does not have."""
    return TunesmithError(
        "export-unsupported",
        "The tokenizer can't be exported as GGUF: {reason}.",
        hint="Export the merged model instead.",
        reason=reason,
    )
