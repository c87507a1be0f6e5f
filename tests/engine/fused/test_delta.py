"""Layers with the gated delta rule: every adapter, policy and division gives autograd's gradients; nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import _in_4_bits, assert_equal
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.mixer_shapes import DeltaShape
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.proof.inputs import sizes_of
from tunesmith_engine.shapes import Unfused

NAMES = ["qwen3-next", "qwen3.5"]
"""With the inputs apart, and with two products that hold them group by group."""

VARIANTS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "DoRA in part": {"use_dora": True, "target_modules": ["in_proj_z", "in_proj_ba", "out_proj", "q_proj"]},
    "biases": {"lora_bias": True, "target_modules": ["in_proj_qkv", "in_proj_qkvz", "out_proj", "o_proj"]},
    "gates alone": {"target_modules": ["in_proj_a", "in_proj_b", "in_proj_ba"]},
}


def test_policies_and_groups_of_heads_change_no_bit() -> None:
    twin, loss, kept = fused(adapted("qwen3.5"), rows(), "none")
    batch = make_packed_batch(rows(), CPU)

    def again() -> None:
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, kept[name]) for name, parameter in twin.arena.parameters.items())

    for policy in ("mlp", "smart", "full", "offload"):
        twin._change(twin._planner.plan(policy))
        again()
    twin._change(replace(twin.plan, tiling=Tiling(CAPACITY, 256, 2)))
    assert len(list(twin._layers[0].attention._parts(39))) == 2
    twin.arena.gradients.zero_()
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(rows())), loss, rtol=1e-6)
    assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, kept)


# PEFT has no DoRA of experts.
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=() if variant == "DoRA in part" else pytest.mark.long)
        for name in NAMES
        for variant in VARIANTS
        if (name, variant) != ("qwen3-next", "DoRA")
    ],
)
def test_variant_has_the_gradients_of_peft(variant: str, name: str) -> None:
    model = adapted(name, **VARIANTS[variant])
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows(), "smart")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.long
def test_a_base_in_4_bits_gives_the_gradients_of_peft() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(_in_4_bits(families.make("qwen3.5")), LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.long
def test_dropout_is_the_same_when_it_is_computed_again() -> None:
    results = []
    for policy in ("none", "full"):
        model = adapted("qwen3.5", lora_dropout=0.4).train()
        twin = FusedModel.attach(model, compute(), CAPACITY, policy)
        torch.manual_seed(5)
        loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
        results.append((loss, twin.arena.gradients))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("name", ["qwen3.5", pytest.param("qwen3-next", marks=pytest.mark.long)])
def test_documents_that_share_their_beginning_have_the_gradients_of_whole_ones(name: str) -> None:
    generator = np.random.default_rng(5)
    ids = [generator.integers(3, 160, length) for length in (40, 9, 14)]
    answers = []
    for answer in ids[1:]:
        labels = np.concatenate((np.full(len(ids[0]), IGNORED_LABEL), answer))
        answers.append(Example(np.concatenate((ids[0], answer)), labels))
    pair = [rows()[3], replace(answers[0], rejected=answers[1])]
    assert pair[1].num_shared_tokens == len(ids[0]) - 1
    whole = [rows()[3], *answers]
    _, loss, expected = fused(adapted(name), whole, capacity=128)
    twin = FusedModel.attach(adapted(name), compute(), 128, "full", spread=2.0)
    batch = make_packed_batch(pair, CPU)
    assert batch.num_tokens < sum(len(each.input_ids) for each in whole)
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(whole)), loss, rtol=1e-5)
    assert_equal({key: parameter.grad for key, parameter in twin.arena.parameters.items()}, expected)


def test_updates_follow_those_of_transformers() -> None:
    model, twin = adapted("qwen3.5"), FusedModel.attach(adapted("qwen3.5"), compute(), CAPACITY)
    theirs = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizers = [torch.optim.AdamW(weights.values(), lr=1e-2) for weights in (theirs, twin.arena.parameters)]
    batch = make_packed_batch(rows(), CPU)
    losses = []
    for _ in range(5):
        loss, gradients = reference(model, rows())
        for name, parameter in theirs.items():
            parameter.grad = gradients[name]
        twin.arena.gradients.zero_()
        ours = twin.loss_and_gradients(batch, num_trained(rows()))
        assert torch.isclose(ours.double(), loss, rtol=1e-4)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        twin.refresh()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.1


def test_a_layer_that_computes_something_else_runs_as_written() -> None:
    model = families.make("qwen3.5")
    model.model.layers[2].linear_attn.norm.variance_epsilon = 0.5
    shape = recognise(model)
    assert isinstance(shape.layers[2].attention, DeltaShape)
    assert shape.layers[2].attention.norm.eps == 0.5
    model.model.layers[2].linear_attn.activation = "gelu"
    attention = recognise(model).layers[2].attention
    assert isinstance(attention, Unfused)
    assert "doesn't compute what its attributes say" in attention.reason


def test_the_proof_is_told_of_states_and_gates() -> None:
    sizes = sizes_of(recognise(families.make("qwen3.5")), torch.bfloat16, False)
    assert (sizes.delta_heads, sizes.convolution, sizes.output_gate) == ((2, 4, 16, 24), (160, 4), True)
    assert (sizes.num_heads, sizes.head_dim, sizes.rotary) == (4, 32, 8)
    assert not sizes_of(recognise(families.make("qwen3")), torch.bfloat16, False).output_gate
