"""The kernels of full fine-tuning: gradients of norms and embeddings, and AdamW of whole weights in both formats."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.adamw_8bit import State
from tunesmith_engine.kernels.embedding_gradient import add_embedding_gradient
from tunesmith_engine.kernels.full_adamw import Numbers, full_adamw, full_adamw_8bit
from tunesmith_engine.kernels.norm_gradient import ROWS, norm_weight_gradient
from tunesmith_engine.kernels.rms_norm import add_norm
from tunesmith_engine.kernels.rounding import key_of, signed, store_rounded
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.train.arena_adamw import table_of_8_bits

KEY = signed(key_of(3, 5, 7))


def _norm(width: int, dtype: torch.dtype, device: torch.device, **form: bool) -> Norm:
    weight = torch.randn(width, generator=torch.Generator().manual_seed(9)).to(device, dtype)
    return Norm(weight, 1e-5, **form)


def _wanted(total: torch.Tensor, gradient: torch.Tensor, norm: Norm, wide: torch.dtype) -> torch.Tensor:
    """Return the gradient of a norm's weight by autograd."""
    weight = torch.ones(norm.weight.numel(), dtype=wide, device=total.device, requires_grad=True)  # type: ignore[union-attr]
    values = total.to(wide).unflatten(1, (-1, weight.numel()))
    if norm.centred:
        values = values - values.mean(-1, keepdim=True)
    normal = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + norm.eps)
    if wide != torch.float64 and not norm.cast_last:
        normal = normal.to(total.dtype).to(wide)
    (normal * weight).flatten(1).backward(gradient.to(wide))
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("form", "num_rows", "width"),
    [
        *(({}, 3, 200), ({"cast_last": True}, ROWS + 5, 33), ({"cast_last": True, "centred": True}, 3, 150)),
        *(pytest.param(form, ROWS + 5, 576, marks=pytest.mark.long) for form in ({}, {"centred": True})),
    ],
)
def test_the_gradient_of_a_norm(
    device: torch.device, dtype: torch.dtype, form: dict[str, bool], num_rows: int, width: int
) -> None:
    gradient, total = (rows(num_rows, width, dtype, device, seed=seed) for seed in range(2))
    norm = _norm(width, dtype, device, **form)
    statistics = add_norm(total, None, norm, torch.empty(num_rows, width, dtype=dtype, device=device))
    found = norm_weight_gradient(gradient, total, norm, statistics)
    assert found.dtype == torch.float32
    usual = _wanted(total, gradient, norm, torch.float32)
    exact = _wanted(total.cpu(), gradient.cpu(), _norm(width, dtype, torch.device("cpu"), **form), torch.float64)
    check = partial(_judge, usual, exact, torch.float32 if form.get("cast_last") else dtype)
    check(found)
    mutants_fail(check, found)
    assert torch.equal(found, norm_weight_gradient(gradient, total, norm, statistics))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_a_norm_of_heads(device: torch.device, dtype: torch.dtype) -> None:
    num_heads, width = 3, 24
    gradient, total = (rows(ROWS // 2, num_heads * width, dtype, device, seed=seed) for seed in range(2))
    norm = _norm(width, dtype, device)
    found = norm_weight_gradient(gradient, total, norm)
    exact = _wanted(total.cpu(), gradient.cpu(), _norm(width, dtype, torch.device("cpu")), torch.float64)
    check = partial(_judge, _wanted(total, gradient, norm, torch.float32), exact, dtype)
    check(found)
    mutants_fail(check, found)


def _judge(usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor) -> None:
    judge("weight", ours, usual, exact, dtype, REDUCTION)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("padding_id", [None, 2])
def test_the_gradient_of_an_embedding_is_pytorchs(
    device: torch.device, dtype: torch.dtype, padding_id: int | None, implementation: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 5, (67,), generator=generator).to(device)
    gradient = rows(67, 40, dtype, device, seed=1)
    before = torch.randn(7, 40, generator=generator).to(device, dtype)
    out = before.clone()
    add_embedding_gradient(ids, gradient, 1.5, padding_id, out)
    wanted = []
    for wide in (dtype, torch.float64):
        table = torch.zeros(7, 40, dtype=wide, requires_grad=True)
        embedded = torch.nn.functional.embedding(ids.cpu(), table, padding_id)
        (embedded * 1.5).backward(gradient.cpu().to(wide))
        assert table.grad is not None
        wanted.append(table.grad + before.cpu().to(wide))
    check = partial(_judge_table, wanted[0], wanted[1], dtype)
    check(out)
    mutants_fail(check, out)
    again = before.clone()
    add_embedding_gradient(ids, gradient, 1.5, padding_id, again)
    if implementation == "kernel" or device.type == "cpu":
        # PyTorch's sum on a GPU is one of atomic additions.
        assert torch.equal(out, again)
    again.copy_(out)
    add_embedding_gradient(ids[:0], gradient[:0], 1.5, padding_id, again)
    assert torch.equal(out, again)


def _judge_table(usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor) -> None:
    judge("table", ours, usual, exact, dtype, REDUCTION)


@pytest.mark.parametrize("in_8_bits", [False, True])
def test_adamw_of_whole_weights(device: torch.device, in_8_bits: bool) -> None:
    num_weights, decay, rate = 5 * 256 + 9, 0.1, 1e-2
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_weights, generator=generator).to(device)
    exact = torch.nn.Parameter(weight.cpu().double())
    usual = torch.nn.Parameter(weight.cpu().clone())
    optimizers = [torch.optim.AdamW([each], lr=rate, weight_decay=decay) for each in (exact, usual)]
    moments = _states(num_weights, device) if in_8_bits else [torch.zeros_like(weight) for _ in range(2)]
    step_of = full_adamw_8bit if in_8_bits else full_adamw
    for step in range(1, 6):
        gradient = torch.randn(num_weights, generator=generator)
        exact.grad, usual.grad = gradient.double(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
        control = torch.tensor([1.0, 0.5], device=device)
        step_of(weight, 2 * gradient.to(device), *moments, control, _numbers(step, rate, decay))  # type: ignore[arg-type]
    if in_8_bits:
        start = torch.randn(num_weights, generator=torch.Generator().manual_seed(0)).double()
        assert (weight.cpu() - exact).norm() < 0.05 * (exact - start).norm()
    else:
        judge("weights", weight, usual, exact.detach(), torch.float32)
    kept, some = weight.clone(), [(each.codes if in_8_bits else each).clone() for each in moments]  # type: ignore[union-attr]
    step_of(weight, weight * float("nan"), *moments, torch.zeros(2, device=device), _numbers(6, rate, decay))  # type: ignore[arg-type]
    assert torch.equal(weight, kept)
    for before, after in zip(some, moments, strict=True):
        assert torch.equal(before, after.codes if in_8_bits else after)  # type: ignore[union-attr]


@pytest.mark.parametrize("in_8_bits", [False, True])
def test_weights_in_bfloat16_are_rounded_by_key_and_place(device: torch.device, in_8_bits: bool) -> None:
    num_weights = 5000
    weight = torch.ones(num_weights, dtype=torch.bfloat16, device=device)
    slope = torch.ones_like(weight)
    moments = _states(num_weights, device) if in_8_bits else [torch.zeros(num_weights, device=device) for _ in range(2)]
    # The update is 2^-10 to the bit, a quarter of the step of bfloat16 below 1.
    numbers = Numbers(0.0, 0.0, 0.0, 1.0, 2.0**-10, 1.0, KEY)
    step_of = full_adamw_8bit if in_8_bits else full_adamw
    step_of(weight, slope, *moments, torch.ones(2, device=device), numbers)  # type: ignore[arg-type]
    wanted = torch.empty(num_weights, dtype=torch.bfloat16)
    store_rounded(wanted, torch.full((num_weights,), 1.0 - 2.0**-10), KEY, 0)
    assert torch.equal(weight.cpu(), wanted)
    assert set(wanted.unique().tolist()) == {1.0, 1.0 - 2.0**-8}


def _states(num_weights: int, device: torch.device) -> list[State]:
    padded = -(-num_weights // 256) * 256
    return [State.zeros(padded, table_of_8_bits(signed).to(device)) for signed in (True, False)]


def _numbers(step: int, rate: float, decay: float) -> Numbers:
    step_size, root = rate / (1.0 - 0.9**step), (1.0 - 0.999**step) ** 0.5
    return Numbers(0.9, 0.999, 1e-8, 1.0 - rate * decay, step_size, root, KEY)
