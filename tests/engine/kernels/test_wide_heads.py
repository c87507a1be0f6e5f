"""Attention with wide heads, in slices: its kernels against the plain formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.attention_cases import Attention, check_independence, judge_all, run
from tests.engine.kernels.conftest import INTERPRETED
from tunesmith_engine.attention import BACKENDS, Backend, choose, wide
from tunesmith_engine.kernels import registry

WIDE = Attention((40, 9, 70), 2, 1, 264, num_empty=2, scale=0.06)
CASES = {
    "several documents": WIDE,
    "one token over a block and a slice": replace(WIDE, lengths=(129,)),
    "window": replace(WIDE, window=30),
    "window up to a slice's first row": replace(WIDE, lengths=(130,), window=66),
    "one head per key": replace(WIDE, num_key_value_heads=2, head_dim=512, lengths=(66, 1)),
}


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "slice_tokens", lambda _: 64)


@pytest.fixture
def backend(implementation: str) -> Backend:
    """The kernels or their twin."""
    name = "wide" if implementation == "kernel" else "plain"
    return next(backend for backend in BACKENDS if backend.name == name)


@pytest.mark.parametrize("name", CASES)
def test_float32(backend: Backend, device: torch.device, name: str) -> None:
    if backend.name == "wide" and not INTERPRETED:
        pytest.skip("no GPU has the shared memory for it, and `choose` doesn't ask")
    inputs = CASES[name].inputs(device, torch.float32)
    judge_all(CASES[name], run(backend, CASES[name], inputs), inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["several documents", "window"])
def test_16_bits(backend: Backend, device: torch.device, name: str, dtype: torch.dtype) -> None:
    inputs = CASES[name].inputs(device, dtype)
    judge_all(CASES[name], run(backend, CASES[name], inputs), inputs)


def test_same_bits_in_every_run(backend: Backend, device: torch.device) -> None:
    inputs = WIDE.inputs(device, torch.bfloat16)
    for one, other in zip(run(backend, WIDE, inputs), run(backend, WIDE, inputs), strict=True):
        assert torch.equal(one, other)


def test_documents_never_see_each_other(backend: Backend, device: torch.device) -> None:
    case = replace(WIDE, lengths=(3, 90, 1, 20))
    check_independence(backend, case, case.inputs(device, torch.bfloat16))


def test_narrow_heads_are_for_others(implementation: str, device: torch.device) -> None:
    fits = implementation == "kernel" and registry.runs("attention-wide", device, needs_dot=True)
    assert (choose(WIDE.shape(), device, torch.bfloat16).name == "wide") == fits
    assert choose(replace(WIDE, head_dim=256).shape(), device, torch.bfloat16).name != "wide"
