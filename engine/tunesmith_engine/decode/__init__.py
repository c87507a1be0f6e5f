"""Answers of a model: one way for samples of a run, chat, answers before and after, and evaluation.

`open_decoder` gives the fastest way that a model bears; `plain.py` is transformers, what the others are judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tunesmith_core.sampling import Sampling
from tunesmith_engine.device import Compute

MOST_ROWS = 32
"""That are answered at once, unless more are asked for."""

OnTokens = Callable[[int, list[int]], None]
"""Told the number of a row and the tokens that are new in its answer, every few tokens."""


class Decoder(Protocol):
    """Continues rows of tokens with a model that is on its device."""

    @property
    def name(self) -> str:
        """Return which way it is, for reports: "fused" or "plain"."""

    def weights_changed(self) -> None:
        """Take over the adapters' present weights."""

    def release(self) -> None:
        """Give back the memory that answers took, until the next one."""

    def close(self) -> None:
        """Leave the model as it was before; no answer can follow."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        ends: Collection[int],
        *,
        with_adapter: bool = True,
        on_tokens: OnTokens = lambda _row, _tokens: None,
        on_end: Callable[[int], None] = lambda _row: None,
        should_stop: Callable[[], bool] = lambda: False,
        keeps_end: bool = False,
        rows_at_once: int = MOST_ROWS,
    ) -> list[list[int]]:
        """Return the answer to each prompt, without the token that ended it.

        Args:
            prompts: one row of tokens or several of any lengths, none of them empty.
            sampling: how tokens are chosen.
            ends: tokens that end an answer.
            with_adapter: False gives the base model's answers.
            on_tokens: called as answers grow; never with a token of `ends`.
            on_end: called when the answer to a row is whole.
            should_stop: asked every few tokens; True ends all answers where they are.
            keeps_end: whether the token that ended an answer is its last one; `on_tokens` is told of it, too.
            rows_at_once: most rows that are answered together, where they are.

        Raises:
            RuntimeError: as PyTorch, for lack of memory too.
        """


def open_decoder(model: Any, compute: Compute) -> Decoder:  # Any: a transformers model, with or without PEFT's adapter
    """Return the fastest way to answer with a model whose adapters don't change any more."""
    from tunesmith_engine.decode.fused import FusedDecoder
    from tunesmith_engine.decode.plain import PlainDecoder
    from tunesmith_engine.shapes import NotFusableError

    try:
        return FusedDecoder.attach(model, compute)
    except NotFusableError:
        return PlainDecoder(model, compute)


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:  # Any: a transformers model and tokenizer
    """Return the tokens that end an answer: the tokenizer's and those of the model's generation config."""
    config = getattr(model, "generation_config", None)
    known = getattr(config, "eos_token_id", None)
    ends = {tokenizer.eos_token_id, *(known if isinstance(known, list) else [known])}
    return frozenset(end for end in ends if end is not None)
