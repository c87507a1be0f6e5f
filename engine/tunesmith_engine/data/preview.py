"""What a run will learn, for the window: the first rows as the model will see them, and how long rows are."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.cuts import Cuts
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.prepare import rendered_rows
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.render import Renderer, Tokenised

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_ROWS = 5000
"""Rows that are looked at; a preview is for a person who waits."""

MAX_PROBLEMS = 100
NUM_BARS = 24


def preview(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, num_rows: int, portions: Portions | None = None
) -> dict[str, Any]:  # Any: JSON values
    """Return the first rows with the trained stretches told apart, and counts over the first 5000 rows.

    Bad rows are listed instead of raised, whatever the spec says about them.

    Args:
        spec: data section and model.
        tokenizer: the base model's own.
        num_rows: most rows to show.
        portions: told which row is being handled.

    Returns:
        rows: list of {line, segments: [{text, trained}], num_tokens, num_trained_tokens, is_cut}.
        histogram: list of {from_tokens, to_tokens, num_rows}, the upper bound exclusive.
        num_rows, num_skipped, num_cut, num_untrained, longest_tokens, context_length; is_complete, False when the file
        goes on behind the rows that were looked at; problems: list of {line, message}, at most 100; notes: sentences
        about how rows become tokens.

    Raises:
        UserError: when no row can be shown at all, with the cause of the first.
    """
    problems: list[dict[str, Any]] = []

    def note(line: int, error: TunesmithError) -> None:
        if len(problems) < MAX_PROBLEMS:
            problems.append({"line": line, "message": error.message})

    portions = portions or Portions()
    source = Source(spec.data.sources[0], skip_bad_rows=True, on_problem=note, portions=portions)
    renderer = Renderer(tokenizer, spec.data, portions)
    cuts = Cuts(spec.data.context_length)
    rows: list[dict[str, Any]] = []
    lengths: list[int] = []
    num_untrained = 0
    found = rendered_rows(source, renderer)
    looked_at = list(islice(found, MAX_ROWS))
    is_complete = next(found, None) is None
    tokens = renderer.tokenise(rendered for _, rendered in looked_at)
    for (line, rendered), tokenised in zip(looked_at, tokens, strict=True):
        example = cuts.cut(tokenised.example)
        lengths.append(len(tokenised.example.input_ids))
        num_untrained += not example.num_trained_tokens
        if len(rows) < num_rows:
            rows.append(_shown_row(line, tokenised, example, renderer.leading_text if rendered.starts_document else ""))
    notes = renderer.notes | source.notes | (cuts.notes() if spec.data.overlong == "truncate" else {})
    return {
        "rows": rows,
        "histogram": histogram(lengths),
        "num_rows": len(lengths),
        "num_skipped": source.num_skipped_rows,
        "num_cut": cuts.num_cut,
        "num_untrained": num_untrained,
        "longest_tokens": cuts.longest_tokens,
        "context_length": cuts.limit,
        "is_complete": is_complete,
        "problems": problems,
        "notes": list(notes.values()),
    }


def _shown_row(line: int, tokenised: Tokenised, example: Example, leading: str) -> dict[str, Any]:
    num_tokens = len(example.input_ids)
    segments: list[dict[str, Any]] = []
    position = 0
    for token in range(num_tokens):
        trained = bool(example.labels[token] != IGNORED_LABEL)
        end = max(position, int(tokenised.ends[token]))
        text = tokenised.text[position:end] if end else ""
        if segments and segments[-1]["trained"] == trained:
            segments[-1]["text"] += text
        else:
            segments.append({"text": text, "trained": trained})
        position = end
    segments[0]["text"] = leading + segments[0]["text"]
    return {
        "line": line,
        "segments": [segment for segment in segments if segment["text"]],
        "num_tokens": num_tokens,
        "num_trained_tokens": example.num_trained_tokens,
        "is_cut": num_tokens < len(tokenised.example.input_ids),
    }


def histogram(lengths: list[int]) -> list[dict[str, int]]:
    """Count lengths in at most 24 bars of equal width, from 0 tokens to the longest."""
    width = max(lengths) // NUM_BARS + 1
    counts = [0] * (max(lengths) // width + 1)
    for length in lengths:
        counts[length // width] += 1
    return [
        {"from_tokens": bar * width, "to_tokens": (bar + 1) * width, "num_rows": count}
        for bar, count in enumerate(counts)
    ]
