"""What a timing trains on: random rows, the same for every program that is timed.

Nothing heavy is imported here, so that a driver of another program can make the same rows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tunesmith_core.errors import TunesmithError

MEDIAN_TOKENS = 180
LENGTH_SPREAD = 0.8
FEWEST_TOKENS = 16
"""Lengths of varied rows are log-normal with this median and this standard deviation of the logarithm: short chats."""

FIRST_TOKEN, MOST_TOKEN_IDS = 3, 100_000
EXTRAS: dict[str, Callable[[str], dict[str, Any]]] = {
    "varied": lambda _: {"varied": True},
    "packed": lambda _: {"varied": True, "packed": True},
    "no-checkpointing": lambda _: {"checkpointing": False},
    "vram-gib": lambda value: {"vram_gib": float(value)},
    "policy": lambda value: {"policy": value},
    "warmup": lambda value: {"num_warmup_steps": int(value)},
    "steps": lambda value: {"num_steps": int(value)},
}
"""What may follow in the text of a workload, and the attributes that it sets."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One timing.

    Attributes:
        name: heads its row of a table.
        batch_size: rows of a step; of packed ones, rows of full length.
        sequence_length: tokens of a row, or their most when rows vary.
        varied: rows have lengths of short chats.
        packed: a step holds as many rows as batch_size * sequence_length tokens have room for.
        checkpointing: other programs compute activations twice; ours chooses by its memory alone.
        vram_gib: memory that the process may take; None for all there is.
        policy: what our memory policy is told.
        num_warmup_steps: steps that are not timed; where lengths vary, it takes more of them until all sizes were seen.
        num_steps: timed steps.
    """

    name: str
    batch_size: int
    sequence_length: int
    varied: bool = False
    packed: bool = False
    checkpointing: bool = True
    vram_gib: float | None = None
    policy: str = "auto"
    num_warmup_steps: int = 6
    num_steps: int = 10

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read NAME:BATCH:SEQ[:varied][:packed][:no-checkpointing][:vram-gib=X][:policy=P][:warmup=N][:steps=N].

        Raises:
            UserError: `usage` when the text is not of this form.
        """
        try:
            name, batch_size, sequence_length, *extras = text.split(":")
            given = [EXTRAS[word.partition("=")[0]](word.partition("=")[2]) for word in extras]
            values = {key: value for extra in given for key, value in extra.items()}
            return cls(name, int(batch_size), int(sequence_length), **values)
        except (ValueError, KeyError) as error:
            extras_text = ", ".join(f":{name}" for name in EXTRAS)
            raise TunesmithError(
                "usage", "{text} is not NAME:BATCH:SEQ followed by any of {extras}.", text=text, extras=extras_text
            ) from error

    def lengths(self) -> Iterator[int]:
        """Yield the lengths of the rows, without end."""
        chance = random.Random("lengths 0")
        while True:
            if self.varied:
                drawn = int(chance.lognormvariate(math.log(MEDIAN_TOKENS), LENGTH_SPREAD))
                yield max(FEWEST_TOKENS, min(self.sequence_length, drawn))
            else:
                yield self.sequence_length

    def steps(self, num_token_ids: int) -> list[list[list[int]]]:
        """Return the token ids of the rows of each step, those to warm up first; the same at every call.

        Args:
            num_token_ids: the model's vocabulary.
        """
        chance, lengths = random.Random(0), self.lengths()
        end = max(FIRST_TOKEN + 1, min(num_token_ids, MOST_TOKEN_IDS))
        steps, left_over = [], next(lengths)
        for _ in range(self.num_warmup_steps + self.num_steps):
            sizes: list[int] = []
            while self._has_room(sizes, left_over):
                sizes.append(left_over)
                left_over = next(lengths)
            steps.append([[chance.randrange(FIRST_TOKEN, end) for _ in range(size)] for size in sizes])
        return steps

    def _has_room(self, sizes: list[int], size: int) -> bool:
        if self.packed:
            return sum(sizes) + size <= self.batch_size * self.sequence_length
        return len(sizes) < self.batch_size
