"""What a person should agree to before a run: rows that nobody has reviewed, chats that the template can't write.

Reading is quick, so many rows are read; the first of them are also rendered. Nothing becomes tokens.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import FROM_PAIRS, LABELS
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.prepare import answers_of, rendered_row
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.render import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_READ, MOST_RENDERED = 50_000, 1000
"""Rows of all files together; a person waits for the answer."""


def doubts(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, portions: Portions | None = None
) -> dict[str, Any]:  # Any: JSON values
    """Return what is doubtful about the first rows of each file.

    Returns:
        sources: of each file {num_rows, num_unreviewed}: rows that were read, and those of them that nobody reviewed.
        is_complete: whether these are all rows.
        warnings: sentences about chats that the template does not write as they are.

    Raises:
        UserError: what the run would fail with.
    """
    renderer = Renderer(tokenizer, spec.data, portions)
    refused: list[UserError] = []
    found, is_complete, num_files = [], True, len(spec.data.sources)
    for each in spec.data.sources:
        in_pairs, in_labels = spec.objective.kind in FROM_PAIRS, spec.objective.kind in LABELS
        skips = spec.data.skip_bad_rows
        source = Source(each, skips, portions=renderer.portions, in_pairs=in_pairs, in_labels=in_labels)
        rows = source.conversations()
        num_rows = 0
        for num_rows, (number, conversation) in enumerate(islice(rows, max(1, MOST_READ // num_files)), 1):
            if num_rows > MOST_RENDERED // num_files:
                continue
            parts = [rendered_row(source, renderer, number, part) for part in answers_of(conversation)]
            if problem := next((part for part in parts if isinstance(part, UserError)), None):
                source.bad_row(number, problem)
                refused.append(problem)
        num_unreviewed = 0 if each.reviewed_only else source.num_unreviewed
        is_complete &= next(rows, None) is None
        found.append({"num_rows": num_rows, "num_unreviewed": num_unreviewed})
    unused = renderer.notes.get("dataset-fields-unused")
    return {
        "sources": found,
        "is_complete": is_complete,
        "warnings": [*_refusals(refused), *([unused] if unused else [])],
    }


def _refusals(refused: list[UserError]) -> list[Message]:
    """Say how many rows are skipped because the template refuses them."""
    if not refused:
        return []
    words = Message(
        "The chat template can't write some rows ({num:,}), so they are skipped. The first: {reason}",
        num=len(refused),
        reason=refused[0].message,
    )
    return [words]
