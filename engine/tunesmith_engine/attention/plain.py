"""The last backend: plain PyTorch, document by document, in blocks of queries; everything works, on every device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tunesmith_engine.attention.backend import Backend, Case, Gradients, Operands, check
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents

SCORES_PER_BLOCK = 1 << 23
"""Scores that exist at once on a GPU: 32 MiB in float32, a few times over."""

SCORES_PER_CPU_BLOCK = 1 << 19
"""They stay in its cache, and more of what nobody may see is left out: as fast as PyTorch's own attention, or faster
(512 tokens of 9 heads of 64, forward and backward, one core: 24 ms against 30)."""


class Plain(Backend):
    """softmax(softcap(scale * q k^T)) v in float32 (float64 for float64), and its derivatives by the chain rule.

    A sink is a last key without a value.
    """

    name = "plain"
    capturable = False
    reads_bounds = False

    def problem(self, case: Case) -> str | None:  # noqa: ARG002
        """Return None: it does everything."""
        return None

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output; backward needs nothing beside it."""
        check(operands)
        q, k, v, shape = operands.q, operands.k, operands.v, operands.shape
        o = operands.new_output() if out is None else out
        for rows, keys, begin in _blocks(operands.documents, shape, q.device):
            scores, _ = _scores(q, k, rows, keys, begin, shape)
            weights, _ = _weights(scores, shape)
            o[rows].copy_(_by_row(weights @ _by_head(v[keys]), q.shape[1]))
        return o, ()

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,  # noqa: ARG002
        saved: tuple[torch.Tensor, ...],  # noqa: ARG002
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,
    ) -> Gradients:
        """Compute the weights of each block again; `o` and `saved` are not read."""
        q, k, v, shape = operands.q, operands.k, operands.v, operands.shape
        groups, share = k.shape[1], q.shape[1] // k.shape[1]
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk, dv = (
            torch.zeros(groups, x.shape[0], x.shape[2], dtype=_exact(q.dtype), device=q.device) for x in (k, v)
        )
        of_sinks = torch.zeros(q.shape[1], dtype=_exact(q.dtype), device=q.device)
        for rows, keys, begin in _blocks(operands.documents, shape, q.device):
            scores, slope = _scores(q, k, rows, keys, begin, shape)
            weights, of_sink = _weights(scores, shape)
            d_output = _by_group(do[rows], groups)
            d_weights = d_output @ _by_head(v[keys]).mT
            share_of_rows = (weights * d_weights).sum(-1, keepdim=True)
            if of_sink is not None:
                of_sinks -= (of_sink * share_of_rows).view(q.shape[1], -1).sum(1)
            d_scores = (d_weights - share_of_rows).mul_(weights)
            if slope is not None:
                d_scores *= slope
            dv[:, keys] += _over_heads(weights, d_output, share)
            dk[:, keys] += _over_heads(d_scores, _by_group(q[rows], groups) * shape.scale, share)
            dq[rows].copy_(_by_row(d_scores @ _by_head(k[keys]) * shape.scale, q.shape[1]))
        results = (dq, dk.transpose(0, 1), dv.transpose(0, 1))
        out_q, out_k, out_v = outs or (dq, torch.empty_like(k), torch.empty_like(v))
        for out, result in zip((out_q, out_k, out_v), results, strict=True):
            if out is not result:
                out.copy_(result)
        if to_sinks is not None:
            to_sinks.copy_(of_sinks)
        return out_q, out_k, out_v


def _blocks(documents: Documents, shape: AttentionShape, device: torch.device) -> Iterator[tuple[slice, slice, int]]:
    """Yield blocks of queries, the keys that they may see, so that few scores exist at once, and a document's begin."""
    num_scores = SCORES_PER_CPU_BLOCK if device.type == "cpu" else SCORES_PER_BLOCK
    start = 0
    for length in documents.lengths:
        reach = min(length, shape.window or shape.chunk or length)
        step = max(1, num_scores // (shape.num_heads * reach))
        for row in range(start, start + length, step):
            end = min(row + step, start + length)
            first = row - reach + 1 if shape.chunk is None else row - (row - start) % shape.chunk
            yield slice(row, end), slice(max(start, first), end), start
        start += length


def _scores(
    q: torch.Tensor, k: torch.Tensor, rows: slice, keys: slice, begin: int, shape: AttentionShape
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the masked scores [KV, G * rows, keys] and the softcap's derivative there, None without a softcap."""
    scores = (_by_group(q[rows], k.shape[1]) * shape.scale) @ _by_head(k[keys]).mT
    slope = None
    if shape.softcap is not None:
        curve = torch.tanh(scores / shape.softcap)
        scores, slope = curve * shape.softcap, 1 - curve * curve
    row = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=q.device)
    if shape.slopes is not None:
        lost = shape.slopes.to(scores.dtype)[:, None, None] * (row - key)
        scores = scores - lost.view(scores.shape)
    hidden = key > row
    if shape.window is not None:
        hidden = hidden | (key <= row - shape.window)
    if shape.chunk is not None:
        hidden = hidden | ((key - begin) // shape.chunk < (row - begin) // shape.chunk)
    return scores.masked_fill_(hidden.repeat(q.shape[1] // k.shape[1], 1), float("-inf")), slope


def _weights(scores: torch.Tensor, shape: AttentionShape) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the weights of the keys, [KV, G * rows, keys], and those of sinks, [KV, G * rows, 1], if there are any."""
    if shape.sinks is None:
        return torch.softmax(scores, -1), None
    sinks = shape.sinks.to(scores.dtype)[:, None].expand(-1, scores.shape[0] * scores.shape[1] // len(shape.sinks))
    weights = torch.softmax(torch.cat((scores, sinks.reshape(*scores.shape[:2], 1)), -1), -1)
    return weights[..., :-1], weights[..., -1:]


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _by_head(tensor: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, hd] to [heads, tokens, hd] in the exact number format."""
    return tensor.to(_exact(tensor.dtype)).transpose(0, 1)


def _by_group(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """[tokens, H, hd] to [KV, G * tokens, hd] in the exact number format: a group's heads share keys and values."""
    return _by_head(tensor).reshape(groups, -1, tensor.shape[-1])


def _over_heads(scores: torch.Tensor, operand: torch.Tensor, share: int) -> torch.Tensor:
    """Return scores^T operand, [KV, keys, hd], from a product for each head: long sums in one piece are less exact."""
    return (scores.unflatten(1, (share, -1)).mT @ operand.unflatten(1, (share, -1))).sum(1)


def _by_row(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """[KV, G * tokens, hd] back to [tokens, H, hd]."""
    return tensor.view(num_heads, -1, tensor.shape[-1]).transpose(0, 1)
