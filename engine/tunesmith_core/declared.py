"""Declared fields: a dataclass field that knows its label, meaning, unit and range.

One declaration serves validation, the window's list of all settings, the command line's messages and the documentation.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tunesmith_core.json_values import quoted, shortened
from tunesmith_core.messages import Message

METADATA_KEY = "tunesmith"

LONG_NUMBER = 10_000
"""From here on, digits are grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is known about a field beside its type and default.

    Attributes:
        label: short name for a form.
        meaning: one sentence for a person.
        unit: "tokens", "steps", "%", "" for a plain number or text.
        minimum, maximum: inclusive range of a number, None where open.
        above: exclusive lower bound of a number, None where there is none.
        choices: allowed texts; empty where any text will do.
        rule: says what is wrong with a text, without repeating it, or returns None; None where any text will do.
        effect: what a higher value does to memory, quality or speed; "" where nothing is to say.
        zero: what 0 stands for, where that is no amount.
        unset: what a number that is not set stands for.
        takes_numbers: whether whole numbers in a list of texts are read as texts.
    """

    label: str
    meaning: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    rule: Callable[[str], str | None] | None = None
    effect: str = ""
    zero: str = ""
    unset: str = ""
    takes_numbers: bool = False


def declared(default: Any, **declaration: Any) -> Any:  # Any: dataclasses.field has no useful type either
    """Return a dataclass field with a default and its Declaration."""
    metadata = {METADATA_KEY: Declaration(**declaration)}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declaration_of(field: dataclasses.Field[Any]) -> Declaration | None:
    """Return the Declaration of a dataclass field, or None for a field that holds a section."""
    return field.metadata.get(METADATA_KEY)


def get_field(section: object, name: str) -> Any:
    """Return a field of a section by its name, such as "rank" or "sources[0].path"."""
    holder, last = _holder(section, name)
    return getattr(holder, last)


def set_field(section: object, name: str, value: object) -> None:
    """Set a field of a section by its name, such as "rank" or "sources[0].path"."""
    holder, last = _holder(section, name)
    setattr(holder, last, value)


def _holder(section: object, name: str) -> tuple[object, str]:
    entry, _, last = name.rpartition(".")
    if not entry:
        return section, last
    listed, _, number = entry.rstrip("]").partition("[")
    return getattr(section, listed)[int(number)], last


def type_problem(value: object, annotation: object) -> str | None:
    """Say what is wrong with the type of a JSON value, or return None.

    Whole numbers pass as decimal numbers; booleans pass only as booleans.
    """
    if isinstance(annotation, types.UnionType):
        problems = [type_problem(value, option) for option in typing.get_args(annotation)]
        return None if None in problems else reduce(_either, filter(None, problems))
    if annotation is type(None):
        return None if value is None else "null"
    origin = typing.get_origin(annotation)
    if origin in (list, tuple):
        (item, *_) = typing.get_args(annotation)
        good = isinstance(value, list) and all(type_problem(entry, item) is None for entry in value)
        return None if good else Message("a list of texts") if item is str else Message("a list")
    if origin is dict:
        good = isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())
        return None if good else Message("an object of texts")
    if annotation is float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif annotation is int:
        good = isinstance(value, int) and not isinstance(value, bool)
    else:
        good = isinstance(value, annotation)  # type: ignore[arg-type]
    return None if good else _word(annotation)


def _either(first: str, second: str) -> Message:
    return Message("{first} or {second}", first=first, second=second)


def _word(annotation: object) -> str:
    words = {
        int: Message("a whole number"),
        float: Message("a number"),
        bool: Message("true or false"),
        str: Message("a text"),
    }
    return words.get(annotation, str(annotation))  # type: ignore[call-overload, no-any-return]


def value_problem(value: object, declaration: Declaration) -> str | None:
    """Say what is wrong with a value of the right type, or return None."""
    if any("\0" in text for text in _texts(value)):
        # No path, no terminal and no library takes it.
        return Message("must not contain a NUL character")
    if isinstance(value, str) and declaration.choices and value not in declaration.choices:
        return Message("must be one of {choices}", choices=", ".join(declaration.choices))
    if isinstance(value, str) and declaration.rule:
        return declaration.rule(value)
    if isinstance(value, list) and declaration.rule:
        return next(filter(None, map(declaration.rule, value)), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # Also false for NaN, and for a whole number that no decimal number holds.
    if not abs(value) <= sys.float_info.max:
        return Message("must be a finite number")
    if declaration.above is not None and value <= declaration.above:
        return Message("must be above {limit}", limit=_number(declaration.above))
    if declaration.minimum is not None and value < declaration.minimum:
        return Message("must be at least {limit}", limit=_number(declaration.minimum))
    if declaration.maximum is not None and value > declaration.maximum:
        return Message("must be at most {limit}", limit=_number(declaration.maximum))
    return None


def _number(limit: float) -> str:
    """Return a bound as people write it: 0.5, 4096, 1,048,576."""
    return f"{limit:,.0f}" if limit == int(limit) and abs(limit) >= LONG_NUMBER else f"{limit:g}"


def _texts(value: object) -> Iterable[str]:
    """Return the texts in a value of a field."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong with one field: its dotted path and a phrase such as "must be at least 1"."""

    path: str
    problem: str

    @property
    def message(self) -> Message:
        """Path and phrase as one sentence."""
        return Message("{path} {problem}", path=self.path, problem=Message(self.problem))

    def __str__(self) -> str:
        return str(self.message)


