"""Norms behind the sums, parts that no text reaches, and modules in modules: read by trial, and exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.fused import families
from tests.engine.fused.full_models import full_model, fused_gradients, plain_gradients
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import assert_equal
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import LayerShape, NotFusableError, Unfused, UnfusedLayer


def _with(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Give a module's class other methods, for this module alone."""
    module.__class__ = type("Changed", (type(module),), methods)


def test_no_policy_changes_a_bit() -> None:
    twin, loss, kept = fused(adapted("bart"), rows(), "none")
    batch = make_packed_batch(rows(), CPU)
    for policy in ("mlp", "smart", "full", "offload"):
        twin._change(twin._planner.plan(policy))
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, kept[name]) for name, parameter in twin.arena.parameters.items())


@pytest.mark.parametrize("name", ["bart", pytest.param("marian", marks=pytest.mark.long)])
def test_whole_weights_have_the_gradients_of_float64(name: str) -> None:
    exact_loss, exact = plain_gradients(full_model(name, torch.float64), rows())
    _, loss, found = fused_gradients(full_model(name), rows(), compute())
    assert torch.isclose(loss, exact_loss, rtol=1e-5)
    assert found.keys() == exact.keys()
    assert not any("encoder_attn" in key for key in exact)
    least = 1e-4 * max(gradient.norm() for gradient in exact.values())
    for key, gradient in exact.items():
        assert (found[key] - gradient).norm() <= 1e-5 * gradient.norm().clamp_min(least), key


@pytest.mark.parametrize("name", ["bart", pytest.param("openai-gpt", marks=pytest.mark.long)])
def test_norms_come_before_what_is_next(name: str) -> None:
    model = families.make(name)
    shape = recognise(model)
    first, second = shape.layers
    assert isinstance(first, LayerShape)
    assert isinstance(second, LayerShape)
    assert first.norms_stream
    assert second.norms_stream
    assert first.input_norm is None
    behind = "final_layer_norm" if name == "bart" else "ln_2"
    ends = (norm for key, norm in model.named_modules() if key.endswith(behind))
    assert first.norm_behind is None
    for norm, there in zip(ends, (second.input_norm, shape.final_norm), strict=True):
        assert there is not None
        assert torch.equal(there.bias, norm.bias)


def test_no_document_moves_another() -> None:
    model = adapted("bart")
    twin = FusedModel.attach(model, compute(), CAPACITY)
    whole = twin.losses(make_packed_batch(rows(), CPU))
    alone = torch.cat([twin.losses(make_packed_batch([row], CPU)) for row in rows()])
    torch.testing.assert_close(whole, alone, rtol=1e-5, atol=1e-6)


# What is read wrongly at first sight


def _order(self: Any, x: torch.Tensor, attention_mask: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    x = self.self_attn_layer_norm(x + self.self_attn(x, attention_mask=attention_mask)[0])
    return x + self.fc2(self.activation_fn(self.fc1(self.final_layer_norm(x))))


def _twice(self: Any, x: torch.Tensor, attention_mask: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    x = self.self_attn_layer_norm(x + self.self_attn(x, attention_mask=attention_mask)[0])
    return self.final_layer_norm(2 * x + self.fc2(self.activation_fn(self.fc1(x))))


@pytest.mark.parametrize("forward", [_order, _twice])
def test_norms_elsewhere_are_no_norms_behind_sums(forward: Callable[..., Any]) -> None:
    model = families.make("bart")
    for layer in model.model.decoder.layers:
        _with(layer, forward=forward)
    with pytest.raises(NotFusableError, match="in an unsupported order"):
        recognise(model)
    _with(model.model.decoder.layers[1], forward=type(families.make("bart").model.decoder.layers[1]).forward)
    with pytest.raises(NotFusableError, match="Only some layers"):
        recognise(model)


def test_attention_to_an_encoder_is_idle_only_where_nobody_calls_it() -> None:
    model = adapted("mbart")
    shape = recognise(model)
    assert all(isinstance(layer, LayerShape) and len(layer.idle) == 2 for layer in shape.layers)
    assert any("never see text" in note for note in shape.notes)
    layer = model.get_base_model().model.decoder.layers[0]
    usual = type(layer).forward

    def forward(self: Any, x: torch.Tensor, *given: Any, **named: Any) -> Any:
        return usual(self, self.encoder_attn(x)[0] + x, *given, **named)

    _with(layer, forward=forward)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    first, second = twin.assembly.shape.layers
    assert isinstance(first, UnfusedLayer)
    assert isinstance(second, LayerShape)
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal({key: gradients[key] for key in expected}, expected)


def test_decoder_that_has_an_encoder_s_states_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.make("mbart")
    usual = type(model.model.decoder).forward

    def forward(self: Any, **named: Any) -> Any:
        states = torch.ones(len(named["input_ids"]), 3, self.embed_tokens.weight.shape[1])
        return usual(self, **{**named, "encoder_hidden_states": states})

    monkeypatch.setattr(type(model.model.decoder), "forward", forward)
    assert all(isinstance(layer, UnfusedLayer) for layer in recognise(model).layers)


def test_mask_that_attention_holds_is_its_window() -> None:
    model = families.make("gpt-neo")
    layers = recognise(model).layers
    assert [layer.attention.window for layer in layers] == [None, 5]
    assert [layer.attention.scale for layer in layers] == [1.0, 1.0]
    # Beyond the tokens of a trial.
    model.transformer.h[1].attn.attention.bias[0, 0, 40, 38] = False
    attention = recognise(model).layers[1].attention
    assert isinstance(attention, Unfused)
    assert "holds a mask" in attention.reason


def test_attention_around_attention_only_hands_on() -> None:
    model = families.make("gpt-neo")
    usual = type(model.transformer.h[0].attn).forward

    def forward(self: Any, hidden_states: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        result, shares = usual(self, hidden_states, attention_mask=attention_mask)
        return 2 * result, shares

    _with(model.transformer.h[0].attn, forward=forward)
    first, second = recognise(model).layers
    assert isinstance(first.attention, Unfused)
    assert not isinstance(second.attention, Unfused)
