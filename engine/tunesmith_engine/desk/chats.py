"""Rows of any layout as chats of messages, so that rows of several layouts make one file, or as they are.

A chat needs an answer, so that rows without one are left out of chats; files of rows as they are keep them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tunesmith_core.datafmt import Chat, Layout, PromptCompletion, Row, decided, is_wanted, to_messages
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.host import Host
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.problems import rule_of_error
from tunesmith_engine.desk.reading import Opened, open_tolerantly
from tunesmith_engine.desk.shapes import Shape

REFUSED, UNANSWERED, LEFT_OUT, LOST = "refused", "unanswered", "left out", "lost: "
"""What is counted: rows that are no conversation, those without an answer, those whose label says that their answer is
a bad one, and each column that a chat has no place for."""

REJECTED = "rejected"
"""Role of the worse answer of a preference pair, which a chat has no place for."""


def as_chats(rows: Iterable[tuple[Opened, Row]], counts: Counter[str]) -> Iterator[Row]:
    """Yield rows as chats; those that can't be are counted.

    Raises:
        UserError: why a file was not recognized.
    """
    for file, row in rows:
        if file.problem is not None:
            raise file.problem
        assert file.layout is not None, "it has rows, and no problem"
        if not is_wanted(row, file.layout):
            counts[LEFT_OUT] += 1
            continue
        try:
            chat = _chat(row, file.layout)
        except UserError as error:
            counts[UNANSWERED if _is_unanswered(error) else REFUSED] += 1
        else:
            counts.update(LOST + name for name in _lost(row, chat, file.layout))
            yield chat


def count_unanswered(
    rows: Iterable[tuple[Opened, Row]], counts: Counter[str]
) -> Iterator[tuple[Opened, Row]]:
    """Yield rows unchanged; those without an answer are counted."""
    last, shape = None, Shape(None)
    quick_texts = shape.quick_texts
    for file, row in rows:
        if file is not last:
            last, shape = file, Shape(file.layout)
            quick_texts = shape.quick_texts
        if quick_texts(row) is None:
            try:
                shape.look(row, "")
            except UserError as error:
                counts[UNANSWERED] += _is_unanswered(error)
        yield file, row


def _is_unanswered(error: UserError) -> bool:
    return rule_of_error(error, is_read=True) == "empty-answer"


def lost_columns(counts: Counter[str]) -> dict[str, int]:
    """Return the columns that chats have no place for, and in how many rows each held something."""
    return {name.removeprefix(LOST): number for name, number in counts.items() if name.startswith(LOST)}


def _lost(row: Row, chat: Row, layout: Layout) -> list[str]:
    """Return the columns of a row whose values are not in its chat."""
    if chat is row:
        return []
    columns = decided(row, layout, "").columns
    kept = {column for role, column in columns.items() if role != REJECTED}
    return [name for name, value in row.items() if name not in kept and value not in (None, "", [], {})]


def _chat(row: Row, layout: Layout) -> Row:
    """Return a row as a chat. Raises UserError for one that is no conversation."""
    conversation = to_messages(row, layout, "")
    if isinstance(conversation, Chat):
        tools = {"tools": list(conversation.tools)} if conversation.tools else {}
        return {"messages": list(conversation.messages), **tools}
    if isinstance(conversation, PromptCompletion):
        question = {"role": "user", "content": conversation.prompt}
        return {"messages": [question, {"role": "assistant", "content": conversation.completion}]}
    # A text or a row of tokens is no chat.
    return row


def differ(host: Host, sources: Sequence[SourceSpec]) -> bool:
    """Return whether files are laid out differently, by their first rows.

    Raises:
        UserError: `usage` when some of them hold texts or tokens, which are no chats; why one was not recognized.
    """
    layouts: dict[str, Layout] = {}
    problems: list[UserError] = []
    for source in sources:
        for file in open_tolerantly(source, host.portions, lambda _path, _line, _error: None):
            if file.layout is not None:
                layouts[file.path] = file.layout
            elif file.problem is not None:
                problems.append(file.problem)
    found = list(layouts.values())
    if not found or (not problems and all(each == found[0] for each in found)):
        return False
    if problems:
        raise problems[0]
    for path, layout in layouts.items():
        if layout.format in ("text", "tokens"):
            raise TunesmithError(
                "usage",
                "{path} holds no questions and answers, as another file does. They can't be mixed.",
                hint="Mix files of texts, or files of questions, answers and chats.",
                path=path,
            )
    return True
