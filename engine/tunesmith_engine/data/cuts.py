"""Examples cut, split or left out at the context length: how many, and which lose what the model should learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tunesmith_core.messages import Message, joined
from tunesmith_core.position_limits import SHORTEN
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.parts import parts
from tunesmith_engine.data.tokenising import Tokenised

FEW_OF_THEM = 0.1
"""Share of the rows that are cut that may stay so at a context length that is named beside the one for every row."""


def learned_from(example: Example) -> int:
    """Return the fewest tokens of an example that hold one to learn; 0 where it has none."""
    # Nothing predicts the first token.
    learned = example.labels[1:] != IGNORED_LABEL
    return int(learned.argmax()) + 2 if learned.any() else 0


def differ_from(chosen: Example, rejected: Example) -> int:
    """Return the fewest tokens with which the answers of a pair differ; 0 where they never do."""
    both = chosen.input_ids, rejected.input_ids
    num_common = min(map(len, both))
    differ = both[0][:num_common] != both[1][:num_common]
    if differ.any():
        return int(differ.argmax()) + 1
    return 0 if len(both[0]) == len(both[1]) else num_common + 1


def needed_tokens(answers: Sequence[Example]) -> int:
    """Return the fewest tokens with which a row has something to learn; 0 where it has nothing at any length.

    Args:
        answers: the example of the row, or both of a pair: each must have something to learn, and they must differ.
    """
    needs = [*map(learned_from, answers), *([differ_from(*answers)] if len(answers) > 1 else [])]
    return max(needs) if all(needs) else 0


def fewest(found: list[int]) -> int:
    """Return the least of what `learned_from` said of rows, 0 where none has a token to learn."""
    return min(filter(None, found), default=0)


@dataclass(slots=True)
class Cuts:
    """Cuts examples and counts what that does to them; the run and its preview count here.

    Attributes:
        limit: the context length.
        splits: whether a longer text becomes several examples.
        most: tokens for which the model is made, above which no context length is advised; 0 where nobody knows.
        num_rows: examples that are not left out; each part of a text that was split is one.
        num_cut: longer than the limit.
        num_open: cut in the middle of what is learned: the model would never see where to stop.
        cut_lengths: how many of them have how many tokens.
        num_cut_texts, num_open_texts: plain texts among these, which could be split instead.
        longest_tokens: length of the longest row before it was cut, split or left out for what it has to learn.
        longest_kept: length of the longest example behind it.
        num_split: texts that became several examples.
        num_parts: examples that they became.
        num_judged: rows of which it was asked whether they have something to learn, a pair once.
        num_beyond: of these, left out because all of it is beyond the limit.
        num_empty: left out because they have nothing to learn at any length.
        num_overlong: left out because they are longer than the limit, where such rows are skipped.
        beyond_from: the fewest tokens with which one of those beyond has something to learn.
        are_pairs: whether rows are pairs of answers.
    """

    limit: int
    splits: bool = False
    most: int = 0
    num_rows: int = 0
    num_cut: int = 0
    num_open: int = 0
    cut_lengths: Counter[int] = field(default_factory=Counter)
    num_cut_texts: int = 0
    num_open_texts: int = 0
    longest_tokens: int = 0
    longest_kept: int = 0
    num_split: int = 0
    num_parts: int = 0
    num_judged: int = 0
    num_beyond: int = 0
    num_empty: int = 0
    num_overlong: int = 0
    beyond_from: int = 0
    are_pairs: bool = False

    def skips(self, answers: Sequence[Example]) -> bool:
        """Return whether a row is longer than the limit, and count it as left out; a pair by its longer answer."""
        is_overlong = max(len(each.input_ids) for each in answers) > self.limit
        self.num_judged += is_overlong
        self.num_overlong += is_overlong
        return is_overlong

    def learns(self, answers: Sequence[Example]) -> bool:
        """Return whether a row has something to learn within the limit, and count it as left out where it has not."""
        needed = needed_tokens(answers)
        self.num_judged += 1
        self.are_pairs |= len(answers) > 1
        if 0 < needed <= self.limit:
            return True
        self.longest_tokens = max(self.longest_tokens, *(len(each.input_ids) for each in answers))
        self.num_empty += not needed
        if needed:
            self.num_beyond += 1
            self.beyond_from = fewest([self.beyond_from, needed])
        return False

    def parts(self, row: Tokenised) -> list[Tokenised]:
        """Return the examples that a row becomes: several of a longer text that is split, else the row itself."""
        if not self.splits or not row.is_text or len(row.example.input_ids) <= self.limit:
            return [row]
        found = parts(row, self.limit)
        self.longest_tokens = max(self.longest_tokens, len(row.example.input_ids))
        self.num_split += 1
        self.num_parts += len(found)
        return found

    def within(self, example: Example) -> Example:
        """Return an example within the limit: a longer one as an own copy, so that the rest is freed."""
        if len(example.input_ids) <= self.limit:
            return example
        return Example(example.input_ids[: self.limit].copy(), example.labels[: self.limit].copy())

    def cut(self, example: Example, *, is_text: bool = False) -> Example:
        """Return an example within the limit and count it: one that is not left out."""
        num_tokens = len(example.input_ids)
        self.num_rows += 1
        self.longest_tokens = max(self.longest_tokens, num_tokens)
        self.longest_kept = max(self.longest_kept, min(num_tokens, self.limit))
        if num_tokens > self.limit:
            is_open = bool((example.labels[self.limit - 1 : self.limit + 1] != IGNORED_LABEL).all())
            self.num_cut += 1
            self.cut_lengths[num_tokens] += 1
            self.num_open += is_open
            self.num_cut_texts += is_text
            self.num_open_texts += is_text and is_open
        return self.within(example)

    def notes(self, *, are_all: bool = True) -> dict[str, str]:
        """Return what a person should know, codes and sentences; nothing when every row was within the limit.

        Args:
            are_all: whether no rows of the files come behind those that were counted here.
        """
        split = Message(
            "Texts longer than the context length of {limit} tokens: {num_split}. They were split into {num_parts} "
            "examples.",
            limit=self.limit,
            num_split=self.num_split,
            num_parts=self.num_parts,
        )
        found: dict[str, str] = {"dataset-rows-split": split} if self.num_split else {}
        if left_out := self._left_out():
            looked_at = Message("Rows that were looked at: {num_rows:,}.", num_rows=self.num_judged)
            found["dataset-rows-unlearned"] = joined([*left_out, *([] if are_all else [looked_at])])
        if not self.num_cut:
            return found
        words = self._of_texts() if self.num_cut_texts == self.num_cut else self._of_rows()
        return found | {"dataset-rows-cut": joined(words)}

    def _left_out(self) -> list[str]:
        """Say how many rows are left out and why; the note about rows that are cut says what would keep them."""
        values = {"limit": self.limit, "num_rows": self.num_judged}
        said: list[str] = []
        if self.num_beyond:
            words = Message(
                "Rows left out because their answers begin beyond the context length of {limit} tokens: {number:,} of "
                "{num_rows:,}.",
                number=self.num_beyond,
                **values,
            )
            if self.are_pairs:
                words = Message(
                    "Pairs left out because their answers begin or differ beyond the context length of {limit} "
                    "tokens: {number:,} of {num_rows:,}.",
                    number=self.num_beyond,
                    **values,
                )
            said.append(words)
            if not (self.num_cut and self.is_reachable(self.beyond_from)):
                said.append(self.to_learn(self.beyond_from))
        if self.num_empty:
            said.append(
                Message(
                    "Rows left out because they have nothing to learn, whatever the context length: {number:,} of "
                    "{num_rows:,}.",
                    number=self.num_empty,
                    **values,
                )
            )
        if self.num_overlong:
            said.append(
                Message(
                    "Rows longer than the context length of {limit} tokens are skipped: {number:,} of {num_rows:,}.",
                    number=self.num_overlong,
                    **values,
                )
            )
        return said

    def _of_texts(self) -> list[str]:
        cut = Message(
            "Texts cut at the context length of {limit} tokens: {num_cut} of {num_rows}.",
            limit=self.limit,
            num_cut=self.num_cut,
            num_rows=self.num_rows,
        )
        if self._is_beyond:
            splitting = Message("To keep all of every text, have longer texts split (Longer examples: Split).")
            return [cut, *self._lost_of_texts(), *self._highest(), *self._most_of_them(), splitting]
        advice = Message(
            "To keep all of every text, have longer texts split (Longer examples: Split), or raise the context length "
            "to {longest_tokens} tokens.",
            longest_tokens=self.longest_tokens,
        )
        return [cut, *self._lost_of_texts(), advice, *self._most_of_them()]

    def _of_rows(self) -> list[str]:
        cut = Message(
            "Rows cut at the context length of {limit} tokens: {num_cut} of {num_rows}.",
            limit=self.limit,
            num_cut=self.num_cut,
            num_rows=self.num_rows,
        )
        lost = Message(
            "In {num_open} of them, the end of an answer is lost with its stop token, so the model doesn't learn to "
            "stop there.",
            num_open=self.num_open - self.num_open_texts,
        )
        splitting = Message("Longer texts can be split instead (Longer examples: Split).")
        if self._is_beyond:
            return [
                cut,
                *([lost] if self.num_open > self.num_open_texts else []),
                *self._lost_of_texts(),
                *self._highest(),
                *self._most_of_them(),
                *([splitting] if self.num_cut_texts else []),
                Message("To leave them out, skip longer rows."),
            ]
        advice = Message(
            "To keep every row whole, raise the context length to {longest_tokens} tokens, or skip longer rows.",
            longest_tokens=self.longest_tokens,
        )
        return [
            cut,
            *([lost] if self.num_open > self.num_open_texts else []),
            *self._lost_of_texts(),
            *([splitting] if self.num_cut_texts else []),
            advice,
            *self._most_of_them(),
        ]

    def _most_of_them(self) -> list[str]:
        """Name a far lower context length that still cuts a few rows: a huge one shall not decide for all."""
        highest, num_longer, found = min(self.longest_tokens, self.most or self.longest_tokens), 0, None
        for length in sorted(self.cut_lengths, reverse=True):
            if num_longer > max(1, FEW_OF_THEM * self.num_cut):
                break
            if num_longer and 2 * length <= highest:
                found = length, num_longer
            num_longer += self.cut_lengths[length]
        if found is None:
            return []
        values = {"length": found[0], "num_cut": found[1], "num_rows": self.num_rows}
        return [Message("At {length} tokens, {num_cut} of {num_rows} would be cut.", **values)]

    @property
    def _is_beyond(self) -> bool:
        """Whether the model isn't made for texts as long as the longest."""
        return 0 < self.most < self.longest_tokens

    def _highest(self) -> list[str]:
        """Say how long the texts may be that the model is made for, and up to where the context length can go."""
        made_for = Message("The model is made for {most} tokens at most.", most=self.most)
        raising = Message("To cut less, raise the context length to {most} tokens.", most=self.most)
        return [made_for, *([raising] if self.limit < self.most else [])]

    def is_reachable(self, num_tokens: int) -> bool:
        """Return whether a context length that the model is made for takes so many tokens in; of none it does not."""
        return num_tokens > 0 and not 0 < self.most < num_tokens

    def to_learn(self, num_tokens: int) -> Message:
        """Return what to do where nothing is learned within the limit.

        Args:
            num_tokens: the fewest tokens with which a row has something to learn, 0 where none has at any length.
        """
        if not num_tokens:
            return Message("No context length would change that. Check which column holds the answers.")
        if not self.is_reachable(num_tokens):
            words = Message(
                "The first token to learn comes after {before} others, but the model is made for {most} tokens at "
                "most.",
                before=num_tokens - 1,
                most=self.most,
            )
            return joined([words, SHORTEN])
        longest = min(self.longest_tokens, self.most or self.longest_tokens)
        return Message("Raise the context length to {longest} tokens.", longest=longest)

    def _lost_of_texts(self) -> list[str]:
        lost = Message(
            "In {num_open} of them, the end of the text is lost with its stop token, so the model doesn't learn to "
            "stop there.",
            num_open=self.num_open_texts,
        )
        return [lost] if self.num_open_texts else []
