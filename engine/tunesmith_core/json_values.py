"""JSON values as the dataclasses that they were made of by `dataclasses.asdict`."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any


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
