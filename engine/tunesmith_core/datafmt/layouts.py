"""Which format the rows of a file have, and which of their columns plays which role."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tunesmith_core.datafmt.choices import are_apart, first_number, may_hold_options
from tunesmith_core.datafmt.encoding import BY_COLUMNS, MAX_NAME
from tunesmith_core.datafmt.formats import (
    ANSWER_ROLES,
    LABELED,
    MAX_LISTED,
    MULTIPLE_CHOICE,
    ONLY_CHOSEN,
    OPTION_LISTS,
    PREFERENCE,
    PROMPT_ONLY,
    RAW,
    ROLES,
    STEPS,
    TOKENS,
    Layout,
    Role,
    Unreadable,
    listed,
)
from tunesmith_core.datafmt.guessing import WORDS_OF_SENTENCE, guess_columns, guess_format, is_data, speaking_columns
from tunesmith_core.datafmt.held import held_text
from tunesmith_core.datafmt.message_lists import MESSAGE_SPEAKERS, held_list, in_turn, message_list
from tunesmith_core.datafmt.transcripts import is_transcript
from tunesmith_core.datafmt.unsuited import IN_ONE_WAY, columns_problem, may_be
from tunesmith_core.datafmt.verdicts import WINNER, vote_columns
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import LISTED, Message, joined

MESSAGE_SHAPES = {"messages": {"role", "content"}, "sharegpt": {"from", "value"}}
MESSAGE_NAMES = (*MESSAGE_SHAPES.values(), {"role", "text", "parent_id"})
"""Columns that are no row's but a message's: "content" alone would be taken for plain text."""

CONTEXT_ROLES = {MULTIPLE_CHOICE: "context", "prompt-completion": "input", RAW: "input"}
"""Of each format the role of what its question is about."""


def resolve_layout(
    rows: Iterable[Mapping[str, Any]],
    format_name: str = "auto",
    columns: Mapping[str, str] | None = None,
    source: str = "",
) -> Layout:
    """Decide how the rows of a file are to be read.

    Args:
        rows: the first rows of the file, at least one.
        format_name: of the data source.
        columns: of the data source, role to column; roles that it leaves out are found by the usual names.
        source: named in the error.

    Raises:
        UserError: `dataset-column-missing` when no format fits the columns, or none is called as `columns` says,
            `dataset-parse-error` when a row holds one message of a chat, `spec-invalid` when `columns` names no role,
            `dataset-unsuited` when the rows hold nothing of what an objective reads in one way only.
    """
    rows = list(rows)
    present = list(dict.fromkeys(name for row in rows for name in row))
    given = dict(columns or {})
    candidates = [name for name in ROLES if name not in ONLY_CHOSEN] if format_name == "auto" else [format_name]
    known = {role.name for name in candidates for role in ROLES[name]}
    unknown = sorted(given.keys() - known)
    if unknown:
        problem = f'"{unknown[0]}" is no role of the format {format_name}: {", ".join(sorted(known))}.'
        raise TunesmithError("spec-invalid", "Column mapping: {problem}", problem=problem)
    _refuse_misnamed(candidates, present, given, source)
    if format_name == "auto" and not given and any(names <= set(present) for names in MESSAGE_NAMES):
        raise TunesmithError(
            "dataset-parse-error",
            '{source}: each row is a single message, not a whole chat. A chat is one row: {{"messages": [...]}}.',
            hint="Put the messages of each chat into one row, or choose another file.",
            source=source,
        )
    if format_name == "auto" and not given and len(rows) == 1 and _is_by_columns(rows[0]):
        raise TunesmithError("dataset-parse-error", "{place}: {problem}", place=source, problem=BY_COLUMNS)
    if PREFERENCE in candidates and not given and (voted := vote_columns(rows)):
        return Layout(PREFERENCE, _mapping(ROLES[PREFERENCE], present, voted))
    for name in candidates:
        layout = Layout(name, _mapping(ROLES[name], present, given))
        if given.keys() <= {role.name for role in ROLES[name]} and _is_complete(layout) and _has_shape(layout, rows):
            layout = _of_values(layout, rows, given)
            return _of_transcripts(layout, rows) if format_name == "auto" and not given else layout
    if given and format_name == "auto":
        # What only pairs of answers have is named by nobody who means another format.
        names = sorted(ROLES, key=lambda name: name == PREFERENCE)
        format_name = next((name for name in names if given.keys() <= {role.name for role in ROLES[name]}), "auto")
    if format_name in IN_ONE_WAY:
        raise columns_problem(format_name, rows, given, source)
    if format_name != "auto":
        # The rows will name the column that they lack; an unmapped role is looked for under its usual name.
        usual = {role.name: role.usual_names[0] for role in ROLES[format_name] if role.required}
        return Layout(format_name, usual | _mapping(ROLES[format_name], present, given))
    return _unusual(rows, present, given, source)


def _refuse_misnamed(candidates: list[str], present: list[str], given: Mapping[str, str], source: str) -> None:
    """Refuse columns that a person named and no row has, unless they are such as rows may leave out.

    Raises:
        UserError: `dataset-column-missing` with the nearest names; its guess, role to column, has them too.
    """
    needed = {role.name for name in candidates for role in ROLES[name] if role.required} | set(OPTION_LISTS)
    missing = {role: name for role, name in given.items() if role in needed and name not in present}
    if not missing:
        return
    values: dict[str, Any] = {  # Any: words and names
        "source": source,
        "names": joined([f'"{name[:MAX_NAME]}" ({role})' for role, name in missing.items()], LISTED),
        "found": listed(present) or Message("none"),
    }
    near = {role: close for role, name in missing.items() if (close := _nearest(name, present))}
    if not near:
        raise TunesmithError(
            "dataset-column-missing", "{source}: there is no column {names}. Its columns are: {found}.", **values
        )
    raise TunesmithError(
        "dataset-column-missing",
        "{source}: there is no column {names}. Its columns are: {found}. Did you mean {near}?",
        **values,
        near=joined([f'"{name[:MAX_NAME]}"' for name in near.values()], LISTED),
        guess=json.dumps({**given, **near}, ensure_ascii=False) if near.keys() == missing.keys() else "{}",
    )


def _nearest(name: str, present: list[str]) -> str | None:
    """Return the column whose name is most like another, whatever its capital letters; None where none is like it."""
    lower = {each.strip().lower(): each for each in reversed(present[:MAX_LISTED])}
    return next((lower[each] for each in difflib.get_close_matches(name.strip().lower(), lower, 1)), None)


def _unusual(
    rows: list[Mapping[str, Any]], present: list[str], given: Mapping[str, str], source: str
) -> Layout:
    """Return the layout of rows that no format fits by its usual names; raise what `resolve_layout` says.

    The error of columns that say nothing carries a guess, role to column, which a command line shows as an example.
    """
    if not given and (held := _held_messages(rows)):
        return held
    if is_data(present):
        raise TunesmithError(
            "dataset-column-missing",
            "{source}: the row of column names looks like data: {found}. Add a row above it that names the columns, "
            "such as question and answer.",
            source=source,
            found=listed(present),
        )
    if not given and (column := _python_text(rows)):
        raise TunesmithError(
            "dataset-column-missing",
            '{source}: the column "{name}" holds messages as Python writes them. Save them as JSON, in Python with '
            "json.dumps.",
            source=source,
            name=column[:MAX_NAME],
        )
    if not given and (speaking := speaking_columns(rows)):
        return Layout("prompt-completion", speaking)
    raise TunesmithError(
        "dataset-column-missing",
        "{source}: unrecognized format. The columns are {found}.",
        hint="Map the columns: messages, instruction and output, prompt and completion, chosen "
        "and rejected, or text.",
        source=source,
        found=listed(present) or "(none)",
        guess=json.dumps(guess_columns(guess_format(rows), rows), ensure_ascii=False),
    )


def _is_by_columns(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a whole table: a list of texts for each column, all as long, or an object of them."""
    values = [list(value.values()) if isinstance(value, dict) else value for value in row.values()]
    return (
        len(values) > 1
        and all(isinstance(value, list) and value and all(isinstance(each, str) for each in value) for value in values)
        and len(set(map(len, values))) == 1
    )


