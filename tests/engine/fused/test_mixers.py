"""Layers with a gated convolution or a state-space scan: every adapter and policy gives autograd's gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.fused import families
from tests.engine.fused.full_models import full_model
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import _in_4_bits, assert_equal
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.mixer_shapes import ChannelDeltaShape, StateSpaceShape
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.proof.inputs import sizes_of
from tunesmith_engine.shapes import NotFusableError, Unfused

LONG = ("bamba", "granite-hybrid", "olmo-hybrid", "bailing-hybrid", *families.OF_BLOCKS)
NAMES = ("lfm2", "kimi-linear", *(pytest.param(name, marks=pytest.mark.long) for name in LONG))

VARIANTS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "DoRA in part": {"use_dora": True, "target_modules": ["in_proj", "q_proj", "f_b_proj", "g_a_proj"]},
    "biases": {"lora_bias": True, "target_modules": ["in_proj", "out_proj", "o_proj", "g_b_proj"]},
    "output alone": {"target_modules": ["out_proj", "o_proj"]},
}


@pytest.mark.parametrize("name", NAMES)
def test_policies_and_groups_of_heads_change_no_bit(name: str) -> None:
    twin, loss, kept = fused(adapted(name), rows(), "none")
    batch = make_packed_batch(rows(), CPU)
    for policy in ("mlp", "smart", "full", "offload"):
        twin._change(twin._planner.plan(policy))
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, kept[name]) for name, parameter in twin.arena.parameters.items())
    twin._change(replace(twin.plan, tiling=Tiling(CAPACITY, 256, 2)))
    twin.arena.gradients.zero_()
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(rows())), loss, rtol=1e-6)
    assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, kept)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=() if (name, variant) == ("lfm2", "DoRA in part") else pytest.mark.long)
        for name in ("lfm2", "kimi-linear", *LONG)
        for variant in VARIANTS
        # PEFT has no DoRA of experts.
        if (name, variant) != ("kimi-linear", "DoRA")
        if name not in families.OF_BLOCKS or "out_proj" not in VARIANTS[variant].get("target_modules", [])
    ],
)
def test_variant_has_the_gradients_of_peft(variant: str, name: str) -> None:
    model = adapted(name, **VARIANTS[variant])
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows(), "smart")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_base_in_4_bits_gives_the_gradients_of_peft(name: str) -> None:
    from peft import LoraConfig, get_peft_model

    targets = families.TARGETS.get(name, "all-linear")
    model = get_peft_model(_in_4_bits(families.make(name)), LoraConfig(r=4, target_modules=targets))
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            torch.nn.init.normal_(parameter, std=0.1)
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.parametrize("name", NAMES)
def test_documents_that_share_their_beginning_have_the_gradients_of_whole_ones(name: str) -> None:
    generator = np.random.default_rng(5)
    ids = [generator.integers(3, 160, length) for length in (40, 9, 14)]
    answers = []
    for answer in ids[1:]:
        labels = np.concatenate((np.full(len(ids[0]), IGNORED_LABEL), answer))
        answers.append(Example(np.concatenate((ids[0], answer)), labels))
    pair = [rows()[3], replace(answers[0], rejected=answers[1])]
    whole = [rows()[3], *answers]
    _, loss, expected = fused(adapted(name), whole, capacity=128)
    twin = FusedModel.attach(adapted(name), compute(), 128, "full", spread=2.0)
    batch = make_packed_batch(pair, CPU)
    assert batch.num_tokens < sum(len(each.input_ids) for each in whole)
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(whole)), loss, rtol=1e-5)
    assert_equal({key: parameter.grad for key, parameter in twin.arena.parameters.items()}, expected)


def reason(model: nn.Module) -> str:
    """Return why the mixer of a model's first layer runs as it was written."""
    mixer = recognise(model).layers[0].attention
    assert isinstance(mixer, Unfused)
    return mixer.reason


def test_whole_weights_are_trained_as_written() -> None:
    assert reason(full_model("lfm2")) == "The own weights of Lfm2ShortConv are trained in plain PyTorch."


def test_a_layer_that_computes_something_else_runs_as_written() -> None:
    model = families.make("lfm2")
    layer = model.model.layers[0].conv
    own = layer.conv
    layer.conv = nn.Conv1d(64, 64, 9, groups=64, padding=8).requires_grad_(False)
    assert "at most 8 is supported" in reason(model)
    layer.conv = own

    class OneGate(type(layer)):  # type: ignore[misc]
        """Leaves out the gate behind the convolution."""

        def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
            b, _, x = self.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
            return self.out_proj(self.conv(b * x)[..., : hidden_states.shape[1]].transpose(-1, -2))

    layer.__class__ = OneGate
    assert "doesn't compute what its attributes say" in reason(model)


def test_decays_that_are_something_else_run_as_written() -> None:
    model = families.make("kimi-linear")
    mixer = model.model.layers[0].self_attn
    assert isinstance(recognise(model).layers[0].attention, ChannelDeltaShape)
    mixer.forget_gate.safe_gate_lower_bound = -5.0
    assert "doesn't compute what its attributes say" in reason(model)
    del mixer.forget_gate.safe_gate_lower_bound
    mixer.o_norm.activation = "silu"
    assert "doesn't compute what its attributes say" in reason(model)


def test_the_proof_is_told_of_channels_that_decay() -> None:
    sizes = sizes_of(recognise(families.make("kimi-linear")), torch.bfloat16, False)
    assert (sizes.channel_delta, sizes.convolution, sizes.delta_heads) == ((4, 24, 24, 0), (288, 4), ())
    assert sizes_of(recognise(families.make("bailing-hybrid")), torch.bfloat16, False).channel_delta[3] == 1


def test_the_proof_is_told_of_gated_convolutions() -> None:
    sizes = sizes_of(recognise(families.make("lfm2")), torch.bfloat16, False)
    assert (sizes.gated_convolution, sizes.convolution, sizes.head_norms) == ((64, 3), (), True)
    assert not sizes_of(recognise(families.make("qwen3")), torch.bfloat16, False).gated_convolution


def test_the_proof_is_told_of_heads_wider_than_the_first() -> None:
    model = families.make("gemma4", global_head_dim=32)
    assert sizes_of(recognise(model), torch.bfloat16, False).wide_heads[2] == 32
    assert sizes_of(recognise(families.make("gemma2")), torch.bfloat16, False).wide_heads == ()


def test_a_scan_that_computes_something_else_runs_as_written() -> None:
    model = families.make("bamba")
    mixer = model.model.layers[0].mamba
    assert isinstance(recognise(model).layers[0].attention, StateSpaceShape)
    mixer.norm.group_size = 32
    shape = recognise(model).layers[0].attention
    assert isinstance(shape, StateSpaceShape)
    assert (shape.norm_width, shape.gate_first, shape.limits) == (32, True, (0.4, 1.5))
    mixer.activation = "gelu"
    assert "doesn't compute what its attributes say" in reason(model)


def test_a_loss_with_another_term_is_refused() -> None:
    model = families.make("bamba", z_loss_coefficient=0.1)
    with pytest.raises(NotFusableError, match="z_loss_coefficient"):
        recognise(model)


def test_the_proof_is_told_of_scans() -> None:
    sizes = sizes_of(recognise(families.make("bamba")), torch.bfloat16, False)
    assert (sizes.scan, sizes.convolution, sizes.gated_convolution) == ((2, 8, 24, 16, 64, 1), (224, 4), ())
