"""The gated delta rule by chunks, against a loop over the tokens in float64 and the chunks of transformers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from tests.engine.kernels.documents import check_others_are_ignored
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.delta_rule import backward, forward

PARTS = ("output", "dq", "dk", "dv", "dg", "dbeta")
NOTHING = 1e-9
FLOAT32_STEPS = 64.0
"""Sums over a chunk's tokens and its inverse are taken in another order; only float32 shows it."""

Values = tuple[torch.Tensor, ...]
"""The output and the gradients of q, k, v, g and beta; of inputs: q, k, v, g, beta and the gradient of the output."""


@dataclass(frozen=True)
class Case:
    """Lengths of documents, heads, and a kind of inputs."""

    lengths: tuple[int, ...]
    num_key_heads: int = 1
    num_heads: int = 2
    key_dim: int = 16
    value_dim: int = 16
    num_empty: int = 0
    gate: float = 1.0
    alike: bool = False

    def bounds(self, device: torch.device) -> torch.Tensor:
        ends = list(itertools.accumulate(self.lengths))
        return torch.tensor([0, *ends, *ends[-1:] * self.num_empty], dtype=torch.int32, device=device)

    def inputs(self, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Values:
        """Return q, k and v as views of one buffer, as a convolution leaves them, and the others."""
        generator = torch.Generator().manual_seed(seed)
        num_tokens, widths = sum(self.lengths), [self.num_key_heads * self.key_dim] * 2
        widths.append(self.num_heads * self.value_dim)
        rows = torch.randn(num_tokens, sum(widths) + 8, generator=generator)
        if self.alike:
            rows[:] = rows[:1] + 0.01 * rows
        q, k, v, _rest = rows.to(device, dtype).split([*widths, 8], 1)
        q, k = (x.unflatten(1, (self.num_key_heads, self.key_dim)) for x in (q, k))
        g = -self.gate * torch.rand(num_tokens, self.num_heads, generator=generator).square()
        beta = torch.rand(num_tokens, self.num_heads, generator=generator).mul(1.2).clamp(max=1.0)
        do = torch.randn(num_tokens, self.num_heads, self.value_dim, generator=generator)
        v = v.unflatten(1, (self.num_heads, self.value_dim))
        return q, k, v, g.to(device), beta.to(device, dtype), do.to(device, dtype)


SMALL = {
    "documents across chunks": Case((20, 70, 1, 25), num_empty=2),
    "one-token documents": Case((1, 1, 3), num_heads=1),
}
MORE = {
    "one document": Case((37,)),
    "over chunks": Case((150,)),
    "document over two chunks": Case((30, 170, 1, 65)),
    "bounds at chunks": Case((64, 128)),
    "documents inside one chunk": Case((10, 20, 7, 27, 5)),
    "key heads of three": Case((70, 20), num_key_heads=2, num_heads=6),
    "a head for each": Case((70, 20), num_key_heads=3, num_heads=3),
    "odd dims": Case((70, 20), key_dim=24, value_dim=40),
    "wide heads": Case((130, 70), key_dim=128, value_dim=128),
    "strong gates": Case((100, 90), gate=200.0),
    "no gates": Case((200,), gate=0.0),
    "keys alike": Case((150,), gate=0.01, alike=True),
    "many documents": Case(tuple(1 + (7 * i) % 31 for i in range(24)), num_empty=3),
}

LONG = ["documents across chunks", *(name for name in MORE if name != "keys alike")]
IN_16_BITS = ["one-token documents", "keys alike", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


def run(case: Case, inputs: Values) -> Values:
    """Return output and gradients of ours, the output inside a wider buffer."""
    *inputs, do = inputs  # type: ignore[assignment]
    q, k, v, g, beta = inputs
    room = torch.full((len(q), v.shape[1] + 1, v.shape[2]), 7.0, dtype=v.dtype, device=v.device)
    bounds = case.bounds(q.device)
    forward(q, k, v, g, beta, bounds, room[:, :-1])
    outs = tuple(torch.full_like(x, float("nan")) for x in inputs)
    backward(do, q, k, v, g, beta, bounds, outs)
    assert (room[:, -1] == 7).all()
    return room[:, :-1], *outs


def _by_autograd(case: Case, way: Callable[..., torch.Tensor], inputs: Values) -> Values:
    *leaves, do = (x.detach().clone().requires_grad_() for x in inputs)
    output = torch.cat([way(*parts) for parts in zip(*(leaf.split(case.lengths) for leaf in leaves), strict=True)])
    return output.detach(), *torch.autograd.grad(output, leaves, do.detach())


def exact(case: Case, inputs: Values) -> Values:
    """Return what a loop over the tokens gives in float64."""
    return _by_autograd(case, _token_by_token, tuple(x.cpu().double() for x in inputs))


def _token_by_token(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], 1) for x in (q, k))
    state = v.new_zeros(v.shape[1], k.shape[2], v.shape[2])
    outputs = []
    for token in range(len(q)):
        state = state * g[token].exp()[:, None, None]
        error = v[token] - torch.einsum("hkv,hk->hv", state, k[token])
        state = state + torch.einsum("hk,hv->hkv", k[token], error * beta[token][:, None])
        outputs.append(torch.einsum("hkv,hk->hv", state, q[token]) * q.shape[2] ** -0.5)
    return torch.stack(outputs)


