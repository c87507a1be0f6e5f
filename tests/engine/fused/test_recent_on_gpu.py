"""This year's families on a GPU, with their Triton programs: scans, delta rules, experts, shared keys, AltUp."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.fused.test_families import CHAIN
from tests.engine.fused.test_gpu_fused import (
    BF16,
    FP32,
    GPU,
    Step,
    assert_same_bits,
    attach,
    compute,
    judge_step,
    plain_step,
    rows_alone,
    step,
)
from tests.engine.fused.test_gpu_fused import _as_before as _as_before
from tests.engine.fused.test_gpu_fused import equal_bits as equal_bits
from tests.engine.fused.test_model import adapted, num_trained, rows
from tests.engine.numerics import REDUCTION
from tunesmith_engine.data import Example
from tunesmith_engine.packed.pack import make_packed_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

IN_16_BITS = ("qwen3.5", "lfm2", "falcon-h1", "gemma4", "gemma4-keys-are-values", "gemma3n", "bitnet")
IN_32_BITS = ("kimi-linear", "gpt-oss", "qwen3-moe", "deepseek-v3", "gemma4-experts", "llama4")
"""In 16 bits a router's near ties fall the one way or the other, in transformers too."""

ADAPTED: dict[str, dict[str, Any]] = {
    # In training transformers leaves an adapter on the coefficients of corrections out.
    "gemma3n": {"target_modules": ["q_proj", "o_proj", "gate_proj", "down_proj", "per_layer_projection", "linear_left"]}
}
STEPS = {BF16: REDUCTION, FP32: CHAIN}
LENGTHS = (90, 1, 17, 64, 31)


def both_ways(model: PeftModel, batch: list[Example], dtype: torch.dtype) -> dict[str, Step]:
    """Return a step by transformers, a row at a time, and by plain operations, all rows packed.

    How far the worst of thousands of numbers lies is chance: one way alone would say too little about it.
    """
    return {**rows_alone(model, batch, dtype), "plain, packed": plain_step(model, batch, compute(dtype).autocast())}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, BF16) for name in IN_16_BITS), *((name, FP32) for name in IN_32_BITS)]
)
def test_step_is_as_exact_as_that_of_transformers(name: str, dtype: torch.dtype) -> None:
    model = adapted(name, **ADAPTED.get(name, {}))
    for parameter in model.parameters():
        if not parameter.requires_grad:
            # A run keeps its adapter in float32.
            parameter.data = parameter.data.to(dtype)
    model = model.to(GPU)
    judge_step(name, model, copy.deepcopy(model).double(), dtype, rows(LENGTHS), both_ways, STEPS[dtype])


@pytest.mark.parametrize("name", ["qwen3-moe", "qwen3.5-moe", "gpt-oss", "deepseek-v3", "gemma4-experts", "lfm2-moe"])
def test_mixtures_replayed_step_is_the_eager_one(name: str, equal_bits: None) -> None:
    """Which rows an expert has differs from batch to batch, and so it does from graph to graph's next batch."""
    model = adapted(name, target_parameters=["experts.gate_up_proj", "experts.down_proj"]).bfloat16().to(GPU)
    others = [rows(LENGTHS), rows(LENGTHS[::-1])]
    total = num_trained(others[0])
    twin = attach(model, BF16)
    sizes = [twin.fixed_sizes(batch) for batch in others]
    assert all(sizes), "graphs should pay here"
    batches = [make_packed_batch(batch, GPU, **size) for batch, size in zip(others, sizes, strict=True)]
    replayed = [list(step(twin, batch, total)) for _ in range(3) for batch in batches]
    assert twin._graphs is not None
    assert twin._graphs._captured, "nothing was captured"
    twin._graphs = None
    for number, result in enumerate(replayed):
        assert_same_bits(result, list(step(twin, batches[number % 2], total)), f"{name}, step {number}")
