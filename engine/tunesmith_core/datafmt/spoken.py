"""Values of rows as people read them: a chat as who says what, everything else as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tunesmith_core.datafmt.formats import OPTION_LISTS
from tunesmith_core.datafmt.message_lists import in_turn, message_list


def is_chat(value: object, column: str = "") -> bool:
    """Return whether a value of a column holds messages, also as JSON text."""
    return bool(_messages(value, column))


def spoken(value: Any, between: str = "\n", column: str = "") -> str:  # Any: JSON values
    """Return a chat as "user: ... assistant: ...", text as it is and other values as JSON.

    Args:
        value: of a column.
        between: stands between one message and the next.
        column: its name; options of a question are a list of texts, and no chat.
    """
    if isinstance(value, str) and value.lstrip()[:1] not in ("[", "{"):
        return value
    if messages := _messages(value, column):
        return between.join(f"{_speaker(each)}: {_said(each)}" for each in messages)
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _messages(value: object, column: str) -> list[Mapping[str, Any]]:
    """Return the messages that a value holds; none where it is no chat."""
    items = message_list(value)
    if column.lower() not in OPTION_LISTS:
        items = in_turn(items)
    are_messages = isinstance(items, list) and all(isinstance(each, dict) and _speaker(each) for each in items)
    return items if are_messages else []


def _speaker(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("from") or "")


def _said(message: Mapping[str, Any]) -> str:
    """Return the words of a message, and as JSON what else is in it: calls of tools, pictures."""
    said = message.get("content", message.get("value"))
    parts = [said] if isinstance(said, str) else []
    if said and not parts:
        parts.append(json.dumps(said, ensure_ascii=False, default=str))
    if calls := message.get("tool_calls"):
        parts.append(json.dumps(calls, ensure_ascii=False, default=str))
    return " ".join(filter(None, parts))
