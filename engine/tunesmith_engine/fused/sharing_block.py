"""Attention whose values have a norm or are keys, or whose keys and values later layers read or earlier ones have made.

Keys and values that are read more than once lie, normalised and rotated, in a place of their own from the lending
layer's forward pass until its backward pass. Beside them the readers add up the gradients, in 32 bits.

# T tokens, H heads, D head size, K key and value heads, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.fused.attention_block import AttentionBlock
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import rope
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import AttentionShape


@dataclass(frozen=True, slots=True)
class Loan:
    """Keys and values that several layers read.

    Attributes:
        lender: index of the layer that makes them.
        last_reader: index of the last layer that reads them, whose backward pass comes first.
    """

    lender: int
    last_reader: int


class SharingBlock(AttentionBlock):
    """Does what `AttentionBlock` does."""

    def __init__(
        self,
        index: int,
        loan: Loan | None,
        shape: AttentionShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
        gradients: WeightGradients | None = None,
    ) -> None:
        """Reserve the memory.

        Args:
            index: of the layer.
            loan: where its keys and values are shared with other layers, else None.
            shape, inputs, output, workspace, capacity_tokens, numbers_at_once, gradients: as in `AttentionBlock`.
        """
        super().__init__(shape, inputs, output, workspace, capacity_tokens, numbers_at_once, gradients)
        self._in_place = False
        self._index, self._loan = index, loan
        workspace.reserve("block", *self._block(capacity_tokens))
        if loan:
            workspace.reserve(self._name("lent"), *2 * [(capacity_tokens, self._num_key)])
            slopes = self._lent_sizes(capacity_tokens, workspace.dtype)
            workspace.reserve(self._name("slopes of lent"), *slopes)

    def _name(self, what: str) -> str:
        assert self._loan is not None, "asked only where keys and values are shared"
        return f"{what} by {self._loan.lender}"

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of gradients of heads and inputs, and of finished queries, keys and values."""
        widths = [self._num_query, self.qkv_width + self.inputs.num_extra, self._num_query]
        return [(num_tokens, width) for width in [*widths, self._num_key, self._num_key]]

    def _own_keys_values(self, num_tokens: int) -> list[torch.Tensor]:
        return self._workspace.carve("block", *self._block(num_tokens))[3:]

    def _finished(self, num_tokens: int) -> list[torch.Tensor]:
        """Return where keys and values lie as attention takes them, [T, K D] each."""
        if self._loan:
            return self._workspace.carve(self._name("lent"), *2 * [(num_tokens, self._num_key)])
        return self._own_keys_values(num_tokens)

    def _lent_slopes(self, num_tokens: int) -> list[torch.Tensor]:
        """Return the gradients of keys and values that the readers add up, [T, K D] each."""
        dtype = self._workspace.dtype
        parts = self._workspace.carve(self._name("slopes of lent"), *self._lent_sizes(num_tokens, dtype))
        return [part.view(_wide(dtype)) for part in parts]

    def _lent_sizes(self, num_tokens: int, dtype: torch.dtype) -> list[tuple[int, int]]:
        """Return the sizes of these in numbers of the run's format, of which two may make one."""
        return 2 * [(num_tokens, self._num_key * (_wide(dtype).itemsize // dtype.itemsize))]

    # Forward

    def _raw_values(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, self._num_query + self._num_key : self._num_query + 2 * self._num_key]

    def _queries_keys(self, qkv: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = self._raw(qkv)
        out_q = self._workspace.carve("block", *self._block(len(qkv)))[2]
        keys, values = self._finished(len(qkv))
        if self.shape.source is not None:
            self._turn_queries(q, rotary, out_q)
            return out_q, keys
        self._rotate(q, k, rotary, out_q, keys, norms=True)
        raw, norm = self._raw_values(qkv), self.shape.value_norm
        if norm is None:
            copy_rows(raw, values)
        else:
            rope.rotate(*_alone(raw), None, None, self.shape.head_dim, False, norm, norm, *_alone(values))
        return out_q, keys

    def _turn_queries(self, q: torch.Tensor, rotary: Rotary, out: torch.Tensor) -> None:
        """Normalise and rotate queries without keys."""
        cos, sin = (rotary.cos, rotary.sin) if self.shape.rotary else (None, None)
        norm, form = self.shape.query_norm, (self.shape.head_dim, self.shape.interleaved)
        rope.rotate(*_alone(q), cos, sin, *form, norm, norm, *_alone(out))

    def _values(self, qkv: torch.Tensor) -> torch.Tensor:
        return self._split(self._finished(len(qkv))[1])

    # Backward

    def _slopes(self, to_qkv: torch.Tensor) -> list[torch.Tensor]:
        if self.shape.source is None:
            return super()._slopes(to_qkv)
        return [to_qkv[:, : self._num_query], *self._own_keys_values(len(to_qkv))]

    def _rotate_backward(
        self,
        dq: torch.Tensor,
        dk: torch.Tensor,
        qkv: torch.Tensor,
        rotary: Rotary,
        out: torch.Tensor,
        scrap: torch.Tensor,
    ) -> None:
        _, dv = self._slopes(out)[1:]
        if self.shape.source is not None:
            self._give_back(dk, dv)
            cos, sin = (rotary.cos, rotary.sin) if self.shape.rotary else (None, None)
            norm, raw = self.shape.query_norm, self._raw(qkv)[0]
            self._turn_back(_alone(dq), _alone(raw), cos, sin, (norm, norm), _alone(out[:, : self._num_query]))
            return
        if self._loan:
            dk = self._collect(dk, dv)
        super()._rotate_backward(dq, dk, qkv, rotary, out, scrap)
        if norm := self.shape.value_norm:
            raws, values = _alone(self._raw_values(qkv)), _alone(dv)
            rope.rotate_backward(*values, *raws, None, None, self.shape.head_dim, False, norm, norm, *values)
        if self.shape.values_are_keys:
            raw_keys = self._raw(out)[1]
            raw_keys.add_(dv)
            copy_rows(raw_keys, dv)

    def _give_back(self, dk: torch.Tensor, dv: torch.Tensor) -> None:
        """Add a reader's gradients of keys and values to those of the others."""
        is_first = self._loan is not None and self._loan.last_reader == self._index
        for total, slope in zip(self._lent_slopes(len(dk)), (dk, dv), strict=True):
            total.copy_(slope) if is_first else total.add_(slope)

    def _collect(self, dk: torch.Tensor, dv: torch.Tensor) -> torch.Tensor:
        """Add the readers' gradients to the lender's own, dv where it is; return the sum of dk."""
        of_keys, of_values = self._lent_slopes(len(dk))
        dv.copy_(of_values.add_(dv))
        return of_keys.add_(dk)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _alone(heads: torch.Tensor) -> rope.Pair:
    """Return heads as if they were queries without keys."""
    return heads, heads[:, :0]
