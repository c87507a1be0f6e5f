"""The proof before step 0 on a GPU: every kernel and backend of attention at the widths of models that people train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.kernels.conftest import INTERPRETED
from tests.engine.kernels.model_sizes import MODELS, sizes_of_model
from tunesmith_engine.proof import prove as proof

pytestmark = pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_every_kernel_is_proven(home: Path, model: str, dtype: str) -> None:
    if dtype == "bfloat16" and torch.cuda.get_device_capability(GPU) < (8, 0):
        pytest.skip("No run chooses bfloat16 there.")
    results = proof.prove(sizes_of_model(model, dtype), GPU)
    assert results
    assert {name: reason for name, reason in results.items() if reason} == {}
