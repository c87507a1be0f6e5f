"""Rows that are too long in several shorter ones: texts between paragraphs, chats between turns."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from tunesmith_core.datafmt import Layout, Row, to_messages
from tunesmith_core.datafmt.message_lists import in_turn, turn_names
from tunesmith_core.datafmt.sniffing import TEMPLATE_TOKENS
from tunesmith_core.errors import UserError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.render import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PIECE = re.compile(r".+?(?:\n\s*\n|(?<=[.!?])\s+|(?<=[。！？])|\n|$)", re.DOTALL)
"""A paragraph, a line or a sentence."""


class Splitter:
    """Splits rows at the context length.

    Args:
        tokenizer: of the base model.
        data: with the context length.
        portions: told which row is being measured.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, data: DataSpec, portions: Portions) -> None:
        self._renderer, self._limit, self._data = Renderer(tokenizer, data, portions), data.context_length, data
        self.special_tokens = tokenizer.all_special_tokens

    def is_too_long(self, row: Row, layout: Layout, place: str) -> bool:
        """Return whether a row has more tokens than the context length; one that can't be rendered has not."""
        if len(str(row).encode("utf-8", "replace")) + TEMPLATE_TOKENS + len(self._data.system_prompt) <= self._limit:
            return False
        try:
            rendered = self._renderer.render(to_messages(row, layout, place), place)
        except UserError:
            return False
        return any(len(each.example.input_ids) > self._limit for each in self._renderer.tokenise([rendered]))

    def parts(self, row: Row, layout: Layout, place: str) -> list[Row]:
        """Return a row in parts that fit; a part that can't be split further stays too long."""
        column = next(iter(layout.columns.values()))
        value = row.get(column)
        if layout.format == "text" and isinstance(value, str):
            units: list[Any] = _PIECE.findall(value)  # Any: texts or turns
            return [{**row, column: "".join(part)} for part in self._packed(units, row, layout, place, column, "")]
        if layout.format in ("messages", "sharegpt") and isinstance(value, list):
            first = value[:1] if _role(value[0]) == "system" else []
            turns = _turns(value[len(first) :])
            return [
                {**row, column: [*first, *chain.from_iterable(part)]}
                for part in self._packed(turns, row, layout, place, column, first)
            ]
        return [row]

    def _packed(
        self,
        units: list[Any],
        row: Row,
        layout: Layout,
        place: str,
        column: str,
        start: Any,  # Any: texts or turns
    ) -> list[list[Any]]:
        """Return units in groups, each as large as fits."""
        groups: list[list[Any]] = []
        for unit in units:
            whole = start
            for each in [*(groups[-1] if groups else []), unit]:
                whole = whole + each
            if groups and not self.is_too_long({**row, column: whole}, layout, place):
                groups[-1].append(unit)
            else:
                groups.append([unit])
        return groups


def _role(message: Any) -> str:  # Any: JSON values
    return str(message.get("role", message.get("from"))) if isinstance(message, dict) else ""


def _turns(messages: list[Any]) -> list[list[Any]]:  # Any: JSON values
    """Return messages in groups that each begin with a question."""
    if turn_names(messages):
        return [[pair] for pair in messages]
    if in_turn(messages) is not messages:
        return [messages[place : place + 2] for place in range(0, len(messages), 2)]
    turns: list[list[Any]] = []
    for message in messages:
        if not turns or _role(message) in ("user", "human"):
            turns.append([])
        turns[-1].append(message)
    return turns
