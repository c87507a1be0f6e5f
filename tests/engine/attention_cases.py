"""Shapes of attention that break kernels, and what the plain formulas make of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.attention import Backend, Operands
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents

Values = tuple[torch.Tensor, ...]
"""The output and the gradients of q, k and v, and of sinks; of inputs: q, k, v and the gradient of the output."""

PARTS = ("output", "dq", "dk", "dv")
OF_SINKS = "dsinks"
NOTHING = 1e-9

CPU = torch.device("cpu")

FLOAT32_STEPS = 32.0
"""Kernels get weights back as exp(score - log_sum_exp), off by the steps of both, and one large gradient carries that;
only float32 shows it."""


@dataclass(frozen=True)
class Attention:
    """Lengths of documents and a shape of attention."""

    lengths: tuple[int, ...]
    num_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    softcap: float | None = None
    window: int | None = None
    num_empty: int = 0
    scale: float = 0.3
    chunk: int | None = None
    sinks: bool = False
    slopes: bool = False
    value_size: int | None = None

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    def shape(self, device: torch.device = CPU) -> AttentionShape:
        heads = (self.num_heads, self.num_key_value_heads, self.head_dim)
        return AttentionShape(
            *((), nn.Identity(), *heads, self.scale, self.softcap, self.window),
            chunk=self.chunk,
            sinks=self.sink_values(device) if self.sinks else None,
            slopes=self.slope_values(device) if self.slopes else None,
            value_size=self.value_size,
        )

    def sink_values(self, device: torch.device) -> torch.Tensor:
        """Scores of which the last hides most that a token sees."""
        return torch.linspace(-1.0, 2.5, self.num_heads, device=device)

    def slope_values(self, device: torch.device) -> torch.Tensor:
        return torch.linspace(0.5, 0.01, self.num_heads, device=device)

    def documents(self, device: torch.device) -> Documents:
        bounds = [0]
        for length in self.lengths:
            bounds.append(bounds[-1] + length)
        bounds += [bounds[-1]] * self.num_empty
        return Documents(torch.tensor(bounds, dtype=torch.int32, device=device), self.lengths, max(self.lengths))

    def inputs(self, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Values:
        """Return q, k, v as views of one buffer, as projections leave them, and a gradient of the output."""
        generator = torch.Generator().manual_seed(seed)
        heads, groups = self.num_heads, self.num_key_value_heads
        rows = torch.randn(self.num_tokens, heads + 2 * groups, self.head_dim, generator=generator)
        do = torch.randn(self.num_tokens, heads, self.head_dim, generator=generator)
        rows = rows.to(device, dtype)
        width = self.value_size or self.head_dim
        v = torch.randn(self.num_tokens, groups + 1, width, generator=generator).to(device, dtype)[:, :-1]
        v = v if self.value_size else rows[:, heads + groups :]
        if self.value_size:
            do = torch.randn(self.num_tokens, heads, width, generator=generator)
        return rows[:, :heads], rows[:, heads : heads + groups], v, do.to(device, dtype)


SMALL = {
    "one document": Attention((37,)),
    "equal lengths": Attention((16, 16, 16)),
    "one-token documents": Attention((1, 5, 1, 1, 23, 1)),
    "only one-token documents": Attention((1, 1, 1)),
    "many documents": Attention(tuple(1 + (7 * i) % 11 for i in range(24)), num_empty=3),
    "empty at the end": Attention((9, 4), num_empty=5),
    "one head per key": Attention((20, 13), 3, 3),
    "one key head": Attention((20, 13), 6, 1),
    "softcap": Attention((40, 3), softcap=2.0, scale=1.0),
    "window of one": Attention((9, 17), window=1),
    "window": Attention((40, 3, 30), window=7),
    "window as long as a document": Attention((12, 13, 11), window=12),
    "window and softcap": Attention((33, 21), window=8, softcap=1.5, scale=0.7),
    "odd head size": Attention((18, 6), head_dim=24),
    "block edges": Attention((32, 64, 1, 31), head_dim=32),
    "sinks": Attention((18, 1, 6), sinks=True),
    "sinks and window": Attention((40, 3, 30), window=7, sinks=True),
    "slopes": Attention((20, 13), slopes=True),
    "slopes of shared keys": Attention((33, 4), 6, 2, slopes=True, window=20),
    "chunks": Attention((40, 3, 30, 16), chunk=8),
    "chunks longer than documents": Attention((9, 1, 17), chunk=32),
    "narrow values": Attention((18, 6), head_dim=24, value_size=16),
    "wide values": Attention((18, 6), value_size=40, sinks=True),
}


def exact(case: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor) -> Values:
    """Return output and gradients of the plain formula in float64, by autograd."""
    return _by_autograd(case, _eager, *(tensor.double() for tensor in (q, k, v, do)))


def usual(case: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor) -> tuple[Values, ...]:
    """Return what transformers gives in the inputs' own number format, on their device, in each of its ways.

    They are `eager_attention_forward` (models/gemma2) and, in float32 without a softcap, its default, PyTorch's own:
    on a GPU each is less exact than the other in some sums.
    """
    ways = [_eager]
    if q.dtype == torch.float32 and case.softcap is None and not case.sinks:
        ways.append(_pytorch)
    return tuple(_by_autograd(case, way, q, k, v, do) for way in ways)


Way = Callable[
    [Attention, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor
]


def _by_autograd(
    case: Attention, way: Way, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor
) -> Values:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
    # In float32 whatever the rest is in, as the optimizer's copy of a weight.
    exact_dtype = torch.promote_types(q.dtype, torch.float32)
    sinks = case.sink_values(q.device).to(exact_dtype).requires_grad_() if case.sinks else None
    outputs = [
        _document(case, way, *parts, sinks)
        for parts in zip(*(leaf.split(case.lengths) for leaf in leaves), strict=True)
    ]
    output = torch.cat(outputs)
    leaves = leaves if sinks is None else [*leaves, sinks]
    return output.detach(), *torch.autograd.grad(output, leaves, do)


def _document(
    case: Attention, way: Way, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
) -> torch.Tensor:
    group = case.num_heads // case.num_key_value_heads
    keys, values = (tensor.repeat_interleave(group, 1).transpose(0, 1) for tensor in (k, v))
    age = torch.arange(len(q), device=q.device)[:, None] - torch.arange(len(q), device=q.device)
    seen = (age >= 0) & (age < (case.window or len(q)))
    if case.chunk:
        number = torch.arange(len(q), device=q.device) // case.chunk
        seen &= number[:, None] == number
    added = torch.zeros(case.num_heads, *age.shape, dtype=q.dtype, device=q.device)
    if case.slopes:
        wide = torch.promote_types(q.dtype, torch.float32)
        added -= (case.slope_values(q.device).to(wide)[:, None, None] * age).to(q.dtype)
    added = added.masked_fill(~seen, torch.finfo(q.dtype).min)
    return way(case, q.transpose(0, 1), keys, values, added, sinks).transpose(0, 1)


def _pytorch(
    case: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    added: torch.Tensor,
    _sinks: torch.Tensor | None,
) -> torch.Tensor:
    attend = nn.functional.scaled_dot_product_attention
    return attend(q[None], k[None], v[None], attn_mask=added[None], scale=case.scale)[0]


def _eager(
    case: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    added: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    scores = q @ k.mT * case.scale
    if case.softcap is not None:
        scores = torch.tanh(scores / case.softcap) * case.softcap
    scores = (scores + added).clamp_min(torch.finfo(scores.dtype).min)
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(-1, len(scores[0]), 1).to(scores.dtype)), -1)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.softmax(scores, -1, dtype=wide)[..., : len(k[0])].to(q.dtype) @ v


def run(backend: Backend, case: Attention, inputs: Values) -> Values:
    """Run a backend as the fused model does: the output inside a wider buffer, its gradient dense."""
    q, k, v, do = inputs
    shape, documents = case.shape(q.device), case.documents(q.device)
    buffer = torch.full((len(q), q.shape[1] + 1, v.shape[2]), 7.0, dtype=q.dtype, device=q.device)
    operands = Operands(q, k, v, documents, shape)
    o, saved = backend.forward(operands, buffer[:, :-1])
    assert o.data_ptr() == buffer.data_ptr()
    to_sinks = torch.empty(case.num_heads, device=q.device) if case.sinks else None
    gradients = backend.backward(do, operands, o, saved, to_sinks=to_sinks)
    assert (buffer[:, -1] == 7).all()
    return (o, *gradients) if to_sinks is None else (o, *gradients, to_sinks)


def judge_all(case: Attention, ours: Values, inputs: Values) -> None:
    """Hold output and gradients to the plain formula's."""
    ways, oracle = usual(case, *inputs), exact(case, *inputs)
    for index, part in enumerate(PARTS):
        # A query that sees one key has no gradient to be measured by; it is judged with the others below.
        if oracle[index].abs().max() > NOTHING:
            judge_part(part, ours[index], tuple(same[index] for same in ways), oracle[index])
    if case.sinks:
        # Added up in float32; only what it is made of is rounded to the number format.
        judge(OF_SINKS, ours[4], tuple(same[4] for same in ways), oracle[4], ours[0].dtype, FLOAT32_STEPS)
    joined = (_joined(ours), tuple(_joined(same) for same in ways), _joined(oracle))
    judge_part("dqkv", *joined)


