"""States that go through tokens one by one, against a loop in float64 and the chunked rules of the training."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels import delta_rule
from tunesmith_engine.kernels.state_step import Tokens, advance

LENGTHS = (5, 70, 1, 12)
FORMS = {
    "delta": (2, 4, 16, 24, True, False),
    "channels": (2, 2, 24, 16, True, True),
    "scan": (1, 4, 20, 40, False, False),
    "wide": (1, 1, 136, 40, True, False),
}
"""Key heads, heads, key and value sizes, whether tokens correct, and whether each channel has a decay of its own."""

PRODUCTS = 2 * REDUCTION
"""The `c` of sums of products of four random numbers: the largest are farther above the mean than those of sums."""


def _tokens(form: str, num_tokens: int, dtype: torch.dtype, device: torch.device) -> Tokens:
    key_heads, heads, key, value, _, by_channel = FORMS[form]
    q, k = (rows(num_tokens, key_heads * key, dtype, device, seed).unflatten(1, (key_heads, key)) for seed in (1, 2))
    q, k = (part / part.float().norm(dim=-1, keepdim=True).to(dtype) for part in (q, k))
    v = rows(num_tokens, heads * value, dtype, device, 3).unflatten(1, (heads, value))
    decay = -rows(num_tokens, heads * (key if by_channel else 1), torch.float32, device, 4).square().contiguous()
    decay = decay.view(num_tokens, heads, -1).expand(-1, -1, key)
    return Tokens(q, k, v, decay, rows(num_tokens, heads, dtype, device, 5).sigmoid())


def _first(form: str, device: torch.device) -> torch.Tensor:
    _, heads, key, value, *_ = FORMS[form]
    numbers = torch.randn(len(LENGTHS), heads, key, value, generator=torch.Generator().manual_seed(6))
    return numbers.to(device)


def _run(form: str, tokens: Tokens, lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    states = _first(form, tokens.v.device)[: len(lengths)].contiguous()
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=states.device)
    out = torch.empty(tokens.v.shape, dtype=tokens.v.dtype, device=states.device)
    unread = states.clone()
    advance(tokens, bounds, FORMS[form][4], states, out)
    advance(tokens, bounds, FORMS[form][4], unread, None)
    assert torch.equal(states, unread), "nothing that is read changes them"
    return states, out


def _by_loop(
    form: str, tokens: Tokens, lengths: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return states and outputs by the formula, in a number format, on the processor."""
    key_heads, heads, *_, corrects, _ = FORMS[form]
    q, k, v, decay, strength = (part.detach().cpu().to(dtype) for part in tokens)
    states, outs, token = [], [], 0
    for row, length in enumerate(lengths):
        found = [state.to(dtype) for state in _first(form, torch.device("cpu"))[row]]
        for _ in range(length):
            read = []
            for head in range(heads):
                key, query = (part[token, head // (heads // key_heads)] for part in (k, q))
                found[head] = found[head] * decay[token, head].exp()[:, None]
                new = v[token, head] - found[head].T @ key if corrects else v[token, head]
                found[head] = found[head] + torch.outer(key, new) * strength[token, head]
                read.append(found[head].T @ query)
            outs.append(torch.stack(read))
            token += 1
        states.append(torch.stack(found))
    return torch.stack(states), torch.stack(outs)


@pytest.mark.parametrize(
    ("form", "dtype", "lengths"),
    [
        *((form, torch.float32, (1, 1, 1, 1)) for form in FORMS),
        ("delta", torch.bfloat16, LENGTHS),
        ("scan", torch.float16, (3, 1)),
        ("channels", torch.float32, (19, 2)),
        *(pytest.param(form, dtype, LENGTHS, marks=pytest.mark.long) for form in FORMS for dtype in DTYPES),
    ],
)
def test_states_and_outputs(device: torch.device, form: str, dtype: torch.dtype, lengths: tuple[int, ...]) -> None:
    tokens = _tokens(form, sum(lengths), dtype, device)
    ours = _run(form, tokens, lengths)
    usual = _by_loop(form, tokens, lengths, torch.float32)
    exact = _by_loop(form, tokens, lengths, torch.float64)
    for name, found, same, wanted in zip(("states", "outputs"), ours, usual, exact, strict=True):
        kind = torch.float32 if name == "states" else dtype
        judge(name, found, same.to(kind), wanted, kind, PRODUCTS)
        mutants_fail(lambda wrong: judge("", wrong, same.to(kind), wanted, kind, PRODUCTS), found)  # noqa: B023
    for one, other in zip(ours, _run(form, tokens, lengths), strict=True):
        assert torch.equal(one, other)


def test_from_empty_states_the_outputs_are_those_of_the_chunked_rule(device: torch.device) -> None:
    tokens = _tokens("delta", sum(LENGTHS), torch.float32, device)
    bounds = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32, device=device)
    states, out = torch.zeros_like(_first("delta", device)), torch.empty(tokens.v.shape, device=device)
    q, k, v, decay, strength = tokens
    expected = torch.empty_like(out)
    delta_rule.forward(q, k, v, decay[..., 0].contiguous(), strength, bounds, expected)
    # The rule itself makes keys and queries unit vectors and scales the queries.
    scaled = tokens._replace(q=q * q.shape[-1] ** -0.5)
    advance(scaled, bounds, True, states, out)
    by_loop = _run_from_nothing(scaled, bounds)
    judge("outputs", out, expected.cpu(), by_loop, torch.float32, REDUCTION)


def _run_from_nothing(tokens: Tokens, bounds: torch.Tensor) -> torch.Tensor:
    """Return the outputs of empty states in float64."""
    wide = Tokens(*(part.cpu().double() for part in tokens))
    states, out = torch.zeros(_first("delta", torch.device("cpu")).shape).double(), torch.empty(wide.v.shape).double()
    advance(wide, bounds.cpu(), True, states, out)
    return out
