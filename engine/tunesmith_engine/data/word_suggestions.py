"""Words of the data that are written in many pieces and occur often: candidates for tokens of their own.

Each saves its pieces but one at every place. Words of scripts without spaces between them are not found.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

from tunesmith_core.errors import UserError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_words import LONGEST_WORD
from tunesmith_engine.data.prepare import answers_of, rendered_row
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.render import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_READ = 20_000
"""Rows of all files together; a person waits for the answer."""

LEAST_COUNT, LEAST_PIECES = 5, 3
MOST_TRIED, MOST_SHOWN = 5000, 100

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def suggested_words(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, portions: Portions | None = None
) -> dict[str, Any]:  # Any: JSON values
    """Return the words that would save most tokens, the best first: of each its count and its pieces.

    Raises:
        UserError: what the run would fail with.
    """
    counts: Counter[str] = Counter()
    renderer = Renderer(tokenizer, spec.data, portions)
    for each in spec.data.sources:
        source = Source(each, spec.data.skip_bad_rows, portions=renderer.portions)
        for number, conversation in islice(source.conversations(), max(1, MOST_READ // len(spec.data.sources))):
            for part in answers_of(conversation):
                rendered = rendered_row(source, renderer, number, part)
                if not isinstance(rendered, UserError):
                    counts.update(word for word in _WORD.findall(rendered.text) if len(word) <= LONGEST_WORD)
    found = []
    for word, count in counts.most_common(MOST_TRIED):
        if count < LEAST_COUNT:
            break
        pieces = len(tokenizer(word, add_special_tokens=False)["input_ids"])
        if pieces >= LEAST_PIECES:
            found.append((count * (pieces - 1), {"word": word, "count": count, "pieces": pieces}))
    found.sort(key=lambda each: -each[0])
    return {"words": [each for _, each in found[:MOST_SHOWN]]}
