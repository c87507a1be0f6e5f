"""The shapes a row of training data can have, and how each becomes a conversation.

A layout says which shape the rows of a file have and which column plays which role. Shapes are recognised by the names
of the columns; the names in use out there are listed in `ROLES`, the person can map others.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence

Message = dict[str, Any]  # Any: JSON values
"""{"role": "system" | "user" | "assistant" | "tool", "content": text}, and what else the row says of the message."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages to be rendered by the chat template.

    Attributes:
        messages: in order, at least one of the assistant.
        first_trained: index of the first message whose answer counts for the loss (later ones count too).
        tools: descriptions of the functions that the assistant may call.
    """

    messages: tuple[Message, ...]
    first_trained: int = 0
    tools: tuple[dict[str, Any], ...] = ()  # Any: JSON values


@dataclass(frozen=True, slots=True)
class PromptCompletion:
    """A question and its answer; only the answer counts for the loss.

    Attributes:
        as_chat: a model with a chat template learns them as user and assistant; else they are joined as they stand.
    """

    prompt: str
    completion: str
    as_chat: bool = True


@dataclass(frozen=True, slots=True)
class Text:
    """One plain text that is learned whole."""

    text: str


Conversation = Chat | PromptCompletion | Text


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that a file holds but no row can, such as text that is not UTF-8.

    Attributes:
        what: what it is, to stand behind "holds".
    """

    what: str


@dataclass(frozen=True, slots=True)
class Role:
    """A part that a column can play in a format.

    Attributes:
        name: key of the column mapping.
        usual_names: column names that are taken for it without being told.
        required: whether rows without it are refused.
    """

    name: str
    usual_names: tuple[str, ...]
    required: bool = True


MESSAGE_COLUMNS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
SYSTEM_ROLE = Role("system", ("system", "system_prompt"), required=False)
TOOLS_ROLE = Role("tools", ("tools", "functions"), required=False)

ROLES: dict[str, tuple[Role, ...]] = {
    "messages": (Role("messages", MESSAGE_COLUMNS), SYSTEM_ROLE, TOOLS_ROLE),
    "sharegpt": (Role("conversations", MESSAGE_COLUMNS), SYSTEM_ROLE, TOOLS_ROLE),
    "alpaca": (
        Role("instruction", ("instruction",)),
        Role("input", ("input", "context"), required=False),
        Role("output", ("output", "response", "answer")),
        SYSTEM_ROLE,
    ),
    "prompt-completion": (
        Role("prompt", ("prompt", "question", "query", "input")),
        Role("completion", ("completion", "answer", "response", "output")),
    ),
    "text": (Role("text", ("text", "content", "document")),),
}
ROLES["prompt-completion-raw"] = ROLES["prompt-completion"]
"""Roles of each format, in the order in which formats are tried; the last is never guessed, only chosen."""

RAW = "prompt-completion-raw"

MESSAGE_KEYS = ("role", "from", "content", "value")
"""Keys of a message that every template knows; the others are carried along."""

SPEAKERS = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
"""What data sets call a speaker, and what chat templates call it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one file are read: a key of ROLES, and which column plays which role."""

    format: str
    columns: Mapping[str, str]


MAX_LISTED = 50
"""Columns that an error names."""

def to_messages(row: Mapping[str, Any], layout: Layout, place: str) -> Conversation:
    """Turn a row into what will be rendered.

    Args:
        row: one row of the file.
        layout: how to read it.
        place: "file, line 3", named in errors.

    Raises:
        UserError: `dataset-column-missing` when the row lacks a mapped column, `dataset-parse-error` when a value is of
            the wrong type, a role is unknown, or there is no answer.
    """
    reader = _RowReader(row, layout, place)
    if layout.format == "text":
        return Text(reader.text("text"))
    if layout.format in ("prompt-completion", RAW):
        return _prompt_completion(reader)
    if layout.format == "alpaca":
        question = "\n\n".join(part for part in (reader.text("instruction"), reader.optional_text("input")) if part)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": reader.text("output")}]
    else:
        role = ROLES[layout.format][0].name
        messages = reader.messages(role, reader.value(role))
        reader.require_answer(role, messages)
    system = reader.optional_text("system")
    if system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return Chat(tuple(messages), tools=reader.tools())


def _prompt_completion(reader: _RowReader) -> Chat | PromptCompletion:
    prompt, completion = reader.value("prompt"), reader.value("completion")
    if not isinstance(prompt, list) and not isinstance(completion, list):
        prompt, completion = reader.text("prompt", may_be_empty=True), reader.text("completion")
        return PromptCompletion(prompt, completion, as_chat=reader.layout.format != RAW)
    question, answer = reader.turn("prompt", "user"), reader.turn("completion", "assistant")
    reader.require_answer("completion", answer)
    return Chat((*question, *answer), first_trained=len(question))


