"""How rows of each shape become conversations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.datafmt.formats import (
    LABELED,
    MULTIPLE_CHOICE,
    NO_ANSWER,
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
    Text,
)
from tunesmith_core.datafmt.message_lists import in_turn, message_list
from tunesmith_core.datafmt.row_reader import RowReader
from tunesmith_core.datafmt.transcripts import split_by
from tunesmith_core.datafmt.verdicts import A_WINS, B_WINS, TIE, WINNER, verdict
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence
from tunesmith_core.spec_sections import CHOICE_WORDS

TRUTHS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
DIALOGUE = re.compile(r"(?:^|\n\n)\s{0,16}(Human|Assistant):")
"""How a speaker begins in the dialogues of Bai et al. 2022 (arXiv 2204.05862), which may be one answer only."""

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
    reader = RowReader(row, layout, place)
    if layout.format == "text":
        return Text(reader.text("text"))
    if layout.format in ("prompt-completion", RAW):
        return _prompt_completion(reader)
    if layout.format in (MULTIPLE_CHOICE, LABELED):
        return (_labeled if layout.format == LABELED else _multiple_choice)(reader)
    if layout.format in (TOKENS, STEPS):
        return reader.tokens() if layout.format == TOKENS else reader.stepped()
    if layout.format == PREFERENCE:
        return _preferred(RowReader(row, decided(row, layout, place), place))
    if layout.format == PROMPT_ONLY:
        columns = {**layout.columns, "completion": NO_ANSWER}
        return _prompt_completion(RowReader({**row, NO_ANSWER: NO_ANSWER}, replace(layout, columns=columns), place))
    if layout.format == "alpaca":
        question = "\n\n".join(part for part in (reader.text("instruction"), reader.optional_text("input")) if part)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": reader.text("output")}]
        messages = [*reader.history(), *messages]
    else:
        role = ROLES[layout.format][0].name
        messages = reader.messages(role, in_turn(message_list(reader.value(role))))
        reader.require_answer(role, messages)
    return _chat(reader, messages)


def _labeled(reader: RowReader) -> Labeled:
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
        hint="Say which columns hold the better and the worse answer, or teach by example (SFT).",
        path=path,
        format=Sentence(CHOICE_WORDS[layout.format]),
    )


def to_preference(row: Mapping[str, Any], layout: Layout, place: Place) -> Preference:
    """Turn a row of preference pairs into both of its answers.

    Raises:
        UserError: as `to_messages`; `dataset-parse-error` also where both answers are the same.
    """
    layout = decided(row, layout, place)
    columns, swapped = layout.columns, _swapped(layout)
    reader = RowReader(row, layout, place)
    chosen, rejected = _preferred(reader), _preferred(RowReader(row, swapped, place))
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


def decided(row: Mapping[str, Any], layout: Layout, place: Place) -> Layout:
    """Return the layout of a pair in which "chosen" is the better answer, which of a vote may be answer B.

    Raises:
        UserError: `dataset-parse-error` where the row doesn't say which one is better.
    """
    if WINNER not in layout.columns:
        return layout
    reader = RowReader(row, layout, place)
    value = reader.value(WINNER)
    said = verdict(value)
    if said not in (A_WINS, B_WINS):
        raise TunesmithError(
            "dataset-parse-error",
            '{place}, column "{column}": {value} does not say which answer is better.',
            hint="Write A, B or tie.",
            place=reader.placed(),
            column=layout.columns[WINNER],
            value=repr(value)[:MAX_NAME] if value not in (None, "") else Sentence("nothing"),
        )
    layout = replace(layout, columns={role: name for role, name in layout.columns.items() if role != WINNER})
    return layout if said == A_WINS else _swapped(layout)


def _swapped(layout: Layout) -> Layout:
    columns = layout.columns
    return replace(layout, columns={**columns, "chosen": columns["rejected"], "rejected": columns["chosen"]})


def _asked_by(conversation: Chat | PromptCompletion) -> object:
    """Return what comes before the first answer."""
    if isinstance(conversation, PromptCompletion):
        return conversation.prompt
    return list(takewhile(lambda message: message["role"] != "assistant", conversation.messages))


def _chat(reader: RowReader, messages: list[Message], first_trained: int = 0) -> Chat:
    """Return messages as a chat with what else the row says."""
    system = reader.system()
    if system and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": system}, *messages]
        first_trained += bool(first_trained)
    return Chat(tuple(messages), first_trained, reader.tools())


def is_wanted(row: Mapping[str, Any], layout: Layout) -> bool:
    """Return False for a row whose label says that its answer is a bad one, and for a vote that is a tie."""
    if WINNER in layout.columns:
        return verdict(row.get(layout.columns[WINNER])) != TIE
    column = layout.columns.get("label")
    return column is None or layout.bad_number is not None or _truth(row.get(column)) is not False


def _truth(value: object) -> bool | None:
    """Return what a label says; None where it says nothing."""
    if isinstance(value, str):
        return TRUTHS.get(value.strip().lower())
    return bool(value) if isinstance(value, bool | int | float) else None


def _preferred(reader: RowReader) -> Chat | PromptCompletion:
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


def _preferred_text(reader: RowReader, rejected: object, *, is_asked: bool) -> Chat | PromptCompletion:
    answer = reader.text("chosen")
    if not is_asked:
        start = _common(answer, rejected) if isinstance(rejected, str) else 0
        return PromptCompletion(answer[:start], answer[start:])
    question = "\n\n".join(part for part in (reader.text("prompt"), reader.optional_text("input")) if part)
    return _asked(reader, question, answer)


def _asked(reader: RowReader, question: str, answer: str) -> Chat | PromptCompletion:
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


def _prompt_completion(reader: RowReader) -> Chat | PromptCompletion:
    prompt, completion = reader.value("prompt"), reader.value("completion")
    if not isinstance(prompt, list) and (reader.layout.are_held or not isinstance(completion, list)):
        parts = (reader.text("prompt", may_be_empty=True), reader.optional_text("input"))
        return _asked(reader, "\n\n".join(filter(None, parts)), reader.text("completion"))
    question, answer = reader.turn("prompt", "user"), reader.turn("completion", "assistant")
    reader.require_answer("completion", answer)
    return _chat(reader, [*question, *answer], len(question))


def _multiple_choice(reader: RowReader) -> PromptCompletion:
    """Return a question below what it is about, with its options a line each, and the label of the right one."""
    question, options = reader.text("question"), reader.options()
    if about := reader.optional_text("context").strip():
        question = f"{about}\n\n{question}"
    lines = (f"{label}. {str(text).strip()}" for label, text in options.items())
    return PromptCompletion("\n".join((question.rstrip(), *lines)), reader.right_label(options), between="\n")
