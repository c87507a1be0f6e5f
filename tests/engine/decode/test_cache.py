"""What a cache takes is what is planned for it."""

from __future__ import annotations

import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import compute
from tunesmith_engine.decode.cache import KeyValueCache, bytes_per_row
from tunesmith_engine.fused.recognise import recognise


@pytest.mark.parametrize("name", ["qwen3", "lfm2", "qwen3.5", "falcon-h1", "kimi-linear", "deepseek-v3", "gemma4"])
def test_the_bytes_of_a_row_are_those_of_its_tensors(name: str) -> None:
    shape = recognise(families.make(name))
    cache = KeyValueCache(shape, compute(torch.bfloat16), 3, 512)
    parts = (cache.keys, cache.values, cache.inputs, cache.states)
    taken = sum(tensor.nbytes for part in parts for tensor in part.values())
    assert taken == 3 * bytes_per_row(shape, torch.bfloat16, 512)


def test_layers_that_read_the_keys_of_others_keep_none() -> None:
    shape = recognise(families.make("gemma4"))
    cache = KeyValueCache(shape, compute(), 1, 256)
    assert set(cache.keys) == {0, 1, 2}