@dataclass(frozen=True, slots=True)
class _RowReader:
    """Takes the parts of one row by their roles, and says where a part is wrong."""

    row: Mapping[str, Any]
    layout: Layout
    place: str

    def value(self, role: str) -> Any:  # Any: JSON values
        column = self.layout.columns[role]
        if column not in self.row:
            wanted = f'"{column}"' if column == role else f'"{column}" ({role})'
            raise TunesmithError(
                "dataset-column-missing",
                "{place}: the row has no column {column}. Its columns are: {columns}.",
                place=self.place,
                column=wanted,
                columns=listed(self.row) or Sentence("none"),
            )
        value = self.row[column]
        if isinstance(value, Unreadable):
            raise self._error(role, "holds {what}", what=value.what)
        return value

    def text(self, role: str, *, may_be_empty: bool = False) -> str:
        value = self.value(role)
        if value is None:
            value = ""
        if not isinstance(value, str):
            raise self._error(role, "must be a text, not {kind}", kind=_kind(value))
        if not may_be_empty and not value.strip():
            raise self._error(role, "is empty")
        return value

    def optional_text(self, role: str) -> str:
        column = self.layout.columns.get(role)
        return self.text(role, may_be_empty=True) if column in self.row else ""

    def messages(self, role: str, value: object) -> list[Message]:
        if not isinstance(value, list):
            raise self._error(role, "must be a list of messages, not {kind}", kind=_kind(value))
        if not value:
            raise self._error(role, "contains no messages")
        return [self._message(role, number, item) for number, item in enumerate(value, start=1)]

    def turn(self, role: str, speaker: str) -> list[Message]:
        """Return a list of messages as it is, a plain text as one message of the speaker."""
        value = self.value(role)
        return (
            self.messages(role, value) if isinstance(value, list) else [{"role": speaker, "content": self.text(role)}]
        )

    def require_answer(self, role: str, messages: list[Message]) -> None:
        if not any(message["role"] == "assistant" for message in messages):
            raise self._error(role, "has no assistant answer")

    def _message(self, role: str, number: int, item: object) -> Message:
        if not isinstance(item, dict):
            raise self._error(role, "message {number} must be an object, not {kind}", number=number, kind=_kind(item))
        speaker, content = item.get("role", item.get("from")), item.get("content", item.get("value"))
        if not isinstance(speaker, str) or speaker.lower() not in SPEAKERS:
            name = repr(speaker)[:MAX_NAME]
            shown = Sentence("no role") if speaker is None else Sentence("the unknown role {speaker}", speaker=name)
            raise self._error(role, "message {number} has {shown}", number=number, shown=shown)
        speaker = SPEAKERS[speaker.lower()]
        fields = {key: value for key, value in item.items() if key not in MESSAGE_KEYS and value is not None}
        if content is None and speaker == "assistant" and fields.get("tool_calls"):
            content = ""
        if isinstance(content, list):
            content = self._joined_parts(role, number, content)
        if not isinstance(content, str):
            raise self._error(
                role, "message {number} must have a text as its content, not {kind}", number=number, kind=_kind(content)
            )
        if fields.get("tool_calls"):
            fields["tool_calls"] = self._tool_calls(role, number, fields["tool_calls"])
        elif speaker == "assistant" and not content.strip():
            raise self._error(role, "message {number}: the answer is empty", number=number)
        return {"role": speaker, "content": content, **fields}

    def _tool_calls(self, role: str, number: int, calls: object) -> list[Any]:  # Any: JSON values
        """Return tool calls with their arguments as an object, which OpenAI's services write as a text."""
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise self._error(role, "message {number}: the tool calls must be a list of objects", number=number)
        read = []
        for call in calls:
            function = call.get("function", call)
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise self._error(role, "message {number}: a tool call has no function name", number=number)
            function = {**function, "arguments": _parsed(function.get("arguments")) or {}}
            read.append({**call, "function": function} if "function" in call else function)
        return read

    def tools(self) -> tuple[dict[str, Any], ...]:  # Any: JSON values
        """Return the descriptions of tools, which a column may hold as JSON text too."""
        column = self.layout.columns.get("tools")
        tools = _parsed(self.value("tools")) if column in self.row else None
        if not tools:
            return ()
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise self._error("tools", "must be a list of objects, each describing a tool")
        return tuple(tools)

    def _joined_parts(self, role: str, number: int, parts: list[Any]) -> str:
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        joinable = [text for text in texts if isinstance(text, str)]
        if len(joinable) < len(parts):
            raise self._error(role, "message {number} holds something other than text", number=number)
        return "".join(joinable)

    def _error(self, role: str, problem: str, **values: object) -> TunesmithError:
        return TunesmithError(
            "dataset-parse-error",
            '{place}, column "{columns}": {problem}.',
            place=self.place,
            columns=self.layout.columns[role],
            problem=Sentence(problem, **values),
        )


def _parsed(value: Any) -> Any:  # Any: JSON values
    """Return what a JSON text holds; anything else, and a text that is no JSON, as it is."""
    try:
        return json_values.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def listed(columns: Iterable[str]) -> str:
    """Return names of columns for a sentence, the first ones where there are many."""
    first = list(islice(columns, MAX_LISTED + 1))
    return ", ".join(name[:MAX_NAME] for name in first[:MAX_LISTED]) + ("..." if len(first) > MAX_LISTED else "")


def _kind(value: object) -> str:
    """Name the type of a value in words."""
    if value is None:
        return Sentence("nothing")
    if isinstance(value, bool):
        return Sentence("true or false")
    number, date = Sentence("a number"), Sentence("a date or time")
    names: dict[type, str] = {
        str: Sentence("a text"),
        int: number,
        float: number,
        decimal.Decimal: number,
        bytes: Sentence("binary data"),
        datetime.date: date,
        datetime.datetime: date,
        datetime.time: date,
        datetime.timedelta: Sentence("a duration"),
        list: Sentence("a list"),
        dict: Sentence("an object"),
    }
    return names.get(type(value), type(value).__name__)