def _python_text(rows: list[Mapping[str, Any]]) -> str | None:
    """Return the column that holds lists of objects as Python writes them, None for none."""
    texts = ((name, value) for row in rows for name, value in row.items() if isinstance(value, str))
    return next((name for name, value in texts if value.startswith("[{'")), None)


def _mapping(roles: tuple[Role, ...], present: list[str], given: dict[str, str]) -> dict[str, str]:
    lower = {name.lower(): name for name in reversed(present)}
    mapping: dict[str, str] = {}
    for role in roles:
        free = (lower[name] for name in role.usual_names if name in lower and lower[name] not in mapping.values())
        usual = next(free, None)
        column = given.get(role.name, usual)
        if column is not None:
            mapping[role.name] = column
    return mapping


def _of_values(layout: Layout, rows: list[Mapping[str, Any]], given: Mapping[str, str]) -> Layout:
    """Return a layout with what the values of the rows tell: where options are numbered, and which columns are none.

    Labels that are no truth values, but names of classes, are taken for none unless the person gave their column, and
    so are a context that is no text and tools that are not described, such as a hammer.
    """
    dropped = set()
    tools = [value for row in rows if (value := row.get(layout.columns.get("tools", "")))]
    if tools and not any(map(_describes_tools, tools)):
        dropped.add("tools")
    if (column := layout.columns.get("label")) and not _are(rows, column, _is_truth):
        dropped.add("label")
    if (column := layout.columns.get(CONTEXT_ROLES.get(layout.format, ""))) and not _are(rows, column, _is_any_text):
        dropped.add(CONTEXT_ROLES[layout.format])
    kept = {role: name for role, name in layout.columns.items() if role not in dropped - given.keys()}
    layout = replace(layout, columns=kept)
    if layout.format == MULTIPLE_CHOICE:
        return replace(layout, first_number=first_number(rows, layout.columns))
    answers = [row.get(kept[role]) for role in ANSWER_ROLES if role in kept for row in rows]
    held = [held_text(value) for value in answers if not isinstance(value, str)]
    return replace(layout, are_held=any(held) and len(held) == len(answers))


