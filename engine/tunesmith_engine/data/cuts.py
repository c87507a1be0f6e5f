"""Examples cut to the context length: how many, and which of them lose the end of what the model should learn."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.messages import Message, joined
from tunesmith_engine.data.example import IGNORED_LABEL, Example


@dataclass(slots=True)
class Cuts:
    """Cuts examples and counts what that does to them; the run and its preview count here.

    Attributes:
        limit: the context length.
        num_rows: examples seen.
        num_cut: longer than the limit.
        num_open: cut in the middle of what is learned: the model would never see where to stop.
        longest_tokens: length of the longest example before it was cut.
    """

    limit: int
    num_rows: int = 0
    num_cut: int = 0
    num_open: int = 0
    longest_tokens: int = 0

    def cut(self, example: Example) -> Example:
        """Return an example within the limit: a longer one as an own copy, so that the rest is freed."""
        num_tokens = len(example.input_ids)
        self.num_rows += 1
        self.longest_tokens = max(self.longest_tokens, num_tokens)
        if num_tokens <= self.limit:
            return example
        self.num_cut += 1
        self.num_open += bool((example.labels[self.limit - 1 : self.limit + 1] != IGNORED_LABEL).all())
        return Example(example.input_ids[: self.limit].copy(), example.labels[: self.limit].copy())

    def notes(self) -> dict[str, str]:
        """Return what a person should know, a code and a sentence; nothing when every example was within the limit."""
        if not self.num_cut:
            return {}
        cut = Message(
            "Rows cut at the context length of {limit} tokens: {num_cut} of {num_rows}.",
            limit=self.limit,
            num_cut=self.num_cut,
            num_rows=self.num_rows,
        )
        lost = Message(
            "In {num_open} of them, the end of an answer is lost with its stop token, so the model doesn't learn to "
            "stop there.",
            num_open=self.num_open,
        )
        advice = Message(
            "To keep every row whole, raise the context length to {longest_tokens} tokens, or skip longer rows.",
            longest_tokens=self.longest_tokens,
        )
        return {"dataset-rows-cut": joined([cut, lost, advice] if self.num_open else [cut, advice])}
