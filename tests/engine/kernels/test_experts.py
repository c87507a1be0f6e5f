"""The experts' kernels against plain loops over experts in float64, and the order of rows against its definition."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels import expert_order, expert_rows, grouped_product
from tunesmith_engine.kernels.expert_order import Order, order_of
from tunesmith_engine.kernels.expert_rows import CLAMPED
from tunesmith_engine.shapes import Gate

CASES = [(13, 3, 5, 24, 40), (70, 2, 3, 64, 33), (4, 1, 6, 16, 16)]
"""Tokens, experts of each, experts, inputs, outputs: no block is full, tiles of several sizes, experts without rows."""
GATES = [Gate("silu"), Gate("quick_gelu", in_turn=True), Gate(CLAMPED, in_turn=True, limit=0.9, alpha=1.7)]

FORMATS = [pytest.param(dtype, marks=pytest.mark.long) if dtype == torch.float16 else dtype for dtype in DTYPES]

Values = tuple[torch.Tensor, ...]


def _chosen(num_tokens: int, per_token: int, num_experts: int) -> torch.Tensor:
    """Return experts of each token, none of them the second one."""
    make = torch.Generator().manual_seed(1)
    scores = torch.rand(num_tokens, num_experts, generator=make)
    scores[:, 1] = -1
    return scores.topk(per_token, dim=1).indices


@pytest.mark.parametrize(("num_tokens", "per_token", "num_experts"), [case[:3] for case in CASES])
def test_order(device: torch.device, num_tokens: int, per_token: int, num_experts: int) -> None:
    chosen = _chosen(num_tokens, per_token, num_experts)
    order = order_of(chosen.to(device), num_experts)
    expected = sorted(range(num_tokens * per_token), key=lambda choice: int(chosen.flatten()[choice]))
    assert order.choice.tolist() == expected
    assert order.token.tolist() == [choice // per_token for choice in expected]
    assert [expected[row] for row in order.place.tolist()] == list(range(num_tokens * per_token))
    counts = [int((chosen == expert).sum()) for expert in range(num_experts)]
    assert order.offsets.diff().tolist() == counts
    tiles = [
        (expert, int(order.offsets[expert]) + start)
        for expert, count in enumerate(counts)
        for start in range(0, count, order.tile_rows)
    ]
    assert len(order.tile_expert) == expert_order.num_tiles(order.num_rows, num_experts, order.tile_rows)
    found = list(zip(order.tile_expert.tolist(), order.tile_row.tolist(), strict=True))
    assert found[: len(tiles)] == tiles
    assert {expert for expert, _ in found[len(tiles) :]} <= {num_experts}


def _whose(order: Order) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(order.num_experts), order.offsets.cpu().diff().long())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("num_tokens", "per_token", "num_experts", "width", "outputs"), CASES)
def test_product(
    device: torch.device,
    dtype: torch.dtype,
    transposed: bool,
    num_tokens: int,
    per_token: int,
    num_experts: int,
    width: int,
    outputs: int,
) -> None:
    order = order_of(_chosen(num_tokens, per_token, num_experts).to(device), num_experts)
    x = rows(num_tokens, width, dtype, device, seed=1)
    shape = (num_experts, width, outputs) if transposed else (num_experts, outputs, width)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(device, dtype)
    weight = weight.transpose(1, 2) if transposed else weight
    bias = rows(num_experts, outputs, dtype, device, seed=3).contiguous()
    shrunk = rows(order.num_rows, 16, dtype, device, seed=4)
    beside = torch.randn(num_experts, outputs, 16, generator=torch.Generator().manual_seed(5)).to(device, dtype)
    room = torch.full((order.num_rows, outputs + 5), 7.0, dtype=dtype, device=device)
    ours = grouped_product.multiply(x, weight, order, room[:, :-5], True, shrunk, beside, bias)
    assert (room[:, -5:] == 7).all()

    def loop(x: torch.Tensor, weight: torch.Tensor, shrunk: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
        whose, token = _whose(order), order.token.long().to(x.device)
        some = x[token]
        return torch.stack(
            [
                weight[e] @ row + beside[e] @ small + bias[e].to(x)
                for row, small, e in zip(some, shrunk, whose.tolist(), strict=True)
            ]
        )

    usual = loop(x, weight, shrunk, beside)
    exact = loop(*(part.cpu().double() for part in (x, weight, shrunk, beside)))
    # One chain of additions for inputs, ranks and the bias; the loop rounds three short ones.
    check = partial(_judge, "product", usual, exact, dtype, c=4 * REDUCTION)
    check(ours)
    mutants_fail(check, ours)
    plain = grouped_product.multiply(x[order.token.long()], weight, order, torch.empty_like(ours))
    again = grouped_product.multiply(x, weight, order, torch.empty_like(ours), True)
    assert torch.equal(plain, again)


def _judge(
    name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor, c: float = REDUCTION
) -> None:
    judge(name, ours, usual, exact, dtype, c)


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("num_tokens", "per_token", "num_experts", "width", "outputs"), CASES)
def test_sum_of_products(
    device: torch.device,
    dtype: torch.dtype,
    gathered: bool,
    num_tokens: int,
    per_token: int,
    num_experts: int,
    width: int,
    outputs: int,
) -> None:
    order = order_of(_chosen(num_tokens, per_token, num_experts).to(device), num_experts)
    wide = rows(num_tokens if gathered else order.num_rows, outputs, dtype, device, seed=1)
    narrow = rows(order.num_rows, 16, dtype, device, seed=2)
    ours = grouped_product.sum_products(wide, narrow, order, gathered)

    def loop(wide: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(num_experts, outputs, 16, dtype=wide.dtype, device=wide.device)
        for row, expert in enumerate(_whose(order).tolist()):
            source = int(order.token[row]) if gathered else row
            out[expert] += torch.outer(wide[source], narrow[row])
        return out

    usual, exact = loop(wide.float(), narrow.float()), loop(wide.cpu().double(), narrow.cpu().double())
    # Of products with 22 digits tensor cores cut what lies below the largest one's last digit instead of rounding it.
    c = 2 * REDUCTION if dtype == torch.float16 else REDUCTION
    check = partial(_judge, "sum", usual, exact, torch.float32, c=c)
    check(ours)
    mutants_fail(check, ours)
    assert not ours[1].any()


def _gate_by_autograd(gradient: torch.Tensor, gate_up: torch.Tensor, gate: Gate, weights: torch.Tensor) -> Values:
    leaf = gate_up.detach().clone().requires_grad_()
    weights = weights.detach().to(gate_up.dtype, copy=True).requires_grad_()
    first, second = (leaf[:, ::2], leaf[:, 1::2]) if gate.in_turn else leaf.chunk(2, dim=1)
    if gate.activation == CLAMPED:
        first, second = first.clamp(max=gate.limit), second.clamp(-gate.limit, gate.limit)
        product = (second + 1) * (first * torch.sigmoid(first * gate.alpha))
    elif gate.activation == "silu":
        product = torch.nn.functional.silu(first) * second
    else:
        product = first * torch.sigmoid(1.702 * first) * second
    (product * weights[:, None]).backward(gradient)
    assert leaf.grad is not None
    assert weights.grad is not None
    return product.detach(), leaf.grad, weights.grad


@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("num_rows", "width"), [(5, 48), (3, 1100)])
def test_gate(device: torch.device, dtype: torch.dtype, gate: Gate, num_rows: int, width: int) -> None:
    gradient, gate_up = rows(num_rows, width, dtype, device, seed=1), rows(num_rows, 2 * width, dtype, device, seed=2)
    weights = rows(1, num_rows, torch.float32, device, seed=3)[0].contiguous()
    usual = _gate_by_autograd(gradient, gate_up, gate, weights)
    exact = _gate_by_autograd(gradient.cpu().double(), gate_up.cpu().double(), gate, weights.cpu().double())
    out, dots = torch.empty(num_rows, width, dtype=dtype, device=device), torch.empty_like(weights)
    expert_rows.activate_rows(gate_up, gate, out)
    expert_rows.activate_rows_backward(gradient, gate_up, gate, weights, dots)
    assert torch.equal(out, gradient)
    for name, ours, theirs, oracle in zip(
        ("product", "slopes", "weights"), (gradient, gate_up, dots), usual, exact, strict=True
    ):
        # Products of products: the largest are far above their root mean square.
        check = partial(_judge, name, theirs, oracle, dtype, c=2 * REDUCTION)
        check(ours)
        mutants_fail(check, ours)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
def test_sum_of_a_tokens_rows(device: torch.device, dtype: torch.dtype, weighted: bool) -> None:
    num_tokens, per_token, width = 9, 3, 70
    order = order_of(_chosen(num_tokens, per_token, 5).to(device), 5)
    some = rows(order.num_rows, width, dtype, device, seed=1)
    weights = rows(num_tokens, per_token, torch.float32, device, seed=2).contiguous() if weighted else None

    added = rows(num_tokens, width, dtype, device, seed=3)

    def loop(some: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        parts = some[order.place.long().to(some.device)].view(num_tokens, per_token, width)
        factors = 1.0 if weights is None else weights.to(some)[..., None]
        return (parts * factors).sum(1) + added

    ours = torch.empty(num_tokens, width, dtype=dtype, device=device)
    expert_rows.combine(some, order, weights, ours, added)
    usual, exact = loop(some, added), loop(some.cpu().double(), added.cpu().double())
    check = partial(_judge, "sum", usual, exact, dtype)
    check(ours)
    mutants_fail(check, ours)
    alone = expert_rows.combine(some, order, weights, torch.empty_like(ours))
    check = partial(_judge, "sum", loop(some, 0 * added), loop(some.cpu().double(), 0 * added.cpu().double()), dtype)
    check(alone)
