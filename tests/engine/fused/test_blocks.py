"""Layers of one block, and layers with attention and a scan beside each other: as plain PyTorch has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import adapted, fused, reference, rows
from tests.engine.fused.test_variants import assert_equal
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.mixer_shapes import AttentionShape, ParallelShape, StateSpaceShape
from tunesmith_engine.shapes import LayerShape, MlpShape, Unfused, UnfusedLayer


@pytest.mark.parametrize("name", ["nemotron-h", "falcon-h1"])
def test_packed_rows_give_the_loss_and_gradients_of_separate_rows(name: str) -> None:
    model = adapted(name)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows(), "full")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert not twin.notes


def test_each_layer_has_its_one_block() -> None:
    first, scan, attention, last = recognise(families.make("nemotron-h")).layers
    assert [type(layer.attention) for layer in (scan, attention)] == [StateSpaceShape, AttentionShape]
    assert all(layer.mlp is None and layer.input_norm for layer in (scan, attention))
    for layer in (first, last):
        assert isinstance(layer, LayerShape)
        assert isinstance(layer.mlp, MlpShape)
        assert (layer.attention, layer.input_norm, layer.mlp.activation) == (None, None, "relu2")
        assert layer.mlp_norm is not None


def test_the_first_mamba_runs_as_written_behind_a_fused_norm() -> None:
    model = adapted("mamba")
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows(), "full")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert all(isinstance(layer, LayerShape) for layer in twin.assembly.shape.layers)


def test_factors_of_both_branches_are_in_their_shape() -> None:
    layer = recognise(families.make("falcon-h1")).layers[0]
    assert isinstance(layer.attention, ParallelShape)
    assert layer.attention.factors == pytest.approx((0.72, 0.7))
    assert layer.attention.attention.scale == pytest.approx(0.25 * 0.4 * 0.8**2)
    assert isinstance(layer.mlp, MlpShape)
    assert layer.mlp.scales == (0.9, 0.6)


def test_a_factor_that_no_projection_may_take_over_leaves_the_part_as_written() -> None:
    layers = recognise(families.make("falcon-h1", mlp_bias=True)).layers
    assert all(isinstance(layer.mlp, Unfused) and "with a bias" in layer.mlp.reason for layer in layers)
    layers = recognise(families.make("falcon-h1", attention_bias=True)).layers
    assert all(isinstance(layer, UnfusedLayer) for layer in layers)


def test_a_branch_that_is_combined_in_another_way_runs_as_written() -> None:
    model = families.make("falcon-h1")
    layer = model.model.layers[0]

    class Twice(type(layer)):  # type: ignore[misc]
        """Adds the layer's input twice."""

        def forward(self, hidden_states: torch.Tensor, **named: Any) -> tuple[torch.Tensor, ...]:
            (result,) = super().forward(hidden_states, **named)
            return (result + hidden_states * self.ssm_out_multiplier * self.attn_out_multiplier,)

    layer.__class__ = Twice
    assert isinstance(recognise(model).layers[0], UnfusedLayer)
