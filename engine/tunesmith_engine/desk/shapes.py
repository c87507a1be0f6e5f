"""The texts of rows: quickly for a row like those before it, slowly and exactly for any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tunesmith_core.datafmt import (
    Chat,
    Conversation,
    Layout,
    PromptCompletion,
    Row,
    decided,
    is_wanted,
    to_labeled,
    to_messages,
    to_preference,
)
from tunesmith_core.datafmt.formats import ANSWER_ROLES, MULTIPLE_CHOICE, PREFERENCE
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message
from tunesmith_engine.desk.places import Keys
from tunesmith_engine.desk.problems import EQUAL_PAIR

NO_TEXTS = frozenset({"role", "from", "type", "id", "tool_call_id"})
"""Names of values that say what a text is."""

MOST_ORDERS = 10_000
"""Orders of roles that are remembered."""

MESSAGE_NAMES = {"messages": ("role", "content"), "sharegpt": ("from", "value")}

RULES_OF_MARKS = frozenset({"special-token-in-text", "html"})
"""Rules that would name the marks of who speaks in a chat that is one text."""

TABLES = frozenset({"prompt-completion", "prompt-completion-raw", "alpaca", "text"})
"""Formats whose columns are texts and nothing else."""


QuickTexts = Callable[[Row], list[str] | None]


def _nothing(_row: Row) -> None:
    """Leave a row to a close look."""


def leaves(value: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[Keys, str]]:  # Any: JSON values
    """Yield the way to each text of a value, and the text."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in NO_TEXTS:
                yield from leaves(each, (*keys, name))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from leaves(each, (*keys, place))


