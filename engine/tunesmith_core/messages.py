"""Sentences for people: a template and its values, said in any language at the edge (window, command line).

A `Message` is the English sentence and passes for a plain string everywhere; what it was made of travels with it
through journals and answers (`packed`, `restored`), so that the edge can look its template up in the language of the
person (`said`). The translations are compiled from the window's catalogue by `tunesmith_gui.i18n_build`.
"""

from __future__ import annotations

import ctypes
import json
import locale
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "translations"
TEMPLATES = "templates"
"""Key beside the fields of a JSON object, under which stands what its messages were made of."""

_language = {"": ""}


class Message(str):
    """A sentence that can be said in any language.

    Attributes:
        template: English, with the names of values in braces, as `str.format` has them; the key of its translations.
        values: by name; numbers, text, or messages themselves.
    """

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, Any]  # Any: JSON values

    def __new__(cls, template: str, /, **values: object) -> Message:
        """Fill a template; one without values is taken as it is, braces and all, and a message stays what it is."""
        if isinstance(template, Message):
            return template
        kept = {name: value if isinstance(value, (str, int, float)) else str(value) for name, value in values.items()}
        return cls._made(template.format(**kept) if kept else template, template, kept)

    @classmethod
    def _made(cls, text: str, template: str, values: Mapping[str, Any]) -> Message:  # Any: JSON values
        self = super().__new__(cls, text)
        self.template, self.values = template, values
        return self


class MessageError(Exception):
    """A failure told by a message, for the errors that never leave their package."""

    def __init__(self, template: str, /, **values: object) -> None:
        """Take a template and its values, or a message that is made already."""
        self.message = Message(template, **values)
        super().__init__(self.message)


LISTED = Message(", ")
"""Between the words of a list."""


def joined(parts: Iterable[str], separator: str = " ") -> Message:
    """Return several texts, each of which keeps its own translation, as the separator does, as one message."""
    values = {f"part_{number}": part for number, part in enumerate(parts, 1)}
    template = "{separator}".join(f"{{{name}}}" for name in values)
    return Message(template, separator=separator, **values)


def use_language(name: str) -> None:
    """Say everything in a language from now on: "zh_CN", or "en" for the texts as they are."""
    _language[""] = name


def language() -> str:
    """Return the language in force."""
    return _language[""] or "en"


def system_language() -> str:
    """Return the language that the environment of this process asks for, else that of Windows."""
    names = ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG")
    wanted = next((os.environ[name] for name in names if os.environ.get(name)), "") or _windows_language()
    return "zh_CN" if wanted.startswith("zh") else "en"


def _windows_language() -> str:
    """Return the language that Windows shows itself in, such as "zh_CN"; "" elsewhere."""
    if sys.platform != "win32":
        return ""
    identifier = ctypes.windll.kernel32.GetUserDefaultUILanguage()
    return locale.windows_locale.get(identifier, "")


def said(text: str, language_name: str | None = None) -> str:
    """Return a text in the language in force, or in another; English where there is no translation."""
    table = _table(language_name or language())
    if not isinstance(text, Message):
        return table.get(text, text)
    # What has no translation itself may hold messages that have one.
    template = table.get(text.template, text.template)
    values = {
        name: said(value, language_name) if isinstance(value, Message) else value for name, value in text.values.items()
    }
    try:
        return template.format(**values) if values else template
    except (LookupError, ValueError, TypeError, AttributeError):
        # Written by another version, whose template had other values.
        return str(text)


