"""Fields of messages: named as the template names them, and those that it never writes are found with few trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tunesmith_core.datafmt import Chat
from tunesmith_engine.data.fields import MAX_TRIALS, Fields

QUESTION = {"role": "user", "content": "Who?"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": "名"}}}


class Template:
    """Writes the given fields of messages, and counts how often it is asked."""

    def __init__(self, *written: str, source: str = "") -> None:
        self.written = written
        self.num_asked = 0
        self.fields = Fields(source, self.text)
        self.num_asked = 0

    def text(self, chat: Chat) -> str | None:
        self.num_asked += 1
        told = [[message.get(name) for name in self.written] for message in chat.messages]
        return json.dumps([told, list(chat.tools) if "tools" in self.written else None])


def answer(**fields: Any) -> Chat:
    return Chat((QUESTION, {"role": "assistant", "content": "Me.", **fields}))


@pytest.mark.parametrize("own", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("wanted", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_get_the_name_that_the_template_uses(own: str, wanted: str) -> None:
    template = Template(wanted, source=f"{{{{ message.{wanted} }}}}")
    fitted = template.fields.fitted(answer(**{own: "hm"}))
    assert fitted.messages[1] == {"role": "assistant", "content": "Me.", wanted: "hm"}
    assert fitted.messages[0] == QUESTION


def test_thoughts_that_have_the_name_already_stay() -> None:
    template = Template("reasoning", source="{{ message.reasoning }}")
    both = {"reasoning": "hm", "thinking": "other"}
    assert template.fields.fitted(answer(**both)).messages[1].items() >= both.items()
    plain = Template(source="{{ message.my_reasoning_content_x }}")
    assert plain.fields.fitted(answer(thinking="hm")).messages[1]["thinking"] == "hm"


def test_a_field_that_is_written_is_tried_once() -> None:
    template = Template("name")
    for _ in range(3):
        template.fields.fitted(answer(name="x"))
    assert template.num_asked == 2, "with it and without it"
    assert template.fields.unused() == []


def test_a_field_that_is_not_written_is_tried_some_times_and_told() -> None:
    template = Template()
    for _ in range(MAX_TRIALS + 5):
        template.fields.fitted(answer(weight=1, name="x"))
    assert template.num_asked == 3 * MAX_TRIALS, "with both, and without each"
    assert template.fields.unused() == ["name", "weight"]
    assert MAX_TRIALS == 50


def test_plain_messages_need_no_trial() -> None:
    template = Template()
    template.fields.fitted(answer())
    assert (template.num_asked, template.fields.unused()) == (0, [])


def test_tools_are_a_field_of_the_chat() -> None:
    tools = ({"type": "function"},)
    for written, unused in ((("tools",), []), ((), ["tools"])):
        template = Template(*written)
        template.fields.fitted(Chat((QUESTION,), tools=tools))
        assert template.fields.unused() == unused


def test_what_a_template_refuses_is_not_called_written() -> None:
    template = Template()
    fields = Fields("", lambda _: None)
    fields.fitted(answer(name="x"))
    assert fields.unused() == ["name"]
    assert template.num_asked == 0


@pytest.mark.parametrize(
    ("as_object", "as_text", "is_text"),
    [
        (str, str, True),
        (json.dumps, json.dumps, False),
        (None, str, True),
        (None, None, False),
        (str, None, False),
    ],
)
def test_arguments_are_an_object_or_text_as_the_template_can_write_them(
    as_object: Callable[[Any], str] | None, as_text: Callable[[Any], str] | None, is_text: bool
) -> None:
    def write(chat: Chat) -> str | None:
        calls = chat.messages[1].get("tool_calls")
        if not calls:
            return "no call"
        arguments = calls[0].get("function", calls[0])["arguments"]
        written = as_text if isinstance(arguments, str) else as_object
        return f"call {written(arguments)}" if written else None

    fields = Fields("", write)
    (call,) = fields.fitted(answer(tool_calls=[CALL])).messages[1]["tool_calls"]
    assert call["function"]["arguments"] == ('{"a": "名"}' if is_text else {"a": "名"})
    assert CALL["function"]["arguments"] == {"a": "名"}, "the row itself stays"  # type: ignore[index]
    (bare,) = fields.fitted(answer(tool_calls=[{"name": "f", "arguments": {}}])).messages[1]["tool_calls"]
    assert bare == {"name": "f", "arguments": "{}" if is_text else {}}