def _may_be_said(value: object, role: str) -> bool:
    """Return whether a value is a text, messages or an answer inside of others, or nothing that speaks against it."""
    if not isinstance(value, list | dict) or (role in ANSWER_ROLES and held_text(value) is not None):
        return True
    items = message_list(value)
    first = items[0] if isinstance(items, list) and items else items
    return isinstance(first, dict) and not MESSAGE_SPEAKERS.isdisjoint(first)


def _are(rows: list[Mapping[str, Any]], column: str, test: Callable[[object], bool]) -> bool:
    return all(test(row.get(column)) for row in rows)


def _describes_tools(value: object) -> bool:
    """Return whether a value is a list, also as JSON text; one that is broken is a fault of its row."""
    return isinstance(value, list | Unreadable) or str(value).lstrip().startswith(("[", "{"))


def _is_truth(value: object) -> bool:
    return str(value).lower() in ("true", "false")


def _is_any_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _of_transcripts(layout: Layout, rows: list[Mapping[str, Any]]) -> Layout:
    """Return the layout of chats where all plain texts are such, written down with who says what."""
    if layout.format != "text" or not _are(rows, layout.columns["text"], is_transcript):
        return layout
    return Layout("messages", {"messages": layout.columns["text"]})


def _held_messages(rows: list[Mapping[str, Any]]) -> Layout | None:
    """Return the layout of rows of which one column of any name holds messages."""
    found = dict.fromkeys(_transcripts(rows), "messages")
    for row in rows:
        for column, value in row.items():
            items = message_list(value)
            first = items[0] if isinstance(items, list) and items else None
            names = (name for name, keys in MESSAGE_SHAPES.items() if isinstance(first, dict) and keys <= first.keys())
            if name := next(names, None):
                found.setdefault(column, name)
    if len(found) > 1 or not (found := found or _held_texts(rows)):
        return None
    column, name = next(iter(found.items()))
    # A passage that the questions are about would be left out in silence.
    if any(_is_of_turns(held_list(row.get(column))) and _says_more(row, column) for row in rows):
        return None
    present = list(dict.fromkeys(key for row in rows for key in row))
    return Layout(name, _mapping(ROLES[name], present, {ROLES[name][0].name: column}))


def _transcripts(rows: list[Mapping[str, Any]]) -> list[str]:
    return [name for name in rows[0] if _are(rows, name, is_transcript)]


def _is_of_turns(value: object) -> bool:
    """Return whether a list holds questions with answers, or texts, and no messages that name who speaks."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, str) or (isinstance(first, dict) and MESSAGE_SPEAKERS.isdisjoint(first))


def _says_more(row: Mapping[str, Any], column: str) -> bool:
    texts = (value for name, value in row.items() if name != column and isinstance(value, str))
    return any(len(text.split()) >= WORDS_OF_SENTENCE for text in texts)


def _held_texts(rows: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return the one column whose lists are texts of two speakers in turn: as many answers as questions, all spoken."""
    lists = {name for row in rows for name, value in row.items() if isinstance(value, list)}
    columns = [name for name in lists if all(_is_spoken(row.get(name)) for row in rows)]
    return {columns[0]: "messages"} if len(lists) == len(columns) == 1 else {}


def _is_spoken(value: object) -> bool:
    messages = in_turn(value)
    if messages is value or len(messages) % 2:
        return False
    return all(len(message["content"].split()) > 1 for message in messages[::2])


def _is_complete(layout: Layout) -> bool:
    if layout.format == MULTIPLE_CHOICE and not (are_apart(layout.columns) or "choices" in layout.columns):
        return False
    return all(role.name in layout.columns for role in ROLES[layout.format] if role.required)