FOREIGN_WORDS = (
    Message("Permission denied"),
    Message("No such file or directory"),
    Message("Is a directory"),
    Message("Not a directory"),
    Message("File exists"),
    Message("Read-only file system"),
    Message("No space left on device"),
    Message("Input/output error"),
    Message("Not an ordinary file"),
    Message("Too many levels of symbolic links"),
    Message("usage: "),
    Message("positional arguments"),
    Message("options"),
    Message("show this help message and exit"),
    Message("show program's version number and exit"),
    Message("the following arguments are required: %s"),
    Message("unrecognized arguments: %s"),
    Message("argument %(argument_name)s: %(message)s"),
    Message("invalid choice: %(value)r (choose from %(choices)s)"),
    Message("invalid %(type)s value: %(value)r"),
    Message("expected one argument"),
    Message("expected at least one argument"),
    Message("not allowed with argument %s"),
    Message("one of the arguments %s is required"),
    Message("ambiguous option: %(option)s could match %(matches)s"),
)
"""What the system and Python's reader of arguments say inside our messages, listed for the translators."""

_JSON_WORDS = {
    "Expecting value": Message("a value is missing"),
    "Expecting property name enclosed in double quotes": Message("a name in double quotes is missing"),
    "Expecting ',' delimiter": Message("a comma or a closing bracket is missing"),
    "Expecting ':' delimiter": Message("a colon is missing"),
    "Illegal trailing comma before end of object": Message("a comma follows the last value"),
    "Illegal trailing comma before end of array": Message("a comma follows the last value"),
    "Extra data": Message("more text follows"),
    "Unterminated string starting at": Message("the text that begins here has no closing quote"),
    "Invalid control character at": Message("a line break or a tab inside a text, which JSON writes as \\n or \\t"),
    "Invalid \\escape": Message("an unknown escape sequence. A backslash itself is written \\\\"),
    "Invalid \\uXXXX escape": Message("four hexadecimal digits are missing after \\u"),
}


def json_problem(words: str) -> str:
    """Return in our words what Python's JSON reader says is wrong."""
    return words if isinstance(words, Message) else _JSON_WORDS.get(words.removesuffix(": "), words)


def phrase(words: object) -> str:
    """Return what a library says for the middle of a sentence of ours, without the period that ends it."""
    return str(words).strip().rstrip(".")


@cache
def _table(name: str) -> dict[str, str]:
    try:
        table: dict[str, str] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return table


def packed(value: Any) -> Any:  # Any: JSON values
    """Return JSON values in which the objects tell what their messages were made of."""
    if isinstance(value, dict):
        result = {name: packed(each) for name, each in value.items()}
        spelled = {name: _spelled(each) for name, each in value.items() if _holds_messages(each)}
        return result | {TEMPLATES: spelled} if spelled else result
    if isinstance(value, (list, tuple)):
        return [packed(each) for each in value]
    return value


def restored(value: Any) -> Any:  # Any: JSON values
    """Return what was packed; the sentences are taken as they were written, only their templates are added."""
    if isinstance(value, list):
        return [restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    spelled = value.get(TEMPLATES)
    known = spelled if isinstance(spelled, dict) else {}
    return {name: _read(restored(each), known.get(name)) for name, each in value.items() if name != TEMPLATES}


def _holds_messages(value: object) -> bool:
    return isinstance(value, Message) or (
        isinstance(value, (list, tuple)) and any(isinstance(each, Message) for each in value)
    )


def _spelled(value: Any) -> Any:  # Any: JSON values
    if isinstance(value, Message):
        values = {name: _spelled(each) if isinstance(each, Message) else each for name, each in value.values.items()}
        return {"text": str(value), "template": value.template, "values": values}
    return [_spelled(each) for each in value] if isinstance(value, (list, tuple)) else None


def _read(value: Any, spelled: Any) -> Any:  # Any: JSON values
    if isinstance(value, list) and isinstance(spelled, list) and len(value) == len(spelled):
        return [_read(each, made) for each, made in zip(value, spelled, strict=True)]
    if not isinstance(value, str) or not isinstance(spelled, dict) or not isinstance(spelled.get("values"), dict):
        return value
    values = {
        name: _read(str(each.get("text")), each) if isinstance(each, dict) else each
        for name, each in spelled["values"].items()
    }
    return Message._made(value, str(spelled.get("template")), values)
