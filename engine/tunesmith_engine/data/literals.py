"""What looks like a special token inside a person's data: text to be learned letter by letter, no control token.

A `<|im_end|>` in a question would end the user's turn in the middle, and whoever wrote the data could speak as the
assistant. Before a chat template sees a chat, such a word is replaced by as many letters of the private use area, so
that places in the text stay the same; afterwards the word is put back and its place is known.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunesmith_core.datafmt import Chat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Span = tuple[int, int]
"""First character and the one after the last."""

FIRST = 0xE200
"""Letter that stands for the first special token; the others follow."""

MOST = 0xF8FF - FIRST
FILL = "\ue0f3"
STAND_IN = re.compile(f"[{chr(FIRST)}-{chr(FIRST + MOST)}]{FILL}+")


class Literals:
    """The special tokens of a tokenizer, and how often they stood in data.

    Args:
        tokenizer: a fast tokenizer.

    Attributes:
        counts: how often each special token stood in the rows so far.
        num_rows: rows with at least one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = {token.content: token for token in tokenizer.added_tokens_decoder.values() if token.special}
        words = sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)
        self._words = [word for word in words if len(word) > 1][:MOST]
        self._numbers = {word: number for number, word in enumerate(self._words)}
        self._pattern = re.compile("|".join(map(re.escape, self._words)) or "(?!)")
        # White space beside some tokens belongs to them.
        control = [
            ("\\s*" if word in added and added[word].lstrip else "")
            + re.escape(word)
            + ("\\s*" if word in added and added[word].rstrip else "")
            for word in self._words
        ]
        self._control = re.compile("|".join(control) or "(?!)")
        self.counts: Counter[str] = Counter()
        self.num_rows = 0

    def count(self, *texts: str) -> None:
        """Count the special tokens of one row of plain text."""
        found = [word for text in texts for word in self._pattern.findall(text)]
        self.counts.update(found)
        self.num_rows += bool(found)

    def hidden(self, chat: Chat) -> Chat:
        """Return a chat without special tokens, letters of the private use area in their place; counts them."""
        before = self.counts.total()
        messages, tools = self._hidden(chat.messages), self._hidden(chat.tools)
        if self.counts.total() == before:
            return chat
        self.num_rows += 1
        return replace(chat, messages=messages, tools=tools)

    def restored(self, text: str) -> tuple[str, list[Span]]:
        """Put the words back into a rendered chat; return the text and where they stand."""
        spans: list[Span] = []

        def word(found: re.Match[str]) -> str:
            number, length = ord(found.group()[0]) - FIRST, found.end() - found.start()
            if number >= len(self._words) or len(self._words[number]) != length:
                return found.group()
            spans.append(found.span())
            return self._words[number]

        return STAND_IN.sub(word, text), spans

    def encode(self, text: str, literals: list[Span]) -> tuple[list[int], list[Span]]:
        """Return ids and places of the tokens of a text in which some special tokens are text.

        The stretch between two control tokens in which such a word stands is tokenised without special tokens, the
        rest as always: a tokenizer begins anew behind each special token anyway.
        """
        starts = {start for start, _ in literals}
        controls = [found for found in self._control.finditer(text) if not _within(found, literals)]
        bounds = [0, *(place for found in controls for place in found.span()), len(text)]
        ids: list[int] = []
        places: list[Span] = []
        as_always = 0
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            if any(start <= literal < end for literal in starts):
                for first, last, split in ((as_always, start, False), (start, end, True)):
                    self._append(text, first, last, split, ids, places)
                as_always = end
        self._append(text, as_always, len(text), False, ids, places)
        return ids, places

    def _append(self, text: str, start: int, end: int, split: bool, ids: list[int], places: list[Span]) -> None:
        encoded: Any = self._tokenizer(  # Any: a BatchEncoding, one of several types by its flags
            text[start:end],
            add_special_tokens=False,
            return_offsets_mapping=True,
            split_special_tokens=split,
            verbose=False,
        )
        ids += encoded["input_ids"]
        places += [(start + first, start + last) for first, last in encoded["offset_mapping"]]

    def _hidden(self, value: Any) -> Any:  # Any: JSON values
        if isinstance(value, str):
            return self._pattern.sub(self._stand_in, value)
        if isinstance(value, dict):
            return {key: self._hidden(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._hidden(each) for each in value)
        return value

    def _stand_in(self, found: re.Match[str]) -> str:
        self.counts[found.group()] += 1
        return chr(FIRST + self._numbers[found.group()]) + FILL * (len(found.group()) - 1)


def _within(found: re.Match[str], spans: list[Span]) -> bool:
    return any(start < found.end() and found.start() < end for start, end in spans)
