"""Tokens that a model for images and sounds embeds by tables of their own, held against its code (Gemma 3n)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, replaced, result_of
from tunesmith_engine.shapes import AnyModel, NotFusableError, OtherTable

FAR = 10**6
"""An id that no trial has."""

TRIED = ((2, 2), (4, 1))
"""First token and number of tokens of each table in a trial."""


class _Rows(nn.Module):
    """Stands for such a table."""

    def __init__(self, rows: torch.Tensor, first: int) -> None:
        super().__init__()
        self._rows, self.vocab_offset, self.vocab_size = rows, first, len(rows)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of tokens."""
        return self._rows[input_ids - self.vocab_offset]


class _Reader(nn.Module):
    """Stands for the decoder: returns what is embedded; keeps the tokens whose per-layer inputs it is asked for."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embed_tokens = embedding
        self.ids: torch.Tensor | None = None

    def get_input_embeddings(self) -> nn.Module:
        """As transformers' models have it."""
        return self.embed_tokens

    def get_per_layer_inputs(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the tokens themselves."""
        self.ids = input_ids
        return input_ids

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> Any:
        """Return the embedded tokens in transformers' wrapping."""
        return BaseModelOutputWithPast(last_hidden_state=inputs_embeds)


def _parts(inner: nn.Module) -> dict[str, Any]:  # Any: modules whose attributes are their own
    """Return the parts with tables of their own, by name, in the order of their tokens."""
    found = {name: part for name, part in inner.named_children() if isinstance(getattr(part, "vocab_offset", 0), int)}
    found = {name: part for name, part in found.items() if hasattr(part, "vocab_offset")}
    return dict(sorted(found.items(), key=lambda pair: int(pair[1].vocab_offset)))


def without_tokens(inner: nn.Module) -> dict[str, nn.Module]:
    """Return stand-ins for these parts whose tokens no trial has."""
    return {name: _Rows(torch.zeros(1, WIDTH), FAR) for name in _parts(inner)}


def read_other_tables(inner: AnyModel, decoder: str, embedding: nn.Module) -> tuple[OtherTable, ...]:
    """Return which tokens are embedded by tables of their own; none for most models.

    Args:
        inner: the model around a decoder.
        decoder: its name there.
        embedding: a stand-in for the decoder's embedding, of `NUM_TOKENS` tokens and `WIDTH` numbers.

    Raises:
        NotFusableError: such tokens are embedded in a way that we don't know.
    """
    parts, make = _parts(inner), StandIns()
    if not parts:
        return ()
    problem = NotFusableError("model ({kind}) changes what its decoder reads.", kind=type(inner).__name__)
    ids = torch.arange(NUM_TOKENS)[None]
    expected = embedding(ids).detach().clone()
    tables: dict[str, nn.Module] = {}
    for name, (first, count) in zip(parts, TRIED, strict=False):
        rows = make.numbers(count, WIDTH)
        tables[name] = _Rows(rows, first)
        expected[0, first:] = 0.0
        expected[0, first : first + count] = rows
    end = sum(TRIED[len(tables) - 1])
    reader, known = _Reader(embedding), ids[:, :end]
    twin = replaced(inner, {decoder: reader, **tables}, {})
    result = result_of("model", lambda: twin(input_ids=known, use_cache=False).last_hidden_state)
    reads_others = reader.ids is not None and not torch.equal(reader.ids, known)
    if len(tables) < len(parts) or reads_others or not torch.equal(result, expected[:, :end]):
        raise problem
    return tuple(OtherTable(part, int(part.vocab_offset), int(part.vocab_size)) for part in parts.values())
