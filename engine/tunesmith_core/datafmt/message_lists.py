"""The messages that a value of a row holds, however they are written."""

from __future__ import annotations

from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt.formats import MESSAGE_COLUMNS

MESSAGE_SPEAKERS = frozenset(("role", "from"))
TURN_NAMES = (
    *(("human", "assistant"), ("user", "assistant"), ("input", "output"), ("question", "answer")),
    *(("prompt", "response"), ("prompt", "completion"), ("instruction", "output"), ("human", "gpt")),
    *(("user", "bot"), ("human", "bot")),
)
"""How chats are written that hold a question and its answer in one object."""


def message_list(value: Any) -> Any:  # Any: JSON values
    """Return the messages that a value holds, also as JSON text or inside of an object; another value as it is."""
    items = held_list(value)
    return _turns(items) if isinstance(items, list) and items else items


def held_list(value: Any) -> Any:  # Any: JSON values
    """Return the list that a value holds, also as JSON text or inside of an object; another value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        parsed = json_values.parsed(value)
        value = parsed if isinstance(parsed, list | dict) else value
    if isinstance(value, dict):
        inner = (value[name] for name in MESSAGE_COLUMNS if isinstance(value.get(name), list))
        value = next(inner, value)
    return value


def turn_names(items: list[Any]) -> tuple[str, str] | None:  # Any: JSON values
    """Return under which names the items of a list hold a question and its answer, None where they don't."""
    first = items[0] if items else None
    if not isinstance(first, dict) or not MESSAGE_SPEAKERS.isdisjoint(first):
        return None
    names = next((names for names in TURN_NAMES if names[0] in first and names[1] in first), None)
    return names if all(isinstance(item, dict) for item in items) else None


def _turns(items: list[Any]) -> list[Any]:  # Any: JSON values
    """Return messages for a list of questions with their answers; another list as it is."""
    names = turn_names(items)
    if names is None:
        return items
    messages = []
    for item in items:
        if item.get("system"):
            messages.append({"role": "system", "content": item["system"]})
        said = zip(("user", "assistant"), names, strict=True)
        messages += [{"role": role, "content": item.get(name)} for role, name in said]
    return messages


def in_turn(value: Any) -> Any:  # Any: JSON values
    """Return messages for a list of texts, of which user and assistant say one after the other; another as it is."""
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(text, str) for text in value):
        return value
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(value)]
