"""Fits the fields of messages to a chat template, and keeps account of those that the template does not write."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tunesmith_core.datafmt import Chat, Message

THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""What data sets and templates call the thoughts before an answer."""

MAX_TRIALS = 50
"""Chats by which it is tried whether a field is written; thoughts of all but the last answer are often left out."""

QUESTION: Message = {"role": "user", "content": "?"}
CALL = {"type": "function", "id": "call00000", "function": {"name": "f", "arguments": {"a": 1}}}


class Fields:
    """Knows which fields of messages a template writes.

    Args:
        template: its source.
        try_text: renders a chat, None where the template refuses it.
    """

    def __init__(self, template: str, try_text: Callable[[Chat], str | None]) -> None:
        self._try_text = try_text
        self._thoughts = next((key for key in THOUGHTS if re.search(rf"\b{key}\b", template)), None)
        self._arguments_as_text = self._wants_text()
        self._trials: Counter[str] = Counter()
        self._is_used: set[str] = set()

    def fitted(self, chat: Chat) -> Chat:
        """Return a chat with the field names and the kind of arguments that the template expects."""
        messages = tuple(
            message if message.keys() == {"role", "content"} else self._fitted(message) for message in chat.messages
        )
        chat = replace(chat, messages=messages)
        self._try_fields(chat)
        return chat

    def unused(self) -> list[str]:
        """Return the fields that no chat so far was written with."""
        return sorted(self._trials.keys() - self._is_used)

    def _fitted(self, message: Message) -> Message:
        fitted = dict(message)
        if self._thoughts and self._thoughts not in fitted:
            own = next((key for key in THOUGHTS if key in fitted), None)
            if own:
                fitted[self._thoughts] = fitted.pop(own)
        if self._arguments_as_text and fitted.get("tool_calls"):
            fitted["tool_calls"] = [_with_text_arguments(call) for call in fitted["tool_calls"]]
        return fitted

    def _try_fields(self, chat: Chat) -> None:
        """Leave out one field after another whose use is not known yet, and see whether the text changes."""
        fields = {key for message in chat.messages for key in message} - {"role", "content"}
        if chat.tools:
            fields.add("tools")
        open_fields = [key for key in fields - self._is_used if self._trials[key] < MAX_TRIALS]
        if not open_fields:
            return
        whole = self._try_text(chat)
        for key in open_fields:
            self._trials[key] += 1
            without = tuple(
                {name: value for name, value in message.items() if name != key} for message in chat.messages
            )
            less = replace(chat, messages=without, tools=() if key == "tools" else chat.tools)
            if whole is not None and self._try_text(less) != whole:
                self._is_used.add(key)

    def _wants_text(self) -> bool:
        """Return whether the template puts arguments into the text as they are, so that they must be JSON text."""
        as_object, as_text = (
            self._try_text(Chat((QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]})))
            for call in (CALL, _with_text_arguments(CALL))
        )
        return as_text is not None and (as_object is None or "{'a': 1}" in as_object)


def _with_text_arguments(call: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    function = call.get("function", call)
    function = {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}
    return {**call, "function": function} if "function" in call else function