def _unknown(name: str, known: Iterable[str]) -> str:
    """Say that there is no such setting, and which one was probably meant, or which ones there are."""
    alike = difflib.get_close_matches(shortened(name), known, n=1)
    if not alike:
        return Message("is not a setting of this version. The settings here are: {names}", names=", ".join(known))
    return Message("is not a setting of this version. Did you mean {name}?", name=alike[0])


def read_section(kind: type[Any], values: object, prefix: str, problems: list[FieldProblem]) -> Any:
    """Build a dataclass of declared fields from JSON values, collecting every problem instead of stopping at one.

    Fields that are absent take their default; fields of a wrong value take their default too and are reported.
    """
    if not isinstance(values, dict):
        problems.append(FieldProblem(prefix, "must be an object"))
        return kind()
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in dataclasses.fields(kind)}
    problems.extend(
        FieldProblem(f"{prefix}.{shortened(name)}", _unknown(name, known)) for name in values if name not in known
    )
    arguments: dict[str, Any] = {}
    for name, field in known.items():
        if name not in values:
            continue
        value, declaration = values[name], declaration_of(field)
        if declaration is None:
            arguments[name] = _read_list(_entry_kind(hints[name]), value, f"{prefix}.{name}", problems)
            continue
        if declaration.takes_numbers and isinstance(value, list):
            value = [str(entry) if type_problem(entry, int) is None else entry for entry in value]
        wanted = type_problem(value, hints[name])
        problem = (
            Message("must be {wanted}, not {value}", wanted=wanted, value=quoted(value))
            if wanted
            else value_problem(value, declaration)
        )
        if problem:
            problems.append(FieldProblem(f"{prefix}.{name}", problem))
        else:
            arguments[name] = float(value) if hints[name] is float else value
    return kind(**arguments)


def _entry_kind(annotation: object) -> type[Any]:
    """Return the dataclass whose instances a list holds; a field without declaration is such a list."""
    (kind,) = typing.get_args(annotation)
    return kind  # type: ignore[no-any-return]


def _read_list(kind: type[Any], values: object, path: str, problems: list[FieldProblem]) -> list[Any]:
    if isinstance(values, list) and values:
        return [read_section(kind, entry, f"{path}[{number}]", problems) for number, entry in enumerate(values)]
    problems.append(FieldProblem(path, "must be a list of at least one"))
    return [kind()]


def iter_declarations(kind: type[Any]) -> Iterator[tuple[str, object, object, Declaration]]:
    """Yield name, type, default and Declaration of each declared field of a dataclass; of a list, its first entry's."""
    hints = typing.get_type_hints(kind)
    default = kind()
    for field in dataclasses.fields(kind):
        declaration = declaration_of(field)
        if declaration is not None:
            yield field.name, hints[field.name], getattr(default, field.name), declaration
        elif typing.get_origin(hints[field.name]) is list:
            for name, hint, first, known in iter_declarations(_entry_kind(hints[field.name])):
                yield f"{field.name}[0].{name}", hint, first, known