@dataclass(slots=True)
class Shape:
    """How the rows of one file are laid out.

    Attributes:
        layout: None where it was not recognized; all columns are texts then.
        in_pairs: whether both answers of preference pairs are learned from.
        answer_place: place of the answer among the quick texts of a row; None where there is none.
    """

    layout: Layout | None
    in_pairs: bool = False
    answer_place: int | None = field(default=None, init=False)
    _columns: tuple[str, ...] = field(default=(), init=False)
    _names: tuple[str, str] | None = field(default=None, init=False)
    _orders: set[tuple[str, ...]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.layout is None:
            return
        self._columns = tuple(self.layout.columns.values())
        self._names = MESSAGE_NAMES.get(self.layout.format)
        roles = list(self.layout.columns)
        places = [roles.index(role) for role in ANSWER_ROLES if role in roles]
        ends_with_answer = self._names or self.layout.format == MULTIPLE_CHOICE
        self.answer_place = -1 if ends_with_answer else next(iter(places), None)

    def leaves(self, row: Row, rule: str = "") -> list[tuple[Keys, str]]:
        """Return the way to each text of a row that is trained on, and the text; those that a rule is for."""
        if rule in RULES_OF_MARKS and self._names and isinstance(row.get(self._columns[0]), str):
            return []
        names = [name for name in self._columns if name in row] if self.layout else list(row)
        return [leaf for name in names for leaf in leaves(row[name], (name,))]

    @property
    def quick_texts(self) -> QuickTexts:
        """What returns the texts of a row that is surely sound, and None of any other."""
        if self._names and len(self._columns) == 1:
            return self._quick_chat(self._columns[0], *self._names)
        if self.layout is not None and self.layout.format == MULTIPLE_CHOICE:
            return self._choice_texts
        is_table = self.layout is not None and self.layout.format in TABLES and "label" not in self.layout.columns
        return self._quick_table if is_table else _nothing

    def _quick_table(self, row: Row) -> list[str] | None:
        texts = []
        try:
            for name in self._columns:
                text = row[name]
                if not text.strip():
                    return None
                texts.append(text)
        except (KeyError, AttributeError):
            return None
        return texts

    def _choice_texts(self, row: Row) -> list[str] | None:
        """Return what a run makes of a question with options; no column says it, for an answer may be a number."""
        assert self.layout is not None, "its format is known"
        try:
            pair = to_messages(row, self.layout, "")
        except UserError:
            return None
        assert isinstance(pair, PromptCompletion), "all questions with options are"
        return [pair.prompt, pair.completion]

    def _quick_chat(self, column: str, role: str, content: str) -> QuickTexts:
        orders = self._orders

        def texts_of(row: Row) -> list[str] | None:
            roles, texts = [], []
            try:
                for message in row[column]:
                    text = message[content]
                    if len(message) != 2 or not text.strip():
                        return None
                    roles.append(message[role])
                    texts.append(text)
                # A role may be a list, of which there is no hash.
                is_known = tuple(roles) in orders
            except (KeyError, TypeError, AttributeError):
                return None
            return texts if is_known else None

        return texts_of

    def look(self, row: Row, place: str) -> tuple[Keys, Message] | None:
        """Look closely at a row; return where and what is wrong with the order of its turns, None for nothing.

        Raises:
            UserError: when it can't be trained on.
        """
        if self.layout is None or not is_wanted(row, self.layout):
            return None
        is_pair = self.in_pairs and self._is_of_pairs
        better = to_preference(row, self.layout, place).chosen if is_pair else None
        conversation = better or self._conversation(row, self.layout, place)
        if not isinstance(conversation, Chat):
            return None
        problem = order_problem([message["role"] for message in conversation.messages])
        messages = row.get(self._columns[0])
        if problem is None:
            if len(self._orders) < MOST_ORDERS:
                self._remember(messages)
            return None
        # A system message of a column of its own is put before the others.
        before = len(conversation.messages) - len(messages) if isinstance(messages, list) else 0
        return (self._columns[0], max(0, problem[0] - before)), problem[1]

    def _conversation(self, row: Row, layout: Layout, place: str) -> Conversation:
        if layout.bad_number is None:
            return to_messages(row, layout, place)
        return next(iter(to_labeled(row, layout, place)))[0]

    @property
    def _is_of_pairs(self) -> bool:
        return self.layout is not None and self.layout.format == PREFERENCE

    def pair_problem(self, row: Row) -> tuple[str, Keys, Message] | None:
        """Return the rule that a preference pair breaks, where and what is wrong with it, None for nothing."""
        if self.layout is None or not self._is_of_pairs:
            return None
        columns = decided(row, self.layout, "").columns
        column = columns["rejected"]
        rejected = row.get(column)
        if row.get(columns["chosen"]) == rejected:
            return "equal-pair", (), EQUAL_PAIR
        is_missing = not rejected or (isinstance(rejected, str) and not rejected.strip())
        keys = (column,) if column in row else ()
        return ("half-pair", keys, Message("the rejected answer is empty.")) if is_missing else None

    def pair_hashes(self, row: Row) -> tuple[int, int] | None:
        """Return a hash of a preference pair, and that of the pair with its answers exchanged."""
        if self.layout is None or not self._is_of_pairs:
            return None
        columns = decided(row, self.layout, "").columns
        asked = tuple(repr(row.get(column)) for role, column in columns.items() if role not in ("chosen", "rejected"))
        chosen, rejected = (repr(row.get(columns[role])) for role in ("chosen", "rejected"))
        return hash((asked, chosen, rejected)), hash((asked, rejected, chosen))

    def _remember(self, messages: Any) -> None:  # Any: JSON values
        if self._names and isinstance(messages, list):
            roles = [message.get(self._names[0]) for message in messages if isinstance(message, dict)]
            named = tuple(role for role in roles if isinstance(role, str))
            if len(named) == len(messages):
                self._orders.add(named)

    def answer(self, row: Row) -> str:
        """Return the answer of a row, "" where there is none or it is no text."""
        if self.layout is None or self.answer_place is None:
            return ""
        value = row.get(self._columns[self.answer_place])
        if self._names:
            messages = row.get(self._columns[0])
            last = messages[-1] if isinstance(messages, list) and messages else None
            value = last.get(self._names[1]) if isinstance(last, dict) else None
        return value if isinstance(value, str) else ""


def order_problem(roles: list[str]) -> tuple[int, Message] | None:
    """Return which message and what is wrong with the order of roles as templates call them, None for nothing."""
    for place, role in enumerate(roles):
        if role == "system" and place:
            words = Message("message {number} is a system message, which belongs at the beginning.", number=place + 1)
            return place, words
    turns = [(place, role) for place, role in enumerate(roles) if role != "system"]
    if turns and turns[0][1] == "assistant":
        return turns[0][0], Message("the chat begins with an answer.")
    for (_, before), (place, role) in pairwise(turns):
        if role == before and role != "tool":
            words = Message("messages {first} and {second} have the same role.", first=place, second=place + 1)
            return place, words
        if before == "user" and role == "tool":
            return place, Message("message {number} is a tool result that nothing asked for.", number=place + 1)
    if turns and turns[-1][1] != "assistant":
        return turns[-1][0], Message("the chat ends without an answer.")
    return None
