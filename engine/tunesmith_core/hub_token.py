"""The access token of a model hub: where it comes from, and who gets it.

It is in no file of ours. A child process that talks to a hub gets it in its variables; no other process does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith_core import redact
from tunesmith_core.messages import Message

TOKEN_VARIABLE = "HF_TOKEN"
MOST_TOKEN_CHARS = 1000

Source = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Found:
    """A token: where it is in words, and what gave it. The token itself is shown nowhere."""

    token: str = field(repr=False)
    place: Message
    source: Source


_sources: list[tuple[Source, Callable[[], str]]] = []
"""Asked in turn; the window adds the system's keyring, for which core has no library."""


def add_source(source: Source, name: Callable[[], str]) -> None:
    """Have a further place asked for the token.

    Args:
        source: returns "" where it has none.
        name: returns what the place is called.
    """
    _sources.append((source, name))


def token() -> str:
    """Return the token, "" where there is none."""
    place = found()
    return place.token if place else ""


def found() -> Found | None:
    """Return the token of HF_TOKEN, of an added source, or of huggingface_hub's own log-in."""
    for source, name in ((_of_variable, _variable_name), *_sources, (_logged_in, _log_in_name)):
        if text := source().strip():
            redact.note_secret(text)
            return Found(text, _place(source, name()), source)
    return None


def _place(source: Source, name: str) -> Message:
    if source is _of_variable:
        return Message("It is in the variable {name}.", name=name)
    if source is _logged_in:
        return Message("It is the one of huggingface_hub's log-in, in {path}.", path=name)
    return Message("It is stored in {keyring}.", keyring=name)


def _variable_name() -> str:
    return TOKEN_VARIABLE


def _log_in_name() -> str:
    return str(_log_in_path())


def _of_variable() -> str:
    return os.environ.get(TOKEN_VARIABLE, "")


def variables() -> dict[str, str]:
    """Return what to add to the variables of a child process that talks to a hub."""
    text = token()
    return {TOKEN_VARIABLE: text} if text else {}


def _log_in_path() -> Path:
    own = os.environ.get("HF_TOKEN_PATH")
    return Path(own) if own else hub_home() / "token"


def _logged_in() -> str:
    """Return the token that `hf auth login` left."""
    try:
        with _log_in_path().open(encoding="utf-8") as file:
            return file.read(MOST_TOKEN_CHARS)
    except (OSError, ValueError, RuntimeError):
        return ""


def hub_home() -> Path:
    """Return huggingface_hub's folder of this person. Raises RuntimeError for a person without a home."""
    if home := os.environ.get("HF_HOME"):
        return Path(home)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "huggingface"