def _has_shape(layout: Layout, rows: list[Mapping[str, Any]]) -> bool:
    """Tell messages (role/content) from sharegpt (from/value), which use the same columns, and options from settings.
    """
    if layout.format == MULTIPLE_CHOICE:
        return are_apart(layout.columns) or any(may_hold_options(row.get(layout.columns["choices"])) for row in rows)
    if layout.format in IN_ONE_WAY:
        return may_be(layout.format, layout.columns, rows)
    key = {"messages": "role", "sharegpt": "from"}.get(layout.format)
    if key is None:
        roles = [role.name for role in ROLES[layout.format] if role.required and layout.format != TOKENS]
        return all(any(_may_be_said(row.get(layout.columns[role]), role) for row in rows) for role in roles)
    column = layout.columns[ROLES[layout.format][0].name]
    if layout.format == "messages" and _are(rows, column, is_transcript):
        return True
    lists = (in_turn(message_list(row.get(column))) for row in rows)
    first = next((item for items in lists if isinstance(items, list) for item in items), None)
    if first is None:
        return any(isinstance(row.get(column), Unreadable) for row in rows)
    return isinstance(first, dict) and key in first


def unused(layout: Layout, names: Iterable[str]) -> list[str]:
    """Return the columns of rows that no example is made of, in their order."""
    return [name for name in dict.fromkeys(names) if name not in layout.columns.values()]


def recognition(layout: Layout, rows: Iterable[Mapping[str, Any]] = ()) -> Message:
    """Say as what rows are read, by which columns that was recognized, and which of them are not used."""
    columns = {role: f'"{name}"' for role, name in layout.columns.items()}
    said = [_shape(layout.format, columns)]
    if about := columns.get(CONTEXT_ROLES.get(layout.format, "")):
        said.append(Message("The column {column} stands beside the question.", column=about))
    if "system" in columns:
        said.append(Message("The column {column} holds the system prompt.", column=columns["system"]))
    if "tools" in columns:
        said.append(Message("The column {column} describes tools.", column=columns["tools"]))
    if layout.bad_number is not None:
        said.append(
            Message("The column {column} says which answers are good.", column=columns["label"])
            if "label" in columns
            else Message("Each pair gives a good and a bad answer.")
        )
    elif "label" in columns:
        said.append(Message("Only rows whose column {column} is true are trained.", column=columns["label"]))
    if "logprobs" in columns:
        said.append(Message("The column {column} holds what a bigger model found likely.", column=columns["logprobs"]))
    if names := unused(layout, (name for row in rows for name in row)):
        said.append(Message("Not used: {columns}.", columns=listed(names)))
    return said[0] if len(said) == 1 else joined(said)


def _shape(name: str, columns: Mapping[str, str]) -> Message:
    """Say which column holds what, beginning with the name of the format that `CHOICE_WORDS` has."""
    if name == PREFERENCE and WINNER in columns:
        words = Message("Preference pairs: the column {winner} says which of {chosen} and {rejected} is better.")
        return Message(words.template, **columns)
    if name == PREFERENCE:
        return Message(
            "Preference pairs: the column {chosen} has the better answer, {rejected} the worse one.", **columns
        )
    if name == LABELED:
        words = Message("Text with label: the column {text} is read, and {label} says its class or its number.")
        return Message(words.template, text=columns["text"], label=columns["class"])
    if name == STEPS:
        return Message(
            "Solution steps with labels: the column {prompt} holds the problem, {steps} the steps of a solution, and "
            "{step_labels} says which are right.",
            **columns,
        )
    if name == TOKENS:
        return Message("Tokens: the column {input_ids} holds numbers of tokens, which are used as they are.", **columns)
    if name == "messages":
        return Message("Chat: the column {messages} holds the messages of each.", **columns)
    if name == "sharegpt":
        return Message('Chat (ShareGPT): the column {conversations} holds messages with "from" and "value".', **columns)
    if name == MULTIPLE_CHOICE:
        options = [column for role, column in columns.items() if role not in ("question", "answer")]
        return Message(
            "Multiple choice: the column {question} asks, and {answer} says which of {options} is right.",
            **columns,
            options=joined(options, LISTED),
        )
    if name == "alpaca":
        return Message(
            "Instruction and response (Alpaca): the column {instruction} asks, and {output} answers.", **columns
        )
    if name == RAW:
        return Message("Prompt and response as plain text: {prompt} and {completion} are joined.", **columns)
    if name == PROMPT_ONLY:
        return Message("Prompts without answers: the column {prompt} asks.", **columns)
    if name == "text":
        return Message("Plain text: the column {text} is learned whole.", **columns)
    return Message("Prompt and response: the column {prompt} asks, and {completion} answers.", **columns)
