"""The short causal convolution against a loop over the tokens in float64 and PyTorch's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.short_convolution import (
    RUN,
    convolution_gradients,
    convolve,
    convolve_backward,
    first_tokens,
)

LENGTHS = (3, 9, 1, 2, 5)
ACROSS_RUNS = (RUN, RUN - 2, 1, 3, 2 * RUN - 8, 5)
"""A document that ends with a run of the backward pass, one that begins there, two that lie across bounds; the last run
is not full."""
PARTS = ("output", "x", "weight", "bias")
FORMS = {
    "qwen": (4, False, True),
    "mamba": (4, True, True),
    "lfm": (3, False, False),
    "two": (2, True, False),
}
"""Width, whether there is a bias, whether SiLU follows."""

Values = tuple[torch.Tensor, ...]


def _inputs(
    form: str, dtype: torch.dtype, device: torch.device, channels: int, lengths: tuple[int, ...]
) -> tuple[torch.Tensor | None, ...]:
    width, has_bias, _silu = FORMS[form]
    x, gradient = (rows(sum(lengths), channels, dtype, device, seed=seed) for seed in range(2))
    weight = rows(channels, width, dtype, device, seed=2).contiguous()
    return gradient, x, weight, rows(1, channels, dtype, device, seed=3)[0] if has_bias else None


def _bounds(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths), sum(lengths)], dtype=torch.int32, device=device)


def _run(form: str, inputs: tuple[torch.Tensor | None, ...], lengths: tuple[int, ...]) -> Values:
    gradient, x, weight, bias = inputs
    assert gradient is not None
    assert x is not None
    assert weight is not None
    silu = FORMS[form][2]
    begins = first_tokens(_bounds(lengths, x.device), len(x))
    room = torch.full((2, len(x), x.shape[1] + 3), 7.0, dtype=x.dtype, device=x.device)
    out, slope = room[..., :-3]
    convolve(x, weight, bias, silu, begins, out)
    convolve_backward(gradient, x, weight, bias, silu, begins, slope)
    assert (room[..., -3:] == 7).all()
    return out, slope, *convolution_gradients(gradient, x, weight, bias, silu, begins)


def _exact(form: str, inputs: tuple[torch.Tensor | None, ...], lengths: tuple[int, ...]) -> Values:
    width, _has_bias, silu = FORMS[form]
    gradient, *leaves = (None if x is None else x.detach().cpu().double() for x in inputs)
    x, weight, bias = (torch.zeros(inputs[1].shape[1]).double() if x is None else x for x in leaves)  # type: ignore[union-attr]
    for leaf in (x, weight, bias):
        leaf.requires_grad_()
    outputs = []
    for document in x.split(lengths):
        for token in range(len(document)):
            seen = range(max(0, token - width + 1), token + 1)
            outputs.append(bias + sum(document[other] * weight[:, other - token - 1] for other in seen))
    output = torch.stack(outputs)
    output = output * torch.sigmoid(output) if silu else output
    return output.detach(), *torch.autograd.grad(output, (x, weight, bias), gradient)


def _usual(form: str, inputs: tuple[torch.Tensor | None, ...], lengths: tuple[int, ...]) -> Values:
    """PyTorch's convolution in the inputs' own format, on the processor: as transformers has it."""
    width, _has_bias, silu = FORMS[form]
    gradient, *leaves = (None if x is None else x.detach().cpu() for x in inputs)
    x, weight, bias = (torch.zeros_like(leaves[0][0]) if x is None else x for x in leaves)  # type: ignore[index]
    for leaf in (x, weight, bias):
        leaf.requires_grad_()
    outputs = []
    for document in x.split(lengths):
        columns, kernel = document.T[None], weight[:, None]
        z = functional.conv1d(columns, kernel, bias, padding=width - 1, groups=len(weight))[0, :, : len(document)].T
        outputs.append(functional.silu(z) if silu else z)
    output = torch.cat(outputs)
    return output.detach(), *torch.autograd.grad(output, (x, weight, bias), gradient)


@pytest.mark.parametrize(
    ("form", "dtype", "channels", "lengths"),
    [
        *((form, torch.float32, 40, LENGTHS) for form in FORMS),
        ("mamba", torch.bfloat16, 150, LENGTHS),
        ("qwen", torch.float32, 300, ACROSS_RUNS),
        *(
            pytest.param(form, dtype, 150, lengths, marks=pytest.mark.long)
            for form in FORMS
            for dtype in DTYPES
            for lengths in (LENGTHS, ACROSS_RUNS)
        ),
    ],
)
def test_output_and_gradients(
    device: torch.device, form: str, dtype: torch.dtype, channels: int, lengths: tuple[int, ...]
) -> None:
    inputs = _inputs(form, dtype, device, channels, lengths)
    ours = _run(form, inputs, lengths)
    others = (_usual(form, inputs, lengths), _exact(form, inputs, lengths))
    # The exponential of a GPU, too, is good to a few steps of float32.
    c = 2 * REDUCTION if dtype == torch.float32 and FORMS[form][2] else REDUCTION
    for part, values, same, wanted in zip(PARTS, ours, *others, strict=True):
        judge(part, values, same, wanted, dtype, c)
        mutants_fail(lambda mutant, same=same, wanted=wanted: judge("", mutant, same, wanted, dtype, c), values)  # type: ignore[misc]
    for one, other in zip(ours, _run(form, inputs, lengths), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("lengths", [LENGTHS, ACROSS_RUNS])
@pytest.mark.parametrize("form", ["lfm", "two"])
def test_documents_alone_give_the_same_bits(device: torch.device, form: str, lengths: tuple[int, ...]) -> None:
    gradient, x, weight, bias = _inputs(form, torch.float32, device, 40, lengths)
    assert gradient is not None
    assert x is not None
    packed = _run(form, (gradient, x, weight, bias), lengths)[:2]
    pieces = [
        _run(form, (*parts, weight, bias), (len(parts[0]),))[:2]
        for parts in zip(gradient.split(lengths), x.split(lengths), strict=True)
    ]
    for whole, *parts in zip(packed, *pieces, strict=True):
        assert torch.equal(whole, torch.cat(parts))
