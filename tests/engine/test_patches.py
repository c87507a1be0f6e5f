"""What the engine changes in transformers lasts as long as its process, and in tests no longer than one test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import masking_utils

from tests.engine.conftest import UNPATCHED
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model

PACKED = torch.tensor([[0, 1, 2, 0, 1]])


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_transformers_as_it_is(tiny_model: Path, turn: int) -> None:
    assert masking_utils.find_packed_sequence_indices(PACKED) is not None, f"turn {turn}"
    spec = RunSpec()
    spec.hardware.devices = ["cpu"]
    load_model(tiny_model, choose_compute(spec), False)
    assert masking_utils.find_packed_sequence_indices(PACKED) is None
    assert all(getattr(module, name) is not function for module, name, function in UNPATCHED)
