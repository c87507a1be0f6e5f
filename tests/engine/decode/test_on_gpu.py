"""Steps that a CUDA graph holds answer as those that the host launches: experts, states and latents among them."""

from __future__ import annotations

import pytest
import torch

from tests.engine.decode.test_fused import PROMPTS
from tests.engine.fused.test_gpu_fused import BF16, GPU, compute
from tests.engine.fused.test_model import adapted
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.decode.step import Step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    "family",
    [
        *("qwen3", "qwen3-moe", "qwen2-moe", "gpt-oss", "glm4-moe", "laguna", "lfm2", "qwen3.5", "falcon-h1"),
        *("kimi-linear", "deepseek-v3", "gemma4", "apertus", "bart"),
    ],
)
def test_a_graph_answers_as_launches_do(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted(family).to(GPU)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(BF16)
    decoder = FusedDecoder.attach(model, compute(BF16))
    captured = decoder.generate(PROMPTS, Sampling(12), ())
    assert decoder._steps[True]._graph is not None, "every part can be captured"
    decoder.release()
    monkeypatch.setattr(Step, "run", Step._forward)
    assert decoder.generate(PROMPTS, Sampling(12), ()) == captured
