"""JSON from files that anybody may have written, and JSON values as the dataclasses that they were made of."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Iterator
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

MAX_DEPTH = 100
"""Brackets within brackets. Python's own reader ends the process at some depth, which one depends on the machine."""
MAX_VALUES = 1_000_000
"""Of one row of data: a value takes up to a hundred times the memory of its text."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}",')
_TEXT = re.compile(rb'"[^"]*(?:"|\Z)')
_USUAL_DEPTH = 8
_SHORT_CHARACTERS = 65536
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)


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
        values = loads(text, max_values=len(text), unique_names=unique_names)
    except (json.JSONDecodeError, NameTwiceError):
        raise
    except ValueError as error:
        raise ValueError(Message("values are nested too deeply, or a number is too long")) from error
    return _whole(values) if _SURROGATE.search(text) else values


def loads(text: str, max_values: int = MAX_VALUES, *, unique_names: bool = False) -> Any:  # Any: JSON values
    """Return the values of a JSON text that somebody else wrote.

    Raises:
        ValueError: json.JSONDecodeError, or a Message for what exceeds a limit or, with unique_names, is there twice.
    """
    if may_exceed(text) and (problem := excess(text, max_values=max_values)):
        raise ValueError(problem)
    return json.loads(text, object_pairs_hook=_unique if unique_names else None)


def parsed(value: Any) -> Any:  # Any: JSON values
    """Return what a JSON text holds; anything else, and a text that is no JSON, as it is."""
    try:
        return loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def may_exceed(text: str) -> bool:
    """Return False, at little cost, where no value of a JSON text or of a part of one can exceed a limit.

    A part begins outside a text in quotes.
    """
    if len(text) <= _SHORT_CHARACTERS and text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    raw = text.encode("utf-8", "surrogatepass")
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = raw.translate(None, _OTHERS)
    if len(marks) > MAX_VALUES and sum(map(marks.count, b"[{,")) > MAX_VALUES:
        return True
    brackets = _TEXT.sub(b"", marks.replace(b",", b"").replace(b'""', b""))
    for _ in range(_USUAL_DEPTH):
        # Each round takes away the innermost brackets.
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(brackets) <= MAX_DEPTH - _USUAL_DEPTH:
            return False
    return True


def excess(text: str, start: int = 0, max_values: int = MAX_VALUES) -> Message | None:
    """Return which limit the JSON value exceeds that begins at a place of a text, or None."""
    num_values = 0
    for character, depth in _depths(text, start):
        if depth > MAX_DEPTH:
            return Message("brackets are nested too deeply")
        num_values += character in "[{,"
        if num_values > max_values:
            return Message("one row holds more than {max_values:,} values", max_values=max_values)
        if depth <= 0:
            break
    return None


def ends(text: str, start: int) -> bool:
    """Return whether the list, object or text that begins at a place of a text ends in it, well-formed or not."""
    return any(depth <= 0 for _, depth in _depths(text, start))


def _depths(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield brackets, commas and texts in quotes, each with how many brackets are open behind it."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        character = text[token.start()]
        depth += (character in "[{") - (character in "]}")
        yield character, depth


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON values
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NameTwiceError(Message('"{name}" occurs twice', name=shortened(name)))
    return values


def shortened(value: object, most: int = MOST_SHOWN) -> str:
    """Return a value as a text of at most so many letters, which fits into a sentence."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brief(value: Any) -> Any:  # Any: a JSON value
    """Return a value as it is, or shortened to a text where it is long."""
    return value if len(str(value)) <= MOST_SHOWN else shortened(value)


def quoted(value: Any) -> str:  # Any: a JSON value
    """Return a value for a sentence, shortened where it is long: a text in quotes, others as a file has them."""
    return repr(shortened(value)) if isinstance(value, str) else shortened(json.dumps(value, ensure_ascii=False))


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
