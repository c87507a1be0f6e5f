"""How long the proof before step 0 takes on a GPU once all is compiled: it comes before every first run of a model."""

from __future__ import annotations

import time

import pytest
import torch

from tests.engine.kernels.model_sizes import sizes_of_model
from tunesmith_engine.kernels import registry
from tunesmith_engine.proof import prove as proof
from tunesmith_engine.proof.cases import CASES

LONGEST_PROOF_S = 1.0
GPU = torch.device("cuda", 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_proof_is_short_once_all_is_compiled() -> None:
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
