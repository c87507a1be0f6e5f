"""JSON from files that anybody may have written, and JSON values as the dataclasses that they were made of."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from typing import Any

from tunesmith_core.messages import Message

MOST = 1 << 53
"""Whole numbers up to here pass through JSON, SQLite and charts unchanged."""
LARGEST = 1e39
"""What a measured number may come to: more than 32 bits hold, and squares of it are still finite."""
MOST_SHOWN = 80
"""Letters of a foreign value that a message repeats."""
LATEST = 1e11
"""Seconds since 1970; no clock shows a later time, and no calendar takes it."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NameTwiceError(ValueError):
    """A JSON object has two values of one name; its argument is a Message."""


def parse(content: bytes, *, unique_names: bool = False) -> Any:  # Any: JSON values
    """Return the values of a JSON text; halves of characters in it are replaced, for no file or window takes them.

    Args:
        content: UTF-8.
        unique_names: whether an object with two values of one name is refused; else the last one counts.

    Raises:
        ValueError: json.JSONDecodeError, UnicodeDecodeError, or a Message for what is too deep, too long or there
            twice.
    """
    text = content.decode("utf-8-sig")
    try:
        values = json.loads(text, object_pairs_hook=_unique if unique_names else None)
        return _whole(values) if _SURROGATE.search(text) else values
    except (json.JSONDecodeError, NameTwiceError):
        raise
    except (RecursionError, ValueError) as error:
        raise ValueError(Message("values are nested too deeply, or a number is too long")) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON values
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NameTwiceError(Message('"{name}" occurs twice', name=shortened(name)))
    return values


def shortened(value: object) -> str:
    """Return a value as a text that fits into a sentence."""
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def brief(value: Any) -> Any:  # Any: a JSON value
    """Return a value as it is, or shortened to a text where it is long."""
    return value if len(str(value)) <= MOST_SHOWN else shortened(value)


def _whole(value: Any) -> Any:  # Any: JSON values
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return {_whole(name): _whole(each) for name, each in value.items()} if isinstance(value, dict) else value


def is_number(value: object, most: float = LARGEST) -> bool:
    """Return whether a JSON value is a number that can be shown and drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= most


def is_count(value: object) -> bool:
    """Return whether a JSON value counts steps, bytes or rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def is_time(value: object) -> bool:
    """Return whether a JSON value is a time in seconds since 1970."""
    return is_number(value, LATEST) and typing.cast(float, value) >= 0


def is_text(value: object) -> bool:
    """Return whether a JSON value is a text."""
    return isinstance(value, str)


def read(kind: Any, value: Any) -> Any:  # Any: a type annotation, and a JSON value or what it stands for
    """Return what a JSON value stands for; fields of a newer version are ignored.

    Raises:
        TypeError, ValueError, AttributeError: when the value doesn't fit the annotation.
    """
    if value is None:
        return None
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = {field.name for field in dataclasses.fields(kind)}
        values = {name: read(hints[name], item) for name, item in value.items() if name in known}
        return typing.cast(type, kind)(**values)
    if typing.get_origin(kind) is tuple:
        return tuple(read(typing.get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind in (str, int, float) and not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value
