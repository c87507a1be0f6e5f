"""Heads of latent attention against their formula in float64 and transformers' own code."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.llama import modeling_llama

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.kernels.test_rope import _tables
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.latent_heads import Form, gather, spread

FORMS = {
    "deepseek": Form(3, 16, 8, 16, 24, True),
    "glm": Form(5, 24, 8, 32, 32, True),
    "halves": Form(2, 8, 12, 6, 20, False),
    "one head": Form(1, 128, 64, 128, 192, False),
}
Tensors = tuple[torch.Tensor, ...]


def _inputs(form: Form, num_tokens: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensors, Tensors]:
    query, expanded, values = form.widths
    sizes = (query, expanded, form.turning, query, query, values)
    made = [rows(num_tokens, width, dtype, device, seed=seed) for seed, width in enumerate(sizes)]
    return tuple(made[:3]), tuple(made[3:])


def _ours(form: Form, given: Tensors, slopes: Tensors, table: Tensors) -> Tensors:
    outs = [part.new_full((len(part), part.shape[1] + 5), 7.0) for part in (*slopes, *given)]
    spread(form, *given, table, tuple(out[:, :-5] for out in outs[:3]))
    gather(form, slopes, table, *(out[:, :-5] for out in outs[3:]))
    assert all((out[:, -5:] == 7).all() for out in outs)
    return tuple(out[:, :-5] for out in outs)


def _by_autograd(kind: str, form: Form, given: Tensors, slopes: Tensors, table: Tensors) -> Tensors:
    leaves = [part.detach().clone().requires_grad_() for part in given]
    q, kv = (part.unflatten(1, (form.num_heads, -1)) for part in leaves[:2])
    plain_q, turning_q = q.split([form.plain, form.turning], dim=2)
    plain_k, values = kv.split([form.plain, form.value], dim=2)
    turned = [_turned(kind, form, part, table) for part in (turning_q, leaves[2][:, None])]
    keys = torch.cat([plain_k, turned[1].expand(-1, form.num_heads, -1)], dim=2)
    room = torch.nn.functional.pad(values, (0, form.room - form.value))
    results = [part.flatten(1) for part in (torch.cat([plain_q, turned[0]], dim=2), keys, room)]
    torch.autograd.backward(results, list(slopes))
    return tuple(part.detach() for part in (*results, *(leaf.grad for leaf in leaves)) if part is not None)


def _turned(kind: str, form: Form, x: torch.Tensor, table: Tensors) -> torch.Tensor:
    """Return [T, heads, R] rotated: as complex numbers, or by transformers, whose order of the results is undone."""
    cos, sin = table
    if cos is None:
        return x
    half = form.turning // 2
    if kind == "formula":
        one, other = (slice(0, None, 2), slice(1, None, 2)) if form.interleaved else (slice(0, half), slice(half, None))
        a, b, c, s = x[..., one], x[..., other], cos[:, None, one], sin[:, None, one]
        pair = torch.stack([a * c - b * s, b * c + a * s], dim=-1)
        return pair.flatten(2) if form.interleaved else pair.transpose(2, 3).flatten(2)
    if not form.interleaved:
        return modeling_llama.apply_rotary_pos_emb(x[None], x[None], cos[None], sin[None], unsqueeze_dim=2)[0][0]
    halves = [torch.cat([part[:, ::2], part[:, ::2]], dim=1)[None] for part in (cos, sin)]
    turned = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(x[None], x[None], *halves, unsqueeze_dim=2)[0][0]
    return turned.unflatten(-1, (2, half)).transpose(2, 3).flatten(2)


def _judge(name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor) -> None:
    judge(name, ours, usual, exact, dtype, REDUCTION)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMS)
def test_forward_and_backward(device: torch.device, dtype: torch.dtype, name: str) -> None:
    form = FORMS[name]
    given, slopes = _inputs(form, 5, dtype, device)
    table = tuple(part.to(device) for part in _tables(5, form.turning, form.interleaved, dtype))
    ours = _ours(form, given, slopes, table)
    wide = [tuple(part.cpu().double() for part in parts) for parts in (given, slopes, table)]
    exact = _by_autograd("formula", form, *wide)
    usual = _by_autograd("transformers", form, given, slopes, table)
    names = ("queries", "keys", "values", "query slope", "expanded slope", "shared slope")
    for what, result, theirs, oracle in zip(names, ours, usual, exact, strict=True):
        check = partial(_judge, what, theirs, oracle, dtype)
        check(result)
        mutants_fail(check, result)


def test_without_rotation_numbers_are_only_moved(device: torch.device) -> None:
    form = FORMS["deepseek"]
    given, slopes = _inputs(form, 4, torch.float32, device)
    ours = _ours(form, given, slopes, (None, None))
    exact = _by_autograd("formula", form, given, slopes, (None, None))
    assert all(torch.equal(a, b) for a, b in zip(ours[:5], exact[:5], strict=True))
    torch.testing.assert_close(ours[5], exact[5])
