"""The parts of one row by their roles, each checked where it is taken."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt import transcripts
from tunesmith_core.datafmt.choices import FEWEST_OPTIONS, LETTERS, Options, is_number, options_of, right_label
from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.datafmt.formats import (
    ANSWER_ROLES,
    OPTION_ROLES,
    Layout,
    Message,
    Place,
    Stepped,
    Tokens,
    Unreadable,
    listed,
)
from tunesmith_core.datafmt.held import held_label, held_text
from tunesmith_core.datafmt.message_lists import message_list
from tunesmith_core.datafmt.steps import are_right, steps_problem
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence

MESSAGE_KEYS = ("role", "from", "content", "value", "parts")
"""Keys of a message that every template knows; the others are carried along."""

TEXT_PARTS = ("text", "input_text", "output_text")
THOUGHT_PARTS = ("reasoning", "thinking")
"""Types of the parts of a message that are text, and thoughts before it."""

WEIGHTS = ("weight", "loss_weight")
"""What data sets call how much a message counts for the loss."""

IGNORED, MOST_ID = -100, 1 << 31
"""Label of a token that is not trained, and a number that no token has."""

SPEAKERS = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "ai": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "function response": "tool",
}
"""What data sets call a speaker, and what chat templates call it."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Takes the parts of one row by their roles, and says where a part is wrong."""

    row: Mapping[str, Any]
    layout: Layout
    place: Place

    def placed(self) -> str:
        return self.place if isinstance(self.place, str) else self.place()

    def value(self, role: str) -> Any:  # Any: JSON values
        column = self.layout.columns[role]
        if column not in self.row:
            wanted = f'"{column}"' if column == role else f'"{column}" ({role})'
            raise TunesmithError(
                "dataset-column-missing",
                "{place}: the row has no column {column}. Its columns are: {columns}.",
                place=self.placed(),
                column=wanted,
                columns=listed(self.row) or Sentence("none"),
            )
        value = self.row[column]
        if isinstance(value, Unreadable):
            raise self._error(role, "holds {what}", what=value.what)
        return value

    def text(self, role: str, *, may_be_empty: bool = False) -> str:
        value = self.value(role)
        if self.layout.are_held and role in ANSWER_ROLES and not isinstance(value, str):
            value = held_text(value)
        if value is None:
            value = ""
        if not isinstance(value, str):
            raise self._error(role, "must be a text, not {kind}", kind=_kind(value))
        if not may_be_empty and not value.strip():
            raise self._error(role, "is empty")
        return value

    def label(self) -> str:
        if label := held_label(self.value("class")):
            return label
        raise self._error("class", "must hold a single label")

    def stepped(self) -> Stepped:
        """Return a problem with the steps of its solution and their labels."""
        steps, labels = (json_values.parsed(self.value(role)) for role in ("steps", "step_labels"))
        if problem := steps_problem(steps, labels):
            role, words = problem
            raise self._error(role, words.template, **words.values)
        return Stepped(self.text("prompt"), tuple(steps), are_right(labels))

    def optional_text(self, role: str) -> str:
        column = self.layout.columns.get(role)
        return self.text(role, may_be_empty=True) if column in self.row else ""

    def system(self) -> str:
        """Return what the row says to the model, which may be a message or its parts."""
        value = message_list(self.row.get(self.layout.columns.get("system", "")))
        if isinstance(value, dict):
            value = value.get("parts", value.get("content"))
        return self._joined_parts("system", 1, value)[0] if isinstance(value, list) else self.optional_text("system")

    def messages(self, role: str, value: object) -> list[Message]:
        value = message_list(value)
        if isinstance(value, str):
            value = transcripts.turns(value) or value
        if not isinstance(value, list):
            raise self._error(role, "must be a list of messages, not {kind}", kind=_kind(value))
        if not value:
            raise self._error(role, "contains no messages")
        return [self._message(role, number, item) for number, item in enumerate(value, start=1)]

    def turn(self, role: str, speaker: str) -> list[Message]:
        """Return a list of messages as it is, a plain text as one message of the speaker."""
        value = message_list(self.value(role))
        return (
            self.messages(role, value) if isinstance(value, list) else [{"role": speaker, "content": self.text(role)}]
        )

    def options(self) -> Options:
        """Return the options of a question by their labels."""
        columns = self.layout.columns
        options = options_of(self.row, columns)
        role = next((role for role in ("choices", *OPTION_ROLES) if role in columns), "question")
        if options is None:
            raise self._error(role, "must be a list of options, at most {most}, each a text", most=len(LETTERS))
        if len(options) < FEWEST_OPTIONS:
            raise self._error(role, "has fewer than two options")
        return options

    def right_label(self, options: Options) -> str:
        """Return the label of the option that the row calls right."""
        answer, first = self.value("answer"), self.layout.first_number
        if answer is None or not str(answer).strip():
            raise self._error("answer", "is empty")
        label = right_label(options, answer, first)
        if label is not None:
            return label
        said = repr(answer)[:MAX_NAME]
        if first is None and is_number(answer):
            raise self._error(
                "answer",
                "{answer} may be counted from 0 or from 1. Write letters, such as {letter}",
                answer=said,
                letter=LETTERS[1],
            )
        raise self._error("answer", "{answer} is none of the options {labels}", answer=said, labels=", ".join(options))

    def history(self) -> list[Message]:
        """Return the questions and answers before the one of the row."""
        turns = json_values.parsed(self.row.get(self.layout.columns.get("history", ""))) or []
        if not isinstance(turns, list) or not all(_is_pair(turn) for turn in turns):
            raise self._error("history", "must be a list of pairs, a question and its answer")
        roles = ("user", "assistant")
        return [{"role": role, "content": text} for turn in turns for role, text in zip(roles, turn, strict=True)]

    def tokens(self) -> Tokens:
        """Return numbers of tokens; those that a mask leaves out are no part of it."""
        ids = self._numbers("input_ids", 0)
        labels = self._numbers("labels", IGNORED) if self._has("labels") else ids
        mask = self._numbers("attention_mask", 0) if self._has("attention_mask") else [1] * len(ids)
        for role, numbers in (("labels", labels), ("attention_mask", mask)):
            if len(numbers) != len(ids):
                raise self._error(role, "holds {num} numbers for {num_ids} tokens", num=len(numbers), num_ids=len(ids))
        kept = [(number, label) for number, label, is_read in zip(ids, labels, mask, strict=True) if is_read]
        if not kept:
            raise self._error("input_ids", "is empty")
        columns = [tuple(column) for column in zip(*kept, strict=True)]
        return Tokens(columns[0], columns[1], self.layout.columns["input_ids"])

    def _has(self, role: str) -> bool:
        return self.row.get(self.layout.columns.get(role, "")) is not None

    def _numbers(self, role: str, least: int) -> list[int]:
        value = json_values.parsed(self.value(role))
        if not isinstance(value, list) or not all(type(each) is int and least <= each < MOST_ID for each in value):
            raise self._error(role, "must be a list of token numbers")
        return value

    def require_answer(self, role: str, messages: list[Message]) -> None:
        if not any(message["role"] == "assistant" for message in messages):
            raise self._error(role, "has no assistant answer")

    def _message(self, role: str, number: int, item: object) -> Message:
        if not isinstance(item, dict):
            raise self._error(role, "message {number} must be an object, not {kind}", number=number, kind=_kind(item))
        speaker = item.get("role", item.get("from"))
        content = item.get("content", item.get("value", item.get("parts")))
        if not isinstance(speaker, str) or speaker.lower() not in SPEAKERS:
            name = repr(speaker)[:MAX_NAME]
            shown = Sentence("no role") if speaker is None else Sentence("the unknown role {speaker}", speaker=name)
            raise self._error(role, "message {number} has {shown}", number=number, shown=shown)
        speaker = SPEAKERS[speaker.lower()]
        fields = {key: value for key, value in item.items() if key not in MESSAGE_KEYS and value is not None}
        for name in WEIGHTS:
            if isinstance(fields.get(name), int | float) and bool(fields[name]) == (speaker == "assistant"):
                # What is trained anyway.
                del fields[name]
        if content is None and speaker == "assistant" and fields.get("tool_calls"):
            content = ""
        if isinstance(content, list):
            content, more = self._joined_parts(role, number, content)
            fields |= more
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
            function = {**function, "arguments": json_values.parsed(function.get("arguments")) or {}}
            read.append({**call, "function": function} if "function" in call else function)
        return read

    def tools(self) -> tuple[dict[str, Any], ...]:  # Any: JSON values
        """Return the descriptions of tools, which a column may hold as JSON text too."""
        column = self.layout.columns.get("tools")
        tools = json_values.parsed(self.value("tools")) if column in self.row else None
        if not tools:
            return ()
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise self._error("tools", "must be a list of objects, each describing a tool")
        return tuple(tools)

    def _joined_parts(self, role: str, number: int, parts: list[Any]) -> tuple[str, dict[str, Any]]:
        """Return the text of the parts of a message, and its thoughts and tool calls."""
        texts, thoughts, calls = [], [], []
        for part in parts:
            kind = part.get("type", "") if isinstance(part, dict) else ""
            text = part.get("text", part.get("value", part.get(kind))) if isinstance(part, dict) else part
            if kind == "tool_call":
                calls.append(json_values.parsed(text))
                continue
            if kind in THOUGHT_PARTS and isinstance(text, str):
                thoughts.append(text)
                continue
            if not isinstance(text, str) or (isinstance(part, dict) and kind not in TEXT_PARTS and len(part) > 1):
                raise self._no_text(role, number, str(kind)[:MAX_NAME])
            texts.append(text)
        fields = {"reasoning_content": "\n".join(thoughts)} if thoughts else {}
        return "".join(texts), {**fields, **({"tool_calls": calls} if calls else {})}

    def _no_text(self, role: str, number: int, kind: str) -> TunesmithError:
        if not kind:
            return self._error(role, "message {number} holds something other than text", number=number)
        return self._error(
            role, 'message {number} holds something other than text, of the type "{kind}"', number=number, kind=kind
        )

    def _error(self, role: str, problem: str, **values: object) -> TunesmithError:
        return TunesmithError(
            "dataset-parse-error",
            '{place}, column "{columns}": {problem}.',
            place=self.placed(),
            columns=self.layout.columns[role],
            problem=Sentence(problem, **values),
        )


def _is_pair(turn: object) -> bool:
    return isinstance(turn, list) and len(turn) == 2 and all(isinstance(text, str) and text.strip() for text in turn)


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