def _joined(values: Values) -> torch.Tensor:
    """Return the gradients of q, k and v in one."""
    return torch.cat([each.flatten(1) for each in values[1:4]], 1)


def judge_part(name: str, ours: torch.Tensor, same: tuple[torch.Tensor, ...], oracle: torch.Tensor) -> None:
    """Judge a tensor, and the judgement."""
    c = FLOAT32_STEPS if ours.dtype == torch.float32 else REDUCTION
    judge(name, ours, same, oracle, ours.dtype, c)
    mutants_fail(lambda mutant: judge(name, mutant, same, oracle, ours.dtype, c), ours)


def check_independence(backend: Backend, case: Attention, inputs: Values) -> None:
    """Documents alone, and in another order, give what they give behind each other."""
    packed, oracle = run(backend, case, inputs), exact(case, *inputs)
    parts = [tensor.split(case.lengths) for tensor in inputs]
    alone = [
        run(backend, replace(case, lengths=(length,)), tuple(part[i] for part in parts))  # type: ignore[arg-type]
        for i, length in enumerate(case.lengths)
    ]
    order = list(range(len(case.lengths)))
    random.Random(1).shuffle(order)
    turned = replace(case, lengths=tuple(case.lengths[i] for i in order))
    mixed = run(backend, turned, tuple(torch.cat([part[i] for i in order]) for part in parts))  # type: ignore[arg-type]
    for index, part in enumerate(PARTS):
        pieces = dict(zip(order, mixed[index].split(turned.lengths), strict=True))
        separate = torch.cat([values[index] for values in alone])
        judge_part(f"{part} of separate documents", packed[index], (separate,), oracle[index])
        back = torch.cat([pieces[i] for i in range(len(order))])
        judge_part(f"{part} of documents in another order", packed[index], (back,), oracle[index])
