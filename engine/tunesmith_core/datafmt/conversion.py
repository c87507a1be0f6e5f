"""How rows of each shape become conversations."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt import transcripts
from tunesmith_core.datafmt.choices import FEWEST_OPTIONS, LETTERS, Options, is_number, options_of, right_label
from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.datafmt.formats import (
    ANSWER_ROLES,
    LABELED,
    MESSAGE_COLUMNS,
    MULTIPLE_CHOICE,
    NO_ANSWER,
    OPTION_ROLES,
    PREFERENCE,
    PROMPT_ONLY,
    RAW,
    ROLES,
    STEPS,
    TOKENS,
    Chat,
    Conversation,
    Labeled,
    Layout,
    Message,
    Place,
    Preference,
    PromptCompletion,
    Stepped,
    Text,
    Tokens,
    Unreadable,
    listed,
)
from tunesmith_core.datafmt.held import held_label, held_text
from tunesmith_core.datafmt.steps import are_right, steps_problem
from tunesmith_core.datafmt.transcripts import split_by
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence
from tunesmith_core.spec_sections import CHOICE_WORDS

MESSAGE_KEYS = ("role", "from", "content", "value", "parts")
"""Keys of a message that every template knows; the others are carried along."""

MESSAGE_SPEAKERS = frozenset(("role", "from"))
TURN_NAMES = (
    *(("human", "assistant"), ("user", "assistant"), ("input", "output"), ("question", "answer")),
    *(("prompt", "response"), ("prompt", "completion"), ("instruction", "output"), ("human", "gpt")),
    *(("user", "bot"), ("human", "bot")),
)
"""How chats are written that hold a question and its answer in one object."""

TRUTHS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
DIALOGUE = re.compile(r"(?:^|\n\n)\s{0,16}(Human|Assistant):")
"""How a speaker begins in the dialogues of Bai et al. 2022 (arXiv 2204.05862), which may be one answer only."""

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


SAME_ANSWERS = Sentence(
    '{place}: the answers in the columns "{chosen}" and "{rejected}" are the same, so there is nothing to prefer.'
)


def to_messages(row: Mapping[str, Any], layout: Layout, place: Place) -> Conversation:
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
    if layout.format in (MULTIPLE_CHOICE, LABELED):
        return (_labeled if layout.format == LABELED else _multiple_choice)(reader)
    if layout.format in (TOKENS, STEPS):
        return reader.tokens() if layout.format == TOKENS else reader.stepped()
    if layout.format == PREFERENCE:
        return _preferred(reader)
    if layout.format == PROMPT_ONLY:
        columns = {**layout.columns, "completion": NO_ANSWER}
        return _prompt_completion(_RowReader({**row, NO_ANSWER: NO_ANSWER}, replace(layout, columns=columns), place))
    if layout.format == "alpaca":
        question = "\n\n".join(part for part in (reader.text("instruction"), reader.optional_text("input")) if part)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": reader.text("output")}]
        messages = [*reader.history(), *messages]
    else:
        role = ROLES[layout.format][0].name
        messages = reader.messages(role, in_turn(message_list(reader.value(role))))
        reader.require_answer(role, messages)
    return _chat(reader, messages)


def _labeled(reader: _RowReader) -> Labeled:
    """Return a text, with its answer where the row has one, and its label."""
    label, text, columns = reader.label(), reader.text("text"), reader.layout.columns
    return Labeled(PromptCompletion(text, reader.text("answer")) if "answer" in columns else Text(text), label)


def pairs_problem(layout: Layout, path: str) -> TunesmithError | None:
    """Return what to say where an objective learns from preference pairs and a file holds something else."""
    if layout.format == PREFERENCE:
        return None
    return TunesmithError(
        "dataset-column-missing",
        "{path}: this objective learns from preference pairs, and the rows were not recognized as such. They are "
        "read as: {format}.",
        hint="Say which columns hold the better and the worse answer, or choose SFT as the objective.",
        path=path,
        format=Sentence(CHOICE_WORDS[layout.format]),
    )


def to_preference(row: Mapping[str, Any], layout: Layout, place: Place) -> Preference:
    """Turn a row of preference pairs into both of its answers.

    Raises:
        UserError: as `to_messages`; `dataset-parse-error` also where both answers are the same.
    """
    columns = layout.columns
    swapped = replace(layout, columns={**columns, "chosen": columns["rejected"], "rejected": columns["chosen"]})
    reader = _RowReader(row, layout, place)
    chosen, rejected = _preferred(reader), _preferred(_RowReader(row, swapped, place))
    if _asked_by(chosen) != _asked_by(rejected):
        raise TunesmithError(
            "dataset-parse-error",
            '{place}: the answers in the columns "{chosen}" and "{rejected}" are to different questions.',
            place=reader.placed(),
            chosen=columns["chosen"],
            rejected=columns["rejected"],
        )
    if chosen == rejected:
        raise TunesmithError(
            "dataset-parse-error",
            SAME_ANSWERS.template,
            place=reader.placed(),
            chosen=columns["chosen"],
            rejected=columns["rejected"],
        )
    return Preference(chosen, rejected)


def _asked_by(conversation: Chat | PromptCompletion) -> object:
    """Return what comes before the first answer."""
    if isinstance(conversation, PromptCompletion):
        return conversation.prompt
    return list(takewhile(lambda message: message["role"] != "assistant", conversation.messages))


def _chat(reader: _RowReader, messages: list[Message], first_trained: int = 0) -> Chat:
    """Return messages as a chat with what else the row says."""
    system = reader.system()
    if system and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": system}, *messages]
        first_trained += bool(first_trained)
    return Chat(tuple(messages), first_trained, reader.tools())


def is_wanted(row: Mapping[str, Any], layout: Layout) -> bool:
    """Return False for a row whose label says that its answer is a bad one."""
    column = layout.columns.get("label")
    return column is None or layout.bad_number is not None or _truth(row.get(column)) is not False


def _truth(value: object) -> bool | None:
    """Return what a label says; None where it says nothing."""
    if isinstance(value, str):
        return TRUTHS.get(value.strip().lower())
    return bool(value) if isinstance(value, bool | int | float) else None


def _preferred(reader: _RowReader) -> Chat | PromptCompletion:
    """Return the better answer with its question, which both answers may hold as their common beginning."""
    asked = message_list(reader.row.get(reader.layout.columns.get("prompt", "")))
    chosen, rejected = (_spoken(reader.row.get(reader.layout.columns[role])) for role in ("chosen", "rejected"))
    if not isinstance(chosen, list) and not isinstance(asked, list):
        return _preferred_text(reader, rejected, is_asked=asked is not None)
    answer = reader.messages("chosen", chosen) if isinstance(chosen, list) else reader.turn("chosen", "assistant")
    reader.require_answer("chosen", answer)
    before = [] if asked is None else reader.turn("prompt", "user")
    if before and not _begins_with(answer, before):
        return _chat(reader, [*before, *answer], len(before))
    # The answers are whole chats, which hold the question, too.
    num_common = _common(chosen, rejected) if isinstance(rejected, list) else len(before)
    answers = [place for place, message in enumerate(answer) if message["role"] == "assistant"]
    return _chat(reader, answer, min(num_common, answers[-1]))


def _begins_with(chat: Sequence[Message], before: Sequence[Message]) -> bool:
    """Return whether a chat begins with some messages; what the system says of it counts for neither."""
    first, second = (
        [(each["role"], each["content"]) for each in messages if each["role"] != "system"]
        for messages in (chat, before)
    )
    return len(second) < len(first) and first[: len(second)] == second


def _preferred_text(reader: _RowReader, rejected: object, *, is_asked: bool) -> Chat | PromptCompletion:
    answer = reader.text("chosen")
    if not is_asked:
        start = _common(answer, rejected) if isinstance(rejected, str) else 0
        return PromptCompletion(answer[:start], answer[start:])
    question = "\n\n".join(part for part in (reader.text("prompt"), reader.optional_text("input")) if part)
    return _asked(reader, question, answer)


def _asked(reader: _RowReader, question: str, answer: str) -> Chat | PromptCompletion:
    """Return a question and its answer, as a chat where the row says more than these."""
    if not reader.system() and not reader.tools():
        return PromptCompletion(question, answer, as_chat=reader.layout.format != RAW)
    return _chat(reader, [{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


def _common(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how long the common beginning of two texts or lists is; a text is cut before a word."""
    num = next((place for place, (one, two) in enumerate(zip(first, second, strict=False)) if one != two), 0)
    return first.rfind(" ", 0, num + 1) + 1 if isinstance(first, str) and num else num


