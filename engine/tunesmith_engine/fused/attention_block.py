"""Attention of one layer between its norm and the residual: projections, rotation, attention, output projection.

# T tokens, H heads, D head size, K key and value heads, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tunesmith_engine.attention import Backend, Operands, choose, shared
from tunesmith_engine.fused import head_gates, queries_keys
from tunesmith_engine.fused.pieces import gather, scatter
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import glu, rms_norm, rope
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import AttentionShape, Branch, Norm, Piece
from tunesmith_engine.packed.batch import Documents

GATE = "sigmoid"
"""The activation of output gates."""


def num_parts(shape: Branch, num_tokens: int, numbers_at_once: int) -> int:
    """Return into how many groups of heads attention is divided, one after another, so that long batches need less."""
    numbers, parts = num_tokens * shape.numbers_per_token, 1
    while numbers > numbers_at_once * parts and shape.num_groups % (2 * parts) == 0:
        parts *= 2
    return parts


def inputs_backward(
    inputs: Projection | PlainModules,
    pieces: Sequence[Piece] | None,
    qkv: torch.Tensor,
    to_qkv: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor | None,
    workspace: Workspace,
) -> None:
    """Go through a block's input projections; see `AttentionBlock.backward`.

    Args:
        pieces: of which a block's buffer holds their product's columns; None where it holds them as they are.
        qkv: that buffer, [T, N].
        to_qkv: its gradient with R columns behind it, [T, N + R].
        workspace: with a region "product" of the size of `to_qkv` where there are pieces.
    """
    gradient = to_qkv
    if pieces is not None:
        (gradient,) = workspace.carve("product", (to_qkv.shape[0], inputs.num_outputs + inputs.num_extra))
        scatter(to_qkv, pieces, gradient)
    if isinstance(inputs, Projection) and inputs.has_magnitudes:
        dots = column_dots(to_qkv[:, : qkv.shape[1]], qkv)
        if pieces is not None:
            ordered = dots.new_empty(inputs.num_outputs)
            scatter(dots[None], pieces, ordered[None])
            dots = ordered
        inputs.add_to_magnitudes(dots, gradient)
    inputs.backward(gradient, x, out)


class AttentionBlock:
    """Runs attention forward, again, and backward, on buffers that the layer hands it.

    Attributes:
        inputs, output: the projections around attention.
        qkv_width: columns of the buffer of queries, keys and values, and of gates behind them where there are any.
        heads_width: columns of the buffer of attention's output, with room for the adapters of `output` unless gates
            or a norm stand between.
    """

    def __init__(
        self,
        shape: AttentionShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
        gradients: WeightGradients | None = None,
    ) -> None:
        self.shape, self.inputs, self.output = shape, inputs, output
        self._gradients = gradients
        self._workspace, self._numbers_at_once = workspace, numbers_at_once
        self._num_query = shape.num_heads * shape.head_dim
        self._num_key = shape.num_key_value_heads * shape.head_dim
        self._num_value, self._num_out = shape.num_key_value_heads * shape.value_dim, shape.output_width
        num_all = self.qkv_width = shape.num_columns
        self._is_direct = not shape.num_gates and shape.output_norm is None
        self.heads_width = self._num_out + (output.num_extra if self._is_direct else 0)
        if not self._is_direct:
            workspace.reserve("gated", (capacity_tokens, self._num_out + output.num_extra))
        if shape.pieces:
            workspace.reserve("product", (capacity_tokens, num_all + inputs.num_extra))
        # With norms, and for DoRA's magnitudes, the raw queries and keys are needed again; else they are rotated where
        # they are.
        no_norms = shape.query_norm is None and shape.key_norm is None
        self._in_place = no_norms and not inputs.has_magnitudes and not shape.steps_apart
        shapes = [(capacity_tokens, self._num_out), (capacity_tokens, num_all + inputs.num_extra)]
        if not self._in_place:
            shapes += [(capacity_tokens, self._num_query), (capacity_tokens, self._num_key)]
        workspace.reserve("block", *shapes)
        self._backend: Backend | None = None
        self._case: tuple[int | None, int, int] = (None, 0, 0)

    def backend(self, documents: Documents, tensor: torch.Tensor) -> Backend:
        """Return the way to compute attention for these documents."""
        case = (documents.equal_length, sum(documents.lengths), documents.bounds.shape[0] - 1)
        if self._backend is None or self._case != case:
            self._backend = choose(self.shape, tensor.device, tensor.dtype, *case)
            self._case = case
        return self._backend

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:
        """Return whether a graph of a batch serves others of the same sizes."""
        backend = self.backend(documents, tensor)
        return backend.capturable and (backend.reads_bounds or documents.equal_length is not None)

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:
        """Write queries, keys, values and gates, [T, qkv_width], from the normalised input [T, hidden + R]."""
        if self.shape.pieces is None:
            self.inputs.forward(x, qkv, with_adapter)
        else:
            (product,) = self._workspace.carve("product", (len(x), self.inputs.num_outputs))
            self.inputs.forward(x, product, with_adapter)
            gather(product, self.shape.pieces, qkv)
        if self._in_place:
            q, k = self._raw(qkv)
            self._rotate(q, k, rotary, q, k, norms=False)

    def attend(
        self, qkv: torch.Tensor, heads: torch.Tensor, rotary: Rotary, documents: Documents
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Write attention's output into the first columns of `heads`; return what its backward pass needs."""
        q, k = self._queries_keys(qkv, rotary)
        out, backend, saved = self._split_values(heads[:, : self._num_out]), self.backend(documents, qkv), []
        for shape, some, groups in self._parts(qkv.shape[0]):
            operands = self._operands(q, k, qkv, (shape, some, groups), documents)
            result, statistics = shared.forward(backend, operands, out[:, some])
            if result.data_ptr() != out[:, some].data_ptr():
                copy_rows(result.flatten(1), out[:, some].flatten(1))
            saved.append(statistics)
        return tuple(saved)

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:
        """Write the block's output, [T, hidden], from what `project` and `attend` wrote."""
        self.output.forward(self._gated(qkv, heads), out, with_adapter)

    def fill_columns(self, heads: torch.Tensor) -> None:
        """Write the columns of `heads` that `put_out` writes, for a backward pass without it."""
        if isinstance(self.output, Projection) and self._is_direct:
            self.output.shrink(heads)

    def keys_values(self, qkv: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values that later tokens attend to, [T, K, D] each, from what `project` wrote."""
        return self._split(self._queries_keys(qkv, rotary)[1]), self._values(qkv)

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
        """Write the gradient of the normalised input and add those of the adapters.

        Args:
            gradient: of the block's output, [T, hidden + R]; its last R columns are written.
            x: the block's input with its adapter columns filled, [T, hidden + R].
            qkv, heads: as the forward pass left them.
            saved: what `attend` returned.
            rotary, documents: of the batch.
            out: [T, hidden], or None when nobody needs it.
        """
        num_tokens = qkv.shape[0]
        to_heads, to_qkv = self._workspace.carve(
            "block", (num_tokens, self._num_out), (num_tokens, self.qkv_width + self.inputs.num_extra)
        )
        q, k = self._queries_keys(qkv, rotary)
        self._output_backward(gradient, qkv, heads, to_heads, to_qkv)
        backend, parts = self.backend(documents, qkv), list(self._parts(num_tokens))
        of_q, of_k, of_v = self._slopes(to_qkv)
        wanted = [self._split(of_q), self._split(of_k), self._split_values(of_v)]
        to_sinks = self._sinks_gradient()
        for part, statistics in zip(parts, saved, strict=True):
            _, some, groups = part
            dq, dk, dv = shared.backward(
                backend,
                self._split_values(to_heads)[:, some],
                self._operands(q, k, qkv, part, documents),
                self._split_values(heads[:, : self._num_out])[:, some],
                statistics,
                None if to_sinks is None else to_sinks[some],
            )
            copy_rows(dv.flatten(1), wanted[2][:, groups].flatten(1))
            if len(parts) > 1:
                copy_rows(dq.flatten(1), wanted[0][:, some].flatten(1))
                copy_rows(dk.flatten(1), wanted[1][:, groups].flatten(1))
                # The next part's gradients need their memory.
                dq, dk = wanted[0], wanted[1]
            del dv
        if to_sinks is not None and self._gradients and self.shape.trained_sinks is not None:
            self._gradients.add(self.shape.trained_sinks, to_sinks)
        self._values_backward(qkv, of_v)
        self._rotate_backward(dq.flatten(1), dk.flatten(1), qkv, rotary, to_qkv, to_heads)
        inputs_backward(self.inputs, self.shape.pieces, qkv, to_qkv, x, out, self._workspace)

    def _output_backward(
        self,
        gradient: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        to_heads: torch.Tensor,
        to_qkv: torch.Tensor,
    ) -> None:
        """Go through the output projection and what stands before it: write the gradients of the heads and of gates."""
        gated = self._gated(qkv, heads)
        if not self._is_direct and isinstance(self.output, Projection):
            self.output.shrink(gated)
        self.output.backward(gradient, gated, to_heads)
        if norm := self.shape.output_norm:
            # Only the statistics are needed: the output projection has been gone through.
            statistics = rms_norm.add_norm(heads, None, norm, gated[:, : self._num_out])
            if self._gradients:
                self._gradients.add_norm(norm, to_heads, heads, statistics)
            rms_norm.norm_backward(to_heads, heads, norm, statistics, to_heads)
        if self.shape.head_gate:
            head_gates.backward(self.shape, to_heads, self._gates(qkv), heads, self._gates(to_qkv))
        elif self.shape.output_gate:
            glu.gate_backward(to_heads, self._gates(qkv), heads, GATE, self._gates(to_qkv), to_heads)

    # Parts

    def _slopes(self, to_qkv: torch.Tensor) -> list[torch.Tensor]:
        """Return where the gradients of queries, keys and values are written that attention gives."""
        widths = [self._num_query, self._num_key, self._num_value]
        return list(to_qkv[:, : sum(widths)].split(widths, dim=1))

    def _gates(self, qkv: torch.Tensor) -> torch.Tensor:
        """Return the columns of gates in a buffer of queries, keys, values and gates."""
        return qkv[:, self._num_query + self._num_key + self._num_value : self.qkv_width]

    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        """Return the input of the output projection, with room for its adapters."""
        if self._is_direct:
            return heads
        (gated,) = self._workspace.carve("gated", (len(qkv), self._num_out + self.output.num_extra))
        if norm := self.shape.output_norm:
            rms_norm.add_norm(heads, None, norm, gated[:, : self._num_out])
        elif self.shape.head_gate:
            head_gates.forward(self.shape, heads, self._gates(qkv), gated[:, : self._num_out])
        else:
            glu.gate_and_multiply(self._gates(qkv), heads, GATE, gated[:, : self._num_out])
        return gated

    def _sinks_gradient(self) -> torch.Tensor | None:
        """Return room for the gradient of sinks that are trained, [H] float32."""
        shape = self.shape
        if shape.sinks is None or shape.trained_sinks is None or self._gradients is None:
            return None
        return torch.empty(shape.num_heads, device=shape.sinks.device)

    def _operands(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        qkv: torch.Tensor,
        part: tuple[AttentionShape, slice, slice],
        documents: Documents,
    ) -> Operands:
        """Return the queries, keys and values of one of the parts."""
        shape, some, groups = part
        keys, values = self._split(k)[:, groups], self._values(qkv)[:, groups]
        return Operands(self._split(q)[:, some], keys, values, documents, shape)

    def _parts(self, num_tokens: int) -> Iterator[tuple[AttentionShape, slice, slice]]:
        """Yield the groups of heads that are computed one after another: their shape, queries, keys and values."""
        count = num_parts(self.shape, num_tokens, self._numbers_at_once)
        heads, groups = self.shape.num_heads // count, self.shape.num_key_value_heads // count
        for part in range(count):
            some, shared_keys = (slice(part * number, (part + 1) * number) for number in (heads, groups))
            yield (self.shape if count == 1 else self.shape.part(some, shared_keys)), some, shared_keys

    def _split(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.head_dim))

    def _split_values(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.value_dim))

    def _raw(self, qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return qkv[:, : self._num_query], qkv[:, self._num_query : self._num_query + self._num_key]

    def _values(self, qkv: torch.Tensor) -> torch.Tensor:
        start, clip = self._num_query + self._num_key, self.shape.clip
        values = self._split_values(qkv[:, start : start + self._num_value])
        values = values if clip is None else values.clamp(-clip, clip)
        return values if self.shape.value_scale == 1.0 else values * self.shape.value_scale

    def _values_backward(self, qkv: torch.Tensor, gradient: torch.Tensor) -> None:
        """Turn the gradient of the values, [T, K D], into that of the raw ones, where it is."""
        start, clip = self._num_query + self._num_key, self.shape.clip
        if self.shape.value_scale != 1.0:
            gradient.mul_(self.shape.value_scale)
        if clip is not None:
            gradient.masked_fill_(qkv[:, start : start + self._num_value].abs() > clip, 0)

    def _queries_keys(self, qkv: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys as attention takes them, [T, H D] and [T, K D]."""
        q, k = self._raw(qkv)
        if self._in_place:
            return q, k
        shapes = [(q.shape[0], self._num_out), (q.shape[0], self.qkv_width + self.inputs.num_extra)]
        *_, out_q, out_k = self._workspace.carve("block", *shapes, (q.shape[0], q.shape[1]), (k.shape[0], k.shape[1]))
        if self.shape.steps_apart:
            queries_keys.forward(self.shape, (q, k), rotary, (out_q, out_k))
        elif norms := self.shape.norms_apart:
            for raw, norm, out in ((q, norms[0], out_q), (k, norms[1], out_k)):
                if self.shape.whole_width_norms is None:
                    out.copy_(raw)
                    raw, out = out.view(-1, self.shape.head_dim), out.view(-1, self.shape.head_dim)
                rms_norm.add_norm(raw, None, norm, out)
            self._rotate(out_q, out_k, rotary, out_q, out_k, norms=False)
        else:
            self._rotate(q, k, rotary, out_q, out_k, norms=True)
        return out_q, out_k

    def _norms(self, norms: bool) -> tuple[Norm | None, Norm | None]:
        return (self.shape.query_norm, self.shape.key_norm) if norms else (None, None)

    def _rotate(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        rotary: Rotary,
        out_q: torch.Tensor,
        out_k: torch.Tensor,
        norms: bool,
    ) -> None:
        cos, sin = (rotary.cos, rotary.sin) if self.shape.rotary else (None, None)
        if cos is None and not norms and q.data_ptr() == out_q.data_ptr():
            return
        rope.rotate(q, k, cos, sin, self.shape.head_dim, self.shape.interleaved, *self._norms(norms), out_q, out_k)

    def _rotate_backward(
        self,
        dq: torch.Tensor,
        dk: torch.Tensor,
        qkv: torch.Tensor,
        rotary: Rotary,
        out: torch.Tensor,
        scrap: torch.Tensor,
    ) -> None:
        """Write the gradients of raw queries and keys into the first columns of `out`, where dq and dk may be."""
        q, k = self._raw(qkv)
        out_q, out_k = self._raw(out)
        if self.shape.steps_apart:
            add_norm = self._gradients.add_norm if self._gradients else None
            queries_keys.backward(self.shape, (dq, dk), (q, k), rotary, (out_q, out_k), add_norm)
            return
        cos, sin = (rotary.cos, rotary.sin) if self.shape.rotary else (None, None)
        apart = self.shape.norms_apart
        self._turn_back((dq, dk), (q, k), cos, sin, self._norms(apart is None), (out_q, out_k))
        if apart:
            self._norms_backward(apart, (q, k), (out_q, out_k), scrap)

    def _turn_back(
        self,
        slopes: rope.Pair,
        raws: rope.Pair,
        cos: torch.Tensor | None,
        sin: torch.Tensor | None,
        norms: tuple[Norm | None, Norm | None],
        outs: rope.Pair,
    ) -> None:
        """Go back through rotation and norms of heads, and add the gradients of the norms' weights."""
        form = self.shape.head_dim, self.shape.interleaved
        if self._gradients and any(norm is not None and norm.trained is not None for norm in norms):
            # The weights' gradients need those of the norms' outputs, before they go through the norms.
            rope.rotate_backward(*slopes, *raws, cos, sin, *form, None, None, *outs)
            for norm, slope, raw in zip(norms, outs, raws, strict=True):
                if raw.shape[1]:
                    self._gradients.add_norm(norm, slope, raw, None)
            slopes, cos, sin = outs, None, None
        rope.rotate_backward(*slopes, *raws, cos, sin, *form, *norms, *outs)

    def _norms_backward(
        self,
        norms: tuple[Norm, Norm],
        sources: tuple[torch.Tensor, torch.Tensor],
        slopes: tuple[torch.Tensor, torch.Tensor],
        scrap: torch.Tensor,
    ) -> None:
        """Turn the gradients of normalised queries and keys into those of the raw ones, where they are."""
        for norm, raw, out in zip(norms, sources, slopes, strict=True):
            # The norm's output is not needed, only its statistics.
            slope, unused = out, scrap[:, : raw.shape[1]]
            if self.shape.whole_width_norms is None:
                # A row is a head, which has no fixed distance to the next one where they lie.
                raw, slope = (part.reshape(-1, self.shape.head_dim) for part in (raw, out))
                unused = scrap.flatten()[: raw.numel()].view_as(raw)
            statistics = rms_norm.add_norm(raw, None, norm, unused)
            if self._gradients:
                self._gradients.add_norm(norm, slope, raw, statistics)
            rms_norm.norm_backward(slope, raw, norm, statistics, slope)
            if slope.shape != out.shape:
                out.copy_(slope.view(out.shape))
