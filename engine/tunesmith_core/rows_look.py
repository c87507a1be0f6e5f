"""How many examples a run makes of its data files, by what a look at their rows found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunesmith_core.spec_sections import SourceSpec


@dataclass(frozen=True, slots=True)
class RowsLook:
    """What a preview found of the rows of the data files; nothing where there was none.

    Attributes:
        looked_at: readable rows of each file that were looked at.
        used: how many examples a run makes of these: without those that have nothing to learn within the context
            length or are skipped, and of a text that is split several.
        is_complete: whether these are all rows.
        row_tokens: tokens of such an example on average, where there is one.
    """

    looked_at: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    is_complete: bool = False
    row_tokens: float | None = None

    @staticmethod
    def of(answer: Mapping[str, Any]) -> RowsLook:  # Any: JSON values
        """Return what an answer of PREVIEW says; an empty one says nothing."""
        return RowsLook(
            tuple(answer.get("rows_looked_at") or ()),
            tuple(answer.get("rows_used") or ()),
            bool(answer.get("is_complete")),
            answer.get("row_tokens"),
        )

    def examples(self, sources: Sequence[SourceSpec], num_rows: Sequence[int | None]) -> list[int | None]:
        """Return how many examples a run makes of each file.

        Args:
            sources: the files.
            num_rows: their rows, about; None where that can't be told.

        Returns:
            None for a file of which that can't be told.
        """
        if len(self.used) != len(sources):
            found = zip(sources, num_rows, strict=False)
            return [None if num is None else source.num_used(num) for source, num in found]
        numbers: Sequence[int | None] = self.looked_at if self.is_complete else num_rows
        files = zip(sources, numbers, self.looked_at, self.used, strict=False)
        return [
            None if num is None else source.examples_used(num, round(num * used / max(1, looked_at)))
            for source, num, looked_at, used in files
        ]

    def is_exact(self, sources: Sequence[SourceSpec]) -> bool:
        """Return whether all examples were counted: not where rows are a choice of those that were looked at."""
        files = zip(sources, self.looked_at, strict=False)
        is_whole = all(source.num_used(num) == num for source, num in files)
        return self.is_complete and is_whole and len(self.used) == len(sources)
