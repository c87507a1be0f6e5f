"""The state-space scan by chunks, against a loop over the tokens in float64 and the chunks of transformers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

from tests.engine.kernels.documents import check_others_are_ignored
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.state_space import Steps, backward, forward, heads_in_part, workspace_bytes

PARTS = ("output", "dx", "db", "dc", "d steps")
NOTHING = 1e-9
FLOAT32_STEPS = 64.0
"""Sums over a chunk's tokens are taken in another order; only float32 shows it."""

Values = tuple[torch.Tensor, ...]
"""The output and the gradients of x, b, c and the raw steps; of inputs: these, [bias, log rate, skip], dy."""


@dataclass(frozen=True)
class Case:
    """Lengths of documents, heads, and a kind of inputs."""

    lengths: tuple[int, ...]
    num_groups: int = 1
    num_heads: int = 2
    state: int = 16
    head: int = 16
    num_empty: int = 0
    log_rate: float = 0.0
    limits: tuple[float, float] = (0.0, float("inf"))

    def bounds(self, device: torch.device) -> torch.Tensor:
        ends = list(itertools.accumulate(self.lengths))
        return torch.tensor([0, *ends, *ends[-1:] * self.num_empty], dtype=torch.int32, device=device)

    def inputs(self, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Values:
        """Return x, b and c as views of one buffer, as a convolution leaves them, and the others."""
        generator = torch.Generator().manual_seed(seed)
        num_tokens = sum(self.lengths)
        widths = [self.num_heads * self.head, *[self.num_groups * self.state] * 2]
        rows = torch.randn(num_tokens, sum(widths) + 8, generator=generator)
        x, b, c, _rest = rows.to(device, dtype).split([*widths, 8], 1)
        raw, skip = torch.randn(num_tokens, self.num_heads + 3, generator=generator), torch.randn(self.num_heads)
        bias, log_rate = torch.randn(2, self.num_heads, generator=generator)
        dy = torch.randn(num_tokens, self.num_heads, self.head, generator=generator)
        return (
            x.unflatten(1, (self.num_heads, self.head)),
            *(each.unflatten(1, (self.num_groups, self.state)) for each in (b, c)),
            raw.to(device, dtype)[:, : self.num_heads],
            torch.stack((bias - 1, log_rate * 0.5 + self.log_rate, skip)).to(device),
            dy.to(device, dtype),
        )


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
    "groups of three": Case((70, 20), num_groups=2, num_heads=6),
    "a group for each": Case((70, 20), num_groups=3, num_heads=3),
    "a group in parts": Case((70, 20), num_heads=34),
    "odd dims": Case((70, 20), state=24, head=40),
    "wide states": Case((130, 70), state=256, head=64),
    "wide heads": Case((130, 70), state=128, head=128),
    "strong decays": Case((100, 90), log_rate=4.0),
    "hardly any decay": Case((200,), log_rate=-9.0),
    "limits": Case((100, 30), limits=(0.3, 0.8)),
    "many documents": Case(tuple(1 + (7 * i) % 31 for i in range(24)), num_empty=3),
}

LONG = ["documents across chunks", *MORE]
IN_16_BITS = ["one-token documents", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


def run(case: Case, inputs: Values) -> Values:
    """Return output and gradients of ours, the output inside a wider buffer."""
    x, b, c, raw, (bias, log_rate, skip), dy = inputs
    room = torch.full((len(x), x.shape[1] + 1, x.shape[2]), 7.0, dtype=x.dtype, device=x.device)
    bounds, steps = case.bounds(x.device), Steps(raw, bias, log_rate, case.limits)
    forward(x, b, c, steps, skip, bounds, room[:, :-1])
    outs = tuple(torch.full_like(each, float("nan")) for each in (x, b, c, raw))
    backward(dy, x, b, c, steps, skip, bounds, outs)  # type: ignore[arg-type]
    assert (room[:, -1] == 7).all()
    return room[:, :-1], *outs


def _by_autograd(case: Case, way: Callable[..., torch.Tensor], inputs: Values) -> Values:
    *leaves, others, dy = (each.detach().clone() for each in inputs)
    for leaf in leaves:
        leaf.requires_grad_()
    parts = zip(*(leaf.split(case.lengths) for leaf in leaves), strict=True)
    output = torch.cat([way(case, *part, others) for part in parts])
    return output.detach(), *torch.autograd.grad(output, leaves, dy)


def exact(case: Case, inputs: Values) -> Values:
    """Return what a loop over the tokens gives in float64."""
    return _by_autograd(case, _token_by_token, tuple(each.cpu().double() for each in inputs))


def _token_by_token(
    case: Case, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, raw: torch.Tensor, others: torch.Tensor
) -> torch.Tensor:
    bias, log_rate, skip = others
    b, c = (each.repeat_interleave(x.shape[1] // each.shape[1], 1) for each in (b, c))
    steps = functional.softplus(raw + bias).clamp(*case.limits)
    state, outputs = x.new_zeros(x.shape[1], b.shape[2], x.shape[2]), []
    for token in range(len(x)):
        decay = torch.exp(-log_rate.exp() * steps[token])
        written = torch.einsum("hk,hv->hkv", b[token], x[token] * steps[token, :, None])
        state = decay[:, None, None] * state + written
        outputs.append(torch.einsum("hkv,hk->hv", state, c[token]) + skip[:, None] * x[token])
    return torch.stack(outputs)


def usual(case: Case, inputs: Values) -> Values:
    """Return what transformers gives in the inputs' own number format."""
    return _by_autograd(case, _transformers, tuple(each.cpu() for each in inputs))


def _transformers(
    case: Case, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, raw: torch.Tensor, others: torch.Tensor
) -> torch.Tensor:
    bias, log_rate, skip = others
    form = {"dt_bias": bias, "dt_softplus": True, "dt_limit": case.limits, "D": skip}
    found = mamba2_chunk_scan(x[None], raw[None], -log_rate.exp(), b[None], c[None], chunk_size=64, **form)
    return found[0].to(x.dtype)


def judge_all(case: Case, ours: Values, inputs: Values) -> None:
    """Hold output and gradients to the loop's."""
    for part, values, same, wanted in zip(PARTS, ours, usual(case, inputs), exact(case, inputs), strict=True):
        if wanted.abs().max() > NOTHING:
            _judge_part(part, values, same, wanted, inputs[0].dtype)
        else:
            assert values.abs().max() <= NOTHING


def _judge_part(name: str, ours: torch.Tensor, same: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
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


def test_a_document_ignores_the_others(device: torch.device) -> None:
    """Whatever stands in other documents, nothing in this one changes; and every run gives the same bits."""
    case = Case((11, 75, 30), num_heads=1)
    inputs = case.inputs(device, torch.float32)
    check_others_are_ignored(lambda: run(case, inputs), (*inputs[:4], inputs[5]), slice(11, 86))


def test_heads_of_a_group_are_divided_evenly() -> None:
    assert [heads_in_part(group) for group in (1, 7, 16, 24, 34, 128)] == [1, 7, 16, 12, 2, 16]
    assert workspace_bytes(64, 1, 128, 64) == 64 * (8 * 128 * 64 // 64 + 16) + (8 * 4 + 4) * 128 + 4
