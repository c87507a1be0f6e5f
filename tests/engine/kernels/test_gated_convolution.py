"""The convolution between two gates against a loop over the tokens in float64 and PyTorch's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.gated_convolution import gated_convolve, gated_convolve_backward
from tunesmith_engine.kernels.short_convolution import first_tokens

LENGTHS = (3, 9, 1, 2, 5)
FORMS = {"lfm": (3, False), "biases": (4, True), "two": (2, False), "wide": (7, False)}
"""Width, and whether there is a bias."""

PRODUCTS = 2 * REDUCTION
"""The `c` of products of four random numbers: the largest are farther above the mean than those of sums."""

Values = tuple[torch.Tensor, ...]
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]
"""The gradient of the output, b, c and x side by side, weight and bias."""


def _inputs(form: str, dtype: torch.dtype, device: torch.device, channels: int) -> Inputs:
    width, has_bias = FORMS[form]
    gradient, weight = rows(sum(LENGTHS), channels, dtype, device, seed=0), rows(channels, width, dtype, device, seed=2)
    bias = rows(1, channels, dtype, device, seed=3)[0] if has_bias else None
    return gradient, rows(sum(LENGTHS), 3 * channels, dtype, device, seed=1), weight.contiguous(), bias


def _run(inputs: Inputs, lengths: tuple[int, ...] = LENGTHS) -> Values:
    gradient, x, weight, bias = inputs
    bounds = torch.tensor([0, *itertools.accumulate(lengths), sum(lengths)], dtype=torch.int32, device=x.device)
    begins, channels = first_tokens(bounds, len(x)), len(weight)
    room = torch.full((len(x), 4 * channels + 6), 7.0, dtype=x.dtype, device=x.device)
    out, slope = room[:, :channels], room[:, channels + 3 : -3]
    gated_convolve(x, weight, bias, begins, out)
    gated_convolve_backward(gradient, x, weight, bias, begins, slope)
    assert (room[:, channels : channels + 3] == 7).all()
    assert (room[:, -3:] == 7).all()
    return out, slope


def _exact(inputs: Inputs) -> Values:
    gradient, x, weight, bias = (None if each is None else each.detach().cpu().double() for each in inputs)
    assert x is not None
    assert weight is not None
    x.requires_grad_()
    outputs, width = [], weight.shape[1]
    for document in x.split(LENGTHS):
        b, c, numbers = document.chunk(3, dim=1)
        for token in range(len(document)):
            seen = range(max(0, token - width + 1), token + 1)
            z = sum(b[other] * numbers[other] * weight[:, other - token - 1] for other in seen)
            outputs.append(c[token] * (z if bias is None else z + bias))
    output = torch.stack(outputs)
    return output.detach(), *torch.autograd.grad(output, x, gradient)


def _usual(inputs: Inputs) -> Values:
    """PyTorch's convolution in the inputs' own format, on the processor: as transformers has it."""
    gradient, x, weight, bias = (None if each is None else each.detach().cpu() for each in inputs)
    assert x is not None
    assert weight is not None
    x.requires_grad_()
    outputs, width = [], weight.shape[1]
    for document in x.split(LENGTHS):
        b, c, numbers = document.T[None].chunk(3, dim=1)
        z = functional.conv1d(b * numbers, weight[:, None], bias, padding=width - 1, groups=len(weight))
        outputs.append((c * z[..., : len(document)])[0].T)
    output = torch.cat(outputs)
    return output.detach(), *torch.autograd.grad(output, x, gradient)


@pytest.mark.parametrize(
    ("form", "dtype", "channels"),
    [
        *((form, torch.float32, 40) for form in FORMS),
        ("lfm", torch.bfloat16, 150),
        *(pytest.param(form, dtype, 150, marks=pytest.mark.long) for form in FORMS for dtype in DTYPES),
    ],
)
def test_output_and_gradients(device: torch.device, form: str, dtype: torch.dtype, channels: int) -> None:
    inputs = _inputs(form, dtype, device, channels)
    ours = _run(inputs)
    parts = zip(("output", "gradient"), ours, _usual(inputs), _exact(inputs), strict=True)
    for part, values, same, wanted in parts:
        judge(part, values, same, wanted, dtype, PRODUCTS)
        mutants_fail(lambda mutant, same=same, wanted=wanted: judge("", mutant, same, wanted, dtype, PRODUCTS), values)  # type: ignore[misc]
    for one, other in zip(ours, _run(inputs), strict=True):
        assert torch.equal(one, other)


def test_documents_alone_give_the_same_bits(device: torch.device) -> None:
    gradient, x, weight, bias = _inputs("lfm", torch.float32, device, 40)
    pieces = [
        _run((*parts, weight, bias), (len(parts[0]),))
        for parts in zip(gradient.split(LENGTHS), x.split(LENGTHS), strict=True)
    ]
    for whole, *parts in zip(_run((gradient, x, weight, bias)), *pieces, strict=True):
        assert torch.equal(whole, torch.cat(parts))
