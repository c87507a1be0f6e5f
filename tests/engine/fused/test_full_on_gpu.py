"""Full fine-tuning on a GPU: gradients beside autograd's and float64, layer by layer, and within the plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.engine.fused.full_models import full_model, fused_gradients, plain_gradients, side_by_side
from tests.engine.fused.test_gpu_fused import FAMILIES, GPU, HEADS, LENGTHS, SIZES
from tests.engine.fused.test_model import num_trained, rows
from tests.engine.numerics import judge, mutants_fail
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_core.trained_parts import state_bytes
from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.memory import WholeWeights
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.train.full_optim import FullOptimizer
from tunesmith_engine.train.optim import Updater

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.empty_cache()


def _compute(dtype: torch.dtype = BF16) -> Compute:
    return Compute(GPU, dtype, "test", 1)


@pytest.mark.parametrize("weights", [BF16, torch.float32])
@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_as_good_as_autograds(name: str, weights: torch.dtype) -> None:
    sizes = {**SIZES, **HEADS.get(name, {})}
    stored = full_model(name, weights, **sizes).double()
    stored.get_base_model().set_attn_implementation("eager")
    exact_loss, exact = plain_gradients(stored, rows(LENGTHS))
    # What a 16-bit model comes to, also beside float32 weights, whose residual stream is in 16 bits here.
    usual_loss, usual = plain_gradients(full_model(name, BF16, "cuda", **sizes), rows(LENGTHS), BF16)
    _, loss, ours = fused_gradients(full_model(name, weights, "cuda", **sizes), rows(LENGTHS), _compute())
    assert ours.keys() == exact.keys()
    vectors = [
        side_by_side({key: value.cpu() for key, value in some.items()}, exact) for some in (ours, usual, exact)
    ]
    judge("gradients", *vectors, BF16)
    mutants_fail(lambda mutant: judge("gradients", mutant, *vectors[1:], BF16), vectors[0])
    judge("loss", loss.cpu(), usual_loss.cpu(), exact_loss, BF16)



@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adafactor", "muon"])
@pytest.mark.parametrize("weights", [BF16, torch.float32])
def test_layer_by_layer_is_the_same_update(optimizer: str, weights: torch.dtype) -> None:
    found = []
    for by_layer in (False, True):
        model = full_model("llama3", weights, "cuda", **SIZES)
        fused = FusedModel.attach(model, _compute(), sum(LENGTHS))
        parameters, settings = trainable(model), OptimizerSpec(name=optimizer, max_grad_norm=0.0)
        first = {name: weight.detach().clone() for name, weight in parameters.items()}
        full = FullOptimizer(parameters, settings, 3)
        updater = Updater(parameters, settings, GPU, BF16, None, full, by_layer)
        norms = []
        for _ in range(3):
            batch, count = make_packed_batch(rows(LENGTHS), GPU), num_trained(rows(LENGTHS))
            if by_layer:
                with updater.by_layer(1e-3), fused.assembly.gradients.by_layer(updater.consume):
                    fused.loss_and_gradients(batch, count)
                norms.append(updater.norm.item())
            else:
                fused.loss_and_gradients(batch, count)
                norms.append(updater.update(1e-3).item())
            fused.refresh()
        found.append(({name: weight.detach().clone() for name, weight in parameters.items()}, norms))
    (whole, whole_norms), (layers, layer_norms) = found
    assert layer_norms == pytest.approx(whole_norms, rel=1e-3)
    # Products of a GPU differ in their last bits, and some weights are then rounded to their other neighbour.
    # Muon brings all directions to one length, those too that are little but rounding.
    most = 0.2 if optimizer == "muon" else 0.05
    for name, weight in whole.items():
        change, apart = (weight.float() - first[name].float()).norm(), (layers[name].float() - weight.float()).norm()
        assert change > 0, name
        assert apart <= most * change, name


@pytest.mark.parametrize("by_layer", [False, True])
def test_memory_is_as_planned(by_layer: bool) -> None:
    sizes = {**SIZES, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6, "vocab_size": 32000}
    model = full_model("llama3", BF16, "cuda", **sizes, num_attention_heads=16, num_key_value_heads=4)
    parameters, settings = trainable(model), OptimizerSpec(name="adamw_8bit", max_grad_norm=0.0)
    states = state_bytes("adamw_8bit", {name: tuple(weight.shape) for name, weight in parameters.items()})
    whole = WholeWeights(states, 0, by_layer, 8192)
    fused = FusedModel.attach(model, _compute(), 8192, longest_tokens=2048, whole=whole)
    full = FullOptimizer(parameters, settings, 3)
    updater = Updater(parameters, settings, GPU, BF16, None, full, by_layer)
    generator = np.random.default_rng(0)
    texts = [generator.integers(1000, size=2048, dtype=np.int32) for _ in range(4)]
    batch = make_packed_batch([Example(text, text) for text in texts], GPU)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        if by_layer:
            with updater.by_layer(1e-5), fused.assembly.gradients.by_layer(updater.consume):
                fused.loss_and_gradients(batch, 4 * 2047)
        else:
            fused.loss_and_gradients(batch, 4 * 2047)
            updater.update(1e-5)
    share = torch.cuda.max_memory_allocated() / fused.plan_bytes
    assert 0.85 < share <= 1.0, share
