"""Rotation of queries and keys: the layouts of transformers, partial rotation, norms of heads, in place."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers.models.cohere import modeling_cohere
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_core.errors import BugError
from tunesmith_engine.kernels.rope import rotate, rotate_backward
from tunesmith_engine.mixer_shapes import Norm

EPS = 1e-6
# heads of queries, of keys, numbers of a head, of them rotated, interleaved, norm
FORMS = {
    "llama": (3, 1, 64, 64, False, None),
    "cohere": (4, 2, 32, 32, True, None),
    "phi": (3, 3, 32, 24, False, None),
    "qwen": (6, 2, 128, 128, False, "qwen"),
    "gemma": (2, 1, 24, 24, False, "gemma"),
    "partial with norm": (5, 1, 20, 12, False, "qwen"),
    "no rotation": (2, 2, 16, 0, False, "qwen"),
}
Tensors = tuple[torch.Tensor, torch.Tensor]


def _tables(num_tokens: int, rotary: int, interleaved: bool, dtype: torch.dtype) -> tuple[torch.Tensor | None, ...]:
    if not rotary:
        return None, None
    frequency = 100.0 ** (-torch.arange(0, rotary, 2) / rotary)
    angle = (torch.arange(num_tokens) * 3)[:, None] * frequency
    angle = angle.repeat_interleave(2, 1) if interleaved else angle.repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _norms(kind: str | None, head_dim: int, dtype: torch.dtype, device: torch.device) -> list[Norm | None]:
    if kind is None:
        return [None, None]
    gemma = kind == "gemma"
    weights = [rows(1, head_dim, dtype, device, seed=20 + place)[0].contiguous() for place in range(2)]
    return [Norm(weight, EPS, plus_one=gemma, cast_last=gemma) for weight in weights]


def _transformers(
    x: torch.Tensor, form: str, norm: Norm | None, cos: torch.Tensor | None, sin: torch.Tensor | None
) -> torch.Tensor:
    """What the models do, for [T, heads * head_dim]."""
    head_dim, interleaved, kind = FORMS[form][2], *FORMS[form][4:]
    heads = x.unflatten(1, (-1, head_dim))
    if norm is not None:
        module = (Gemma3RMSNorm if kind == "gemma" else Qwen3RMSNorm)(head_dim, eps=EPS)
        module.weight.data = norm.weight
        heads = module.requires_grad_(False)(heads)
    if cos is not None:
        apply = modeling_cohere if interleaved else modeling_phi3 if form.startswith("p") else modeling_llama
        heads = apply.apply_rotary_pos_emb(heads[None], heads[None], cos[None], sin[None], unsqueeze_dim=2)[0][0]
    return heads.flatten(1)


def _exact(
    x: torch.Tensor, form: str, norm: Norm | None, cos: torch.Tensor | None, sin: torch.Tensor | None
) -> torch.Tensor:
    """The plain formulas in float64: each pair, as a complex number, is multiplied by cos + i sin."""
    head_dim, rotary, interleaved = FORMS[form][2:5]
    heads = x.unflatten(1, (-1, head_dim))
    if norm is not None:
        factor = norm.weight.cpu().double() + (1 if norm.plus_one else 0)
        heads = heads / (heads.square().mean(-1, keepdim=True) + EPS).sqrt() * factor
    if cos is not None:
        half = rotary // 2
        one, other = (
            (slice(0, rotary, 2), slice(1, rotary, 2)) if interleaved else (slice(0, half), slice(half, rotary))
        )
        places = slice(0, rotary, 2) if interleaved else slice(0, half)
        turn = torch.complex(cos.double()[:, None, places], sin.double()[:, None, places])
        turned = torch.complex(heads[..., one], heads[..., other]) * turn
        result = heads.clone()
        result[..., one], result[..., other] = turned.real, turned.imag
        heads = result
    return heads.flatten(1)


def _results(
    q: torch.Tensor, k: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, setting: tuple
) -> list[torch.Tensor]:
    """Return rotated queries and keys, and the gradients of queries and keys."""
    out = [torch.empty_like(x) for x in (q, k, dq, dk)]
    rotate(q, k, *setting, *out[:2])
    rotate_backward(dq, dk, q, k, *setting, *out[2:])
    return out


def _judge(
    name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, c: float, ours: torch.Tensor
) -> None:
    judge(name, ours, usual, exact, dtype, c)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "offset"), [(5, 0), (1, 3)])
def test_forward_and_backward(
    device: torch.device, form: str, dtype: torch.dtype, num_tokens: int, offset: int
) -> None:
    num_query, num_key, head_dim, rotary, interleaved, kind = FORMS[form]
    widths = [num_query * head_dim, num_key * head_dim] * 2
    inputs = [rows(num_tokens, width, dtype, device, seed, offset) for seed, width in enumerate(widths)]
    cos, sin = _tables(num_tokens, rotary, interleaved, dtype)
    norms = _norms(kind, head_dim, dtype, device)
    on_device = [None if table is None else table.to(device) for table in (cos, sin)]
    found = _results(*inputs, (*on_device, head_dim, interleaved, *norms))
    for place in range(2):
        wanted = []
        for function, tables, where, wide in (
            (_transformers, on_device, device, dtype),
            (_exact, (cos, sin), torch.device("cpu"), torch.float64),
        ):
            x = inputs[place].detach().to(where, wide).requires_grad_()
            out = function(x, form, norms[place], *tables)
            out.backward(inputs[2 + place].to(where, wide))
            wanted.append((out, x.grad))
        for name, ours, usual, exact in zip(("out", "gradient"), found[place::2], *wanted, strict=True):
            check = partial(_judge, f"{form} {name}", usual, exact, dtype, REDUCTION if kind else 1.0)
            check(ours)
            mutants_fail(check, ours)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_gives_the_same_bits(device: torch.device, form: str, dtype: torch.dtype) -> None:
    num_query, num_key, head_dim, rotary, interleaved, kind = FORMS[form]
    # As in a run: queries and keys beside each other in one buffer, and more behind them.
    width = (num_query + num_key) * head_dim
    both, slopes = (rows(4, width, dtype, device, seed) for seed in range(2))
    tables = [None if table is None else table.to(device) for table in _tables(4, rotary, interleaved, dtype)]
    setting = (*tables, head_dim, interleaved, *_norms(kind, head_dim, dtype, device))
    split = num_query * head_dim
    q, k, dq, dk = both[:, :split], both[:, split:], slopes[:, :split], slopes[:, split:]
    out_q, out_k, out_dq, out_dk = _results(q, k, dq, dk, setting)
    rotate_backward(dq, dk, q, k, *setting, dq, dk)
    assert torch.equal(slopes, torch.cat([out_dq, out_dk], dim=1))
    rotate(q, k, *setting, q, k)
    assert torch.equal(both, torch.cat([out_q, out_k], dim=1))


def test_nothing_is_written_beside_the_rows(device: torch.device) -> None:
    q, k = (rows(3, width, torch.float32, device, seed=0) for width in (60, 20))
    room = torch.full((3, 96), 7.0, device=device)
    cos, sin = (table.to(device) for table in _tables(3, 12, False, torch.float32) if table is not None)
    rotate(q, k, cos, sin, 20, False, None, None, room[:, 4:64], room[:, 68:88])
    for beside in (room[:, :4], room[:, 64:68], room[:, 88:]):
        assert (beside == 7).all()
    assert (room[:, 4:64] != 7).all()


@pytest.mark.long
def test_rows_behind_2_to_the_31_numbers(device: torch.device, far_rows: torch.Tensor) -> None:
    near = far_rows.clone(memory_format=torch.contiguous_format)
    k, norm = near[:, :32].clone(), Norm(None, EPS)
    cos, sin = (table.to(device) for table in _tables(2, 32, False, torch.float16) if table is not None)
    for x in (near, far_rows):
        rotate(x, k, cos, sin, 32, False, None, None, x, torch.empty_like(k))
    assert torch.equal(far_rows, near)
    for x in (near, far_rows):
        rotate_backward(x, k, x, k, cos, sin, 32, False, norm, norm, x, torch.empty_like(k))
    assert torch.equal(far_rows, near)


def test_no_tokens(device: torch.device) -> None:
    q, k, cos = torch.empty(0, 32, device=device), torch.empty(0, 16, device=device), torch.empty(0, 16, device=device)
    rotate(q, k, cos, cos, 16, False, None, None, q, k)
    rotate_backward(q, k, q, k, cos, cos, 16, False, None, None, q, k)


def test_norms_that_differ_in_kind_are_refused(device: torch.device) -> None:
    x = torch.ones(2, 16, device=device)
    norm, other, centred = Norm(None, EPS), Norm(None, 2 * EPS), Norm(None, EPS, centred=True)
    for pair in ((norm, None), (norm, other), (centred, centred)):
        with pytest.raises(BugError, match="can't run together"):
            rotate(x, x, None, None, 16, False, *pair, x, x)


@pytest.mark.parametrize("form", FORMS)
def test_twin_against_finite_differences(implementation: str, form: str) -> None:
    if implementation != "twin":
        return
    _, _, head_dim, rotary, interleaved, kind = FORMS[form]
    tables = _tables(2, rotary, interleaved, torch.float64)
    setting = (*tables, head_dim, interleaved, *_norms(kind, head_dim, torch.float64, torch.device("cpu")))

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, q: torch.Tensor, k: torch.Tensor) -> Tensors:
            ctx.save_for_backward(q, k)
            out_q, out_k = torch.empty_like(q), torch.empty_like(k)
            rotate(q, k, *setting, out_q, out_k)
            return out_q, out_k

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, dq: torch.Tensor, dk: torch.Tensor) -> Tensors:
            found = _results(*ctx.saved_tensors, dq, dk, setting)
            return found[2], found[3]

    generator = torch.Generator().manual_seed(0)
    shape = (2, head_dim)
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(Function.apply, inputs)
