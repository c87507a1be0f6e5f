"""Which held-out rows come from which document, so that each document's perplexity can be told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

MOST_DOCUMENTS = 200
"""Of more, nobody reads a table; their files are told apart then."""

Parts = list[tuple[str, int]]
"""Names, each with a number of rows that follow each other."""


def documents_of(documents: Sequence[str], held_out: Sequence[int], files: Sequence[str]) -> Parts:
    """Return the documents of held-out rows in their order; nothing where there is one, or too many, or none.

    Args:
        documents: of each row; of a row of a data file that file.
        held_out: numbers of the rows, ascending.
        files: the data files.
    """
    parts = [(name, len(list(rows))) for name, rows in groupby(documents[row] for row in held_out)]
    names = {name for name, _ in parts}
    # A document may be in two places where rows were drawn.
    are_whole = len(names) == len(parts)
    return parts if are_whole and 1 < len(parts) <= MOST_DOCUMENTS and not names <= set(files) else []
