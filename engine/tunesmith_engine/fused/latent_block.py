"""Latent attention: narrow projections, norms and expansions around attention whose values may be narrower than keys.

The backward pass computes norms and heads again from the projections; see `LatentShape`.

# T tokens, H heads, D width of a head of queries and keys, V of a value, C of the latents, R columns of the adapters
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from tunesmith_engine.attention import Backend, Operands, choose, shared
from tunesmith_engine.fused.attention_block import inputs_backward, num_parts
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary, warm
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import latent_heads, rms_norm
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import AttentionShape, LatentShape, Norm
from tunesmith_engine.packed.batch import Documents

Part = tuple[AttentionShape, slice]


class LatentBlock:
    """Does what `AttentionBlock` does, on the same buffers.

    Attributes:
        inputs, output: the projections around it.
        query_expansion, expansion: from latents to heads; the first is None where queries have no latents.
        qkv_width: columns of the buffer of what the inputs and, behind them, the expansions give.
        heads_width: columns of the buffer of attention's output, with room for the adapters of `output`.
    """

    def __init__(
        self,
        shape: LatentShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        expansions: tuple[Projection | PlainModules | None, Projection | PlainModules],
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
        gradients: WeightGradients | None = None,
    ) -> None:
        """Reserve the memory; the arguments are those of `AttentionBlock`, and the two expansions."""
        self.shape, self.inputs, self.output = shape, inputs, output
        self.query_expansion, self.expansion = expansions
        self._gradients, self._inner = gradients, shape.inner
        self._workspace, self._numbers_at_once = workspace, numbers_at_once
        self._form = latent_heads.Form(
            shape.num_heads,
            shape.plain_dim,
            shape.turning_dim,
            shape.value_dim,
            # Attention's kernels take values of the keys' width.
            self._inner.head_dim,
            shape.interleaved,
        )
        self._queries, self._expanded, self._values = self._form.widths
        self._num_out = shape.num_heads * shape.value_dim
        self.qkv_width = shape.num_columns + self._expanded
        self.qkv_width += self._queries if self.query_expansion else 0
        self.heads_width = self._num_out + output.num_extra
        workspace.reserve("block", *self._block(capacity_tokens))
        workspace.reserve("latents", *self._latents(capacity_tokens))
        if shape.output_gate:
            workspace.reserve("gated", (capacity_tokens, self.heads_width))
        self._backend: Backend | None = None
        self._case: tuple[int | None, int, int] = (None, 0, 0)

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of queries, keys, values, of two rooms, and of two gradients.

        A room holds attention's output with its room and then the gradient of the expanded queries, the other that
        of the output and then that of what keys and values are expanded to.
        """
        widths = [self._queries, self._queries, self._values]
        of_queries = self.query_expansion.num_extra if self.query_expansion else 0
        widths += [max(self._values, self._queries + of_queries)]
        widths += [max(self._values, self._expanded + self.expansion.num_extra)]
        widths += [self._num_out, self.shape.num_columns + self.inputs.num_extra]
        return [(num_tokens, width) for width in widths]

    def _latents(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the size of normalised latents, with room for adapter columns: one sort at a time."""
        widest = self.shape.latent_dim + self.expansion.num_extra
        if self.query_expansion:
            widest = max(widest, self.shape.num_query_columns + self.query_expansion.num_extra)
        return [(num_tokens, widest)]

    def backend(self, documents: Documents, tensor: torch.Tensor) -> Backend:
        """Return the way to compute attention for these documents."""
        case = (documents.equal_length, sum(documents.lengths), documents.bounds.shape[0] - 1)
        if self._backend is None or self._case != case:
            self._backend = choose(self._inner, tensor.device, tensor.dtype, *case)
            self._case = case
        return self._backend

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:
        """Return whether a graph of a batch serves others of the same sizes."""
        backend = self.backend(documents, tensor)
        return backend.capturable and (backend.reads_bounds or documents.equal_length is not None)

    @property
    def expansions(self) -> tuple[Projection | PlainModules | None, Projection | PlainModules]:
        """Both, that of the queries first."""
        return self.query_expansion, self.expansion

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write what inputs and expansions give, from the normalised input [T, hidden + R]."""
        self.inputs.forward(x, qkv[:, : self.shape.num_columns], with_adapter)
        for expansion, norm, latents, _, expanded in self._expansions(qkv):
            normed = self._normed(expansion, norm, latents)
            expansion.forward(normed, expanded, with_adapter)

    def attend(
        self, qkv: torch.Tensor, heads: torch.Tensor, rotary: Rotary, documents: Documents
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Write attention's output into the first H V columns of `heads`; return what its backward pass needs."""
        q, k, v, out, *_ = self._spread(qkv, rotary)
        out = self._heads(out, self._form.room)
        backend, saved = self.backend(documents, qkv), []
        for part in self._parts(len(qkv)):
            some = part[1]
            result, statistics = shared.forward(backend, self._operands(q, k, v, part, documents), out[:, some])
            if result.data_ptr() != out[:, some].data_ptr():
                out[:, some].copy_(result)
            saved.append(statistics)
        self._narrow(heads).copy_(out[..., : self.shape.value_dim])
        return tuple(saved)

    def queries(self, qkv: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Return queries as attention takes them, [T, H, D], from what `project` wrote."""
        return self._heads(self._spread(qkv, rotary)[0], self._inner.head_dim)

    def keys_values(self, qkv: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values that later tokens attend to, [T, H, D] and [T, H, V]; see `queries`."""
        _, k, v, *_ = self._spread(qkv, rotary)
        return self._heads(k, self._inner.head_dim), self._heads(v, self._form.room)[..., : self.shape.value_dim]

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:
        """Write the block's output, [T, hidden], from what `attend` wrote."""
        self.output.forward(self._gated(qkv, heads), out, with_adapter)

    def fill_columns(self, heads: torch.Tensor) -> None:
        """Write the columns of `heads` that `put_out` writes, for a backward pass without it."""
        if isinstance(self.output, Projection) and not self.shape.output_gate:
            self.output.shrink(heads)

    # Backward

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        saved: tuple[tuple[torch.Tensor, ...], ...],
        rotary: Rotary,
        documents: Documents,
        out: torch.Tensor | None,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; see `AttentionBlock.backward`."""
        q, k, v, result, slope, to_heads, to_inputs = self._spread(qkv, rotary)
        self._output_backward(gradient, qkv, heads, to_heads, to_inputs)
        for wide, narrow in ((result, heads), (slope, to_heads)):
            whole = self._heads(wide, self._form.room)
            whole[..., self.shape.value_dim :].zero_()
            whole[..., : self.shape.value_dim].copy_(self._narrow(narrow))
        self._attention_backward((q, k, v), result, slope, saved, documents)
        # What the two rooms held is done with.
        to_queries, to_expanded = self._slopes(len(qkv), to_inputs)
        inside = to_expanded[:, : self._expanded]
        turning = to_inputs[:, self.shape.turning_columns]
        table = self._table(rotary)
        warm(self.shape, rotary, q)
        latent_heads.gather(self._form, (q, k, v), table, to_queries[:, : self._queries], inside, turning)
        # From the last to the first, as in any backward pass.
        for expansion, norm, latents, columns, expanded in reversed(self._expansions(qkv)):
            to_latents = to_inputs[:, columns]
            part = to_expanded if expansion is self.expansion else to_queries
            self._expansion_backward(expansion, norm, (latents, expanded), part, to_latents)
        inputs_backward(self.inputs, None, qkv[:, : self.shape.num_columns], to_inputs, x, out, self._workspace)

    def _output_backward(
        self,
        gradient: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        out: torch.Tensor,
        to_inputs: torch.Tensor,
    ) -> None:
        """Write the gradient of attention's output, and of the gates where there are some."""
        gated = self._gated(qkv, heads)
        if self.shape.output_gate and isinstance(self.output, Projection):
            self.output.shrink(gated)
        self.output.backward(gradient, gated, out)
        if self.shape.output_gate:
            shares, slope = self._shares(qkv), self._narrow(out)
            to_shares = torch.einsum("thv,thv->th", slope, self._narrow(heads))
            to_gates = to_inputs[:, : self.shape.num_columns][:, -self.shape.num_heads :]
            to_gates.copy_(torch.ops.aten.sigmoid_backward(to_shares, shares))
            slope.mul_(shares[..., None])

    def _attention_backward(
        self,
        operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        result: torch.Tensor,
        slope: torch.Tensor,
        saved: tuple[tuple[torch.Tensor, ...], ...],
        documents: Documents,
    ) -> None:
        """Turn queries, keys and values into their gradients, where they are."""
        q, k, v = operands
        backend = self.backend(documents, q)
        widths = self._inner.head_dim, self._inner.head_dim, self._form.room
        result, slope = (self._heads(part, self._form.room) for part in (result, slope))
        for part, statistics in zip(self._parts(len(q)), saved, strict=True):
            some = part[1]
            found = shared.backward(
                backend, slope[:, some], self._operands(q, k, v, part, documents), result[:, some], statistics
            )
            for tensor, width, gradient in zip(operands, widths, found, strict=True):
                copy_rows(gradient.flatten(1), self._heads(tensor, width)[:, some].flatten(1))

    def _expansion_backward(
        self,
        expansion: Projection | PlainModules,
        norm: Norm,
        around: tuple[torch.Tensor, torch.Tensor],
        gradient: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Go through one expansion and the norm before it: from the gradient [T, N + R] to that of the latents."""
        latents, expanded = around
        normed = self._normed(expansion, norm, latents)
        if isinstance(expansion, Projection):
            expansion.shrink(normed)
            if expansion.has_magnitudes:
                expansion.add_to_magnitudes(column_dots(gradient[:, : expanded.shape[1]], expanded), gradient)
        expansion.backward(gradient, normed, out)
        # The norm's output has served; only its statistics are needed now.
        statistics = rms_norm.add_norm(latents, None, norm, normed[:, : latents.shape[1]])
        if self._gradients:
            self._gradients.add_norm(norm, out, latents, statistics)
        rms_norm.norm_backward(out, latents, norm, statistics, out)

    # Parts

    def _shares(self, qkv: torch.Tensor) -> torch.Tensor:
        """Return what each head's output is multiplied by, [T, H]."""
        return qkv[:, : self.shape.num_columns][:, -self.shape.num_heads :].sigmoid()

    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        """Return what the output projection reads, [T, H V + R], its last R columns still to be written with gates."""
        if not self.shape.output_gate:
            return heads
        (gated,) = self._workspace.carve("gated", (len(qkv), self.heads_width))
        torch.mul(self._narrow(heads), self._shares(qkv)[..., None], out=self._narrow(gated))
        return gated

    def _expansions(
        self, qkv: torch.Tensor
    ) -> list[tuple[Projection | PlainModules, Norm, torch.Tensor, slice, torch.Tensor]]:
        """Return each expansion with its norm, the latents, their columns, and where the expanded numbers are."""
        columns, first = self.shape.num_columns, self.shape.num_query_columns
        of_keys = slice(first, first + self.shape.latent_dim)
        keys = self.expansion, self.shape.key_norm, qkv[:, of_keys], of_keys, qkv[:, -self._expanded :]
        norm = self.shape.query_norm
        if self.query_expansion is None or norm is None:
            return [keys]
        expanded = qkv[:, columns : columns + self._queries]
        return [(self.query_expansion, norm, qkv[:, :first], slice(0, first), expanded), keys]

    def _normed(self, expansion: Projection | PlainModules, norm: Norm, latents: torch.Tensor) -> torch.Tensor:
        """Return normalised latents, [T, C + R], whose last R columns are still to be written."""
        num_tokens, width = latents.shape
        (room,) = self._workspace.carve("latents", *self._latents(num_tokens))
        normed = room.flatten()[: num_tokens * (width + expansion.num_extra)].view(num_tokens, -1)
        rms_norm.add_norm(latents, None, norm, normed[:, :width])
        return normed

    def _spread(self, qkv: torch.Tensor, rotary: Rotary) -> list[torch.Tensor]:
        """Return the tensors of `_block`, queries, keys and values among them written."""
        parts = self._workspace.carve("block", *self._block(len(qkv)))
        columns = self.shape.num_columns
        queries = qkv[:, columns : columns + self._queries] if self.query_expansion else qkv[:, : self._queries]
        turning = qkv[:, self.shape.turning_columns]
        outs = parts[0], parts[1], parts[2]
        latent_heads.spread(self._form, queries, qkv[:, -self._expanded :], turning, self._table(rotary), outs)
        warm(self.shape, rotary, parts[0])
        return parts

    def _slopes(self, num_tokens: int, to_inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where the gradients of queries and of what keys and values are expanded to are written."""
        _, _, _, first, second, *_ = self._workspace.carve("block", *self._block(num_tokens))
        width = self._expanded + self.expansion.num_extra
        to_expanded = second.flatten()[: num_tokens * width].view(num_tokens, width)
        if self.query_expansion is None:
            return to_inputs, to_expanded
        width = self._queries + self.query_expansion.num_extra
        return first.flatten()[: num_tokens * width].view(num_tokens, width), to_expanded

    def _table(self, rotary: Rotary) -> latent_heads.Table:
        return (rotary.cos, rotary.sin) if self.shape.rotary else (None, None)

    def _heads(self, flat: torch.Tensor, width: int) -> torch.Tensor:
        """Return the first H heads of a buffer, which may be wider, [T, H, width]."""
        num_tokens, columns = len(flat), self.shape.num_heads * width
        return flat.flatten()[: num_tokens * columns].view(num_tokens, self.shape.num_heads, width)

    def _narrow(self, heads: torch.Tensor) -> torch.Tensor:
        """Return heads of values, [T, H, V], in a buffer with other columns behind them."""
        return heads[:, : self._num_out].unflatten(1, (-1, self.shape.value_dim))

    def _operands(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, part: Part, documents: Documents
    ) -> Operands:
        shape, some = part
        width = self._inner.head_dim
        queries, keys = (self._heads(tensor, width)[:, some] for tensor in (q, k))
        return Operands(queries, keys, self._heads(v, self._form.room)[:, some], documents, shape)

    def _parts(self, num_tokens: int) -> Iterator[Part]:
        """Yield the groups of heads that are computed one after another."""
        count = num_parts(self.shape, num_tokens, self._numbers_at_once)
        heads = self.shape.num_heads // count
        shape = self._inner if count == 1 else replace(self._inner, num_heads=heads, num_key_value_heads=heads)
        for number in range(count):
            yield shape, slice(number * heads, (number + 1) * heads)
