"""Values of rows as people read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunesmith_core.datafmt.spoken import is_chat, spoken

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
CALLS = [{"function": {"name": "look", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (CHAT, "user: Hi\nassistant: Hello"),
        (json.dumps(CHAT), "user: Hi\nassistant: Hello"),
        ([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}], "human: Hi\ngpt: Yo"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], 'user: [{"type": "text", "text": "Hi"}]'),
        ([{"role": "assistant", "content": None, "tool_calls": CALLS}], f"assistant: {json.dumps(CALLS)}"),
        ([{"role": "assistant", "content": "So:", "tool_calls": CALLS}], f"assistant: So: {json.dumps(CALLS)}"),
    ],
)
def test_a_chat_is_told_as_who_says_what(value: Any, words: str) -> None:
    assert is_chat(value)
    assert spoken(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [("plain", "plain"), ("[odd", "[odd"), ('{"a": 1}', '{"a": 1}'), (None, ""), (3, "3"), (["a"], '["a"]')],
)
def test_what_is_no_chat_stays_as_it_is(value: Any, words: str) -> None:
    assert not is_chat(value)
    assert spoken(value) == words


@pytest.mark.parametrize("column", ["choices", "Options"])
def test_options_of_a_question_are_no_chat(column: str) -> None:
    assert is_chat(["Who?", "Me."], "turns")
    assert not is_chat(["Who?", "Me."], column)
    assert spoken(["Who?", "Me."], column=column) == '["Who?", "Me."]'
    assert spoken(CHAT, column=column) == "user: Hi\nassistant: Hello"