def usual(case: Case, inputs: Values) -> Values:
    """Return what transformers gives in the inputs' own number format."""
    return _by_autograd(case, _transformers, inputs)


def references(case: Case, inputs: Values) -> list[Values]:
    """Return what transformers gives where the inputs are, and of float32 on the processor, too: sums differ."""
    found = [usual(case, inputs)]
    if inputs[0].dtype == torch.float32 and inputs[0].is_cuda:
        found.append(usual(case, tuple(x.cpu() for x in inputs)))
    return found


def _transformers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    # Some versions repeat the heads in the layer, not here.
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], 1) for x in (q, k))
    return torch_chunk_gated_delta_rule(*(x[None] for x in (q, k, v, *others)), use_qk_l2norm_in_kernel=True)[0][0]


def judge_all(case: Case, ours: Values, inputs: Values) -> None:
    """Hold output and gradients to the loop's."""
    same, oracle = zip(*references(case, inputs), strict=True), exact(case, inputs)
    for part, values, reference, wanted in zip(PARTS, ours, same, oracle, strict=True):
        if wanted.abs().max() > NOTHING:
            _judge_part(part, values, reference, wanted, inputs[0].dtype)
        else:
            assert values.abs().max() <= NOTHING


def _judge_part(
    name: str, ours: torch.Tensor, same: tuple[torch.Tensor, ...], wanted: torch.Tensor, dtype: torch.dtype
) -> None:
    # Gradients of gates come in float32 as well, and go on in the inputs' format.
    c = FLOAT32_STEPS if dtype == torch.float32 else REDUCTION
    judge(name, ours, same, wanted, dtype, c)
    mutants_fail(lambda mutant: judge(name, mutant, same, wanted, dtype, c), ours)


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_float32(device: torch.device, name: str) -> None:
    case = {**SMALL, **MORE}[name]
    inputs = case.inputs(device, torch.float32)
    judge_all(case, run(case, inputs), inputs)


@pytest.mark.parametrize("name", IN_16_BITS)
def test_float16(device: torch.device, name: str) -> None:
    case = {**SMALL, **MORE}[name]
    inputs = case.inputs(device, torch.float16)
    judge_all(case, run(case, inputs), inputs)


@pytest.mark.usefixtures("tensor_cores")
@pytest.mark.parametrize("name", IN_16_BITS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_bfloat16(device: torch.device, name: str, seed: int) -> None:
    case = {**SMALL, **MORE}[name]
    inputs = case.inputs(device, torch.bfloat16, seed)
    judge_all(case, run(case, inputs), inputs)


@pytest.mark.long
def test_documents_alone_give_the_same(device: torch.device) -> None:
    case = Case((50, 21, 70))
    inputs = case.inputs(device, torch.float32)
    oracle = exact(case, inputs)
    alone = [run(Case((len(parts[0]),)), parts) for parts in zip(*(x.split(case.lengths) for x in inputs), strict=True)]
    for part, packed, wanted, *pieces in zip(PARTS, run(case, inputs), oracle, *alone, strict=True):
        judge(part, packed, torch.cat(pieces), wanted, torch.float32, FLOAT32_STEPS)


def test_a_document_ignores_the_others(device: torch.device) -> None:
    """Whatever stands in other documents, nothing in this one changes; and every run gives the same bits."""
    case = Case((11, 75, 30), num_heads=1)
    inputs = case.inputs(device, torch.float32)
    check_others_are_ignored(lambda: run(case, inputs), inputs, slice(11, 86))
