"""The proof before step 0 on a GPU: every kernel and backend of attention at the widths of models that people train."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.engine.kernels.conftest import INTERPRETED
from tests.engine.kernels.model_sizes import MODELS, sizes_of_model
from tunesmith_engine.kernels import registry
from tunesmith_engine.proof import prove as proof
from tunesmith_engine.proof.cases import CASES

pytestmark = pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="needs a GPU")

LONGEST_PROOF_S = 1.0
GPU = torch.device("cuda", 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_every_kernel_is_proven(home: Path, model: str, dtype: str) -> None:
    if dtype == "bfloat16" and torch.cuda.get_device_capability(GPU) < (8, 0):
        pytest.skip("No run chooses bfloat16 there.")
    results = proof.prove(sizes_of_model(model, dtype), GPU)
    assert results
    assert {name: reason for name, reason in results.items() if reason} == {}


def test_the_proof_is_short_once_all_is_compiled(request: pytest.FixtureRequest) -> None:
    # As many threads as its child has: what the exact results are compared with is computed by the processor.
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(os.cpu_count() or 1)
    sizes = sizes_of_model("llama-3.1-8b", "bfloat16")
    seconds = 0.0
    for _ in range(2):
        registry.switch_on_all()
        started_s = time.monotonic()
        for name, case in CASES.items():
            if case.runs(sizes, GPU):
                assert proof._reason(name, sizes, GPU) is None
        seconds = time.monotonic() - started_s
    registry.switch_on_all()
    assert seconds < LONGEST_PROOF_S
