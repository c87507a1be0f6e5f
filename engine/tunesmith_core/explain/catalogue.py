"""The versioned catalogue of causes, as data: signatures in `catalogue.json`, words and actions in `repairs.json`.

A signature is written on a mechanism (an error number, a symbol of a library, the shape of a message), not on the
sentences of one log. Its fields:

- `key`: words in lower case, one of which must occur at all; they make the search quick.
- `match`: a regular expression; case is ignored, a space stands for any white space, line breaks included,
  ` ?` for none too.
- `weight`: how surely it names the root cause; a cause outweighs its consequences.
- `place`: "exception" (only in messages of exceptions), "frame" (also in shown source and file names).
- `with`: an expression that must occur anywhere in the log.
- `without`: an expression that must not occur near, in the same traceback.
- `soft`: a mere warning, which an unexplained exception after it or a training that ended well makes void.
- `variant`: the form of the cause, which selects the words in `repairs.json`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tunesmith_core.messages import Message

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Signature:
    """One way in which a cause shows itself; see the module's docstring for the fields."""

    code: str
    key: tuple[str, ...]
    match: str
    weight: int
    place: str = ""
    needed: str = ""
    forbidden: str = ""
    soft: bool = False
    variant: str = ""


@cache
def pattern(expression: str) -> re.Pattern[str]:
    """Return a compiled expression of the catalogue."""
    spaced = expression.replace(" ?", r"\s*").replace(" ", r"\s+")
    return re.compile(spaced, re.IGNORECASE | re.MULTILINE)


@cache
def _data(name: str) -> dict[str, Any]:  # Any: JSON values
    data: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return data


@cache
def version() -> int:
    """The version of the catalogue; it grows whenever an answer may change."""
    return int(_data("catalogue.json")["version"])


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures, in the order of the file."""
    return tuple(
        Signature(
            code,
            tuple([entry["key"]] if isinstance(entry["key"], str) else entry["key"]),
            entry["match"],
            entry["weight"],
            entry.get("place", ""),
            entry.get("with", ""),
            entry.get("without", ""),
            entry.get("soft", False),
            entry.get("variant", ""),
        )
        for code, entries in _data("catalogue.json")["causes"].items()
        for entry in entries
    )


def repairs_of_all() -> dict[str, Any]:  # Any: JSON values
    """What helps, by cause and its form: words and the names of actions."""
    return _data("repairs.json")


def actions_against(code: str) -> tuple[str, ...]:
    """Return the names of the actions that help against a cause in general; none for one without repairs."""
    return tuple(repairs_of_all().get(code, {}).get("general", {}).get("actions", ()))


def repair(code: str, variant: str) -> tuple[Message, tuple[str, ...]]:
    """Return what helps against a cause, in words, and the names of the actions that do it.

    Args:
        code: of the cause.
        variant: its form, "" for the general one.
    """
    repairs = repairs_of_all()[code]
    chosen = repairs.get(variant, repairs["general"])
    return Message(chosen["words"]), tuple(chosen.get("actions", repairs["general"]["actions"]))
