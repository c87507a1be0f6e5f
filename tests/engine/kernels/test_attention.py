"""Attention's Triton kernels against the plain formula; where they can't run, the last backend, their twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.attention_cases import SMALL, Attention, exact, judge_all, run, usual
from tests.engine.kernels.conftest import INTERPRETED
from tests.engine.numerics import judge
from tunesmith_engine.attention import BACKENDS, Backend, choose
from tunesmith_engine.kernels import registry

BY_NAME = {backend.name: backend for backend in BACKENDS}

CASES = {
    **SMALL,
    "over a block": Attention((70, 2, 130), 2, 1, 32),
    "one token over a block": Attention((65,), 2, 1, 16),
    "window up to a block's first row": Attention((130,), 2, 1, 16, window=66),
    "wide heads": Attention((40, 9), 2, 1, 160, softcap=3.0, window=20, scale=0.1),
    "narrow heads": Attention((40, 9), 2, 1, 8),
}


@pytest.fixture
def backend(implementation: str) -> Backend:
    """The kernels or their twin."""
    return BY_NAME["triton" if implementation == "kernel" else "plain"]


@pytest.mark.parametrize("name", CASES)
def test_float32(backend: Backend, device: torch.device, name: str) -> None:
    if backend.name == "triton" and not INTERPRETED:
        pytest.skip("no GPU has the shared memory for it, and `choose` doesn't ask")
    inputs = CASES[name].inputs(device, torch.float32)
    judge_all(CASES[name], run(backend, CASES[name], inputs), inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["many documents", "window and softcap", "over a block"])
def test_16_bits(backend: Backend, device: torch.device, name: str, dtype: torch.dtype) -> None:
    inputs = CASES[name].inputs(device, dtype)
    judge_all(CASES[name], run(backend, CASES[name], inputs), inputs)


def test_same_bits_in_every_run(backend: Backend, device: torch.device) -> None:
    case = CASES["over a block"]
    inputs = case.inputs(device, torch.float16)
    for one, other in zip(run(backend, case, inputs), run(backend, case, inputs), strict=True):
        assert torch.equal(one, other)


def test_a_document_ignores_the_others(backend: Backend, device: torch.device) -> None:
    """Whatever stands in other documents, nothing in this one changes."""
    case = Attention((11, 25, 30), 2, 1, 16, window=20)
    q, k, v, do = inputs = case.inputs(device, torch.float16)
    before = run(backend, case, inputs)
    outside = torch.ones(case.num_tokens, dtype=torch.bool, device=device)
    outside[11:36] = False
    for tensor in (q, k, v, do):
        tensor[outside] = 1e3 * torch.randn_like(tensor[outside])
    for one, other in zip(before, run(backend, case, inputs), strict=True):
        assert torch.equal(one[~outside], other[~outside])


def test_large_scores_stay_finite(backend: Backend, device: torch.device) -> None:
    for case in (Attention((40, 7), scale=300.0), Attention((40, 7), scale=300.0, softcap=5.0)):
        inputs = case.inputs(device, torch.float16)
        ours = run(backend, case, inputs)
        assert all(values.isfinite().all() for values in ours)
        judge("output", ours[0], usual(case, *inputs)[0][0], exact(case, *inputs)[0], torch.float16, 4.0)


def test_more_documents_compile_nothing_again(implementation: str, device: torch.device) -> None:
    if implementation == "twin" or device.type == "cpu":
        pytest.skip("compiles nothing")
    from tunesmith_engine.kernels import attention

    sizes = []
    for lengths in ((5,), (16, 16), (3, 9, 50, 100), (1, 15)):
        case = Attention(lengths, head_dim=64)
        run(BY_NAME["triton"], case, case.inputs(device, torch.float16))
        sizes.append(sum(len(cache) for cache in _caches(attention._forward_kernel)))
    assert len(set(sizes)) == 1


def _caches(kernel: object) -> list[object]:
    caches = list((getattr(kernel, "device_caches", None) or kernel.cache).values())  # type: ignore[attr-defined]
    return [cache[0] if isinstance(cache, tuple) else cache for cache in caches]


def test_choose_takes_what_runs(implementation: str, device: torch.device) -> None:
    gemma = replace(SMALL["softcap"], head_dim=64)
    backend = choose(gemma.shape(), device, torch.float16)
    fits = implementation == "kernel" and registry.runs("attention-triton", device, needs_dot=True)
    assert backend.name == ("triton" if fits else "plain")