def _spoken(value: Any) -> Any:  # Any: JSON values
    """Return the messages of an answer; a text of a whole dialogue is split where somebody else speaks."""
    value = message_list(value)
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, str) or not DIALOGUE.match(value):
        return value
    return [{"role": speaker, "content": text.strip()} for speaker, text in split_by(DIALOGUE, value)]


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


def _prompt_completion(reader: _RowReader) -> Chat | PromptCompletion:
    prompt, completion = reader.value("prompt"), reader.value("completion")
    if not isinstance(prompt, list) and (reader.layout.are_held or not isinstance(completion, list)):
        parts = (reader.text("prompt", may_be_empty=True), reader.optional_text("input"))
        return _asked(reader, "\n\n".join(filter(None, parts)), reader.text("completion"))
    question, answer = reader.turn("prompt", "user"), reader.turn("completion", "assistant")
    reader.require_answer("completion", answer)
    return _chat(reader, [*question, *answer], len(question))


def _multiple_choice(reader: _RowReader) -> PromptCompletion:
    """Return a question below what it is about, with its options a line each, and the label of the right one."""
    question, options = reader.text("question"), reader.options()
    if about := reader.optional_text("context").strip():
        question = f"{about}\n\n{question}"
    lines = (f"{label}. {str(text).strip()}" for label, text in options.items())
    return PromptCompletion("\n".join((question.rstrip(), *lines)), reader.right_label(options), between="\n")


@dataclass(frozen=True, slots=True)
class _RowReader:
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
