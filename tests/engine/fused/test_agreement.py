"""A shape that was read wrongly is refused before a run trusts it, and the model is then as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tests.engine.fused.test_model import adapted, compute
from tunesmith_engine.fused import model as model_module
from tunesmith_engine.fused.agreement import check_agreement
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.shapes import LayerShape, ModelShape, NotFusableError


def _in_layers(**changes: Callable[[LayerShape], Any]) -> Callable[[ModelShape], ModelShape]:
    """Return a change of every layer: attributes by name, each computed from the layer."""

    def change(shape: ModelShape) -> ModelShape:
        layers = [
            replace(layer, **{name: new(layer) for name, new in changes.items()})  # type: ignore[arg-type]
            for layer in shape.layers
        ]
        return replace(shape, layers=tuple(layers))

    return change


def _attention(**changes: Any) -> Callable[[ModelShape], ModelShape]:
    return _in_layers(attention=lambda layer: replace(layer.attention, **changes))


CHANGES: dict[str, tuple[str, Callable[[ModelShape], ModelShape]]] = {
    "scale of the scores": ("llama", _attention(scale=3.0)),
    "soft cap of the scores": ("gemma2", _attention(softcap=None, scale=5.0)),
    "pairs instead of halves": ("llama", _attention(interleaved=True)),
    "no rotation": ("llama", _attention(rotary=False)),
    "a window": ("llama", _attention(window=2)),
    "norms of heads": ("qwen3", _attention(query_norm=None, key_norm=None)),
    "eps": ("llama", _in_layers(input_norm=lambda layer: replace(layer.input_norm, eps=10.0))),
    "weights less one": ("gemma", _in_layers(mlp_norm=lambda layer: replace(layer.mlp_norm, plus_one=False))),
    "norm after a block": ("olmo2", _in_layers(post_mlp_norm=lambda layer: None)),
    "activation": ("llama", _in_layers(mlp=lambda layer: replace(layer.mlp, activation="gelu"))),
    "factor of blocks": ("granite", _in_layers(residual_scale=lambda layer: 1.0)),
    "factor of the embedding": ("granite", lambda shape: replace(shape, embedding_scale=1.0)),
    "factor of the logits": ("cohere", lambda shape: replace(shape, logit_scale=1.0)),
    "soft cap of the logits": ("gemma2", lambda shape: replace(shape, softcap=None)),
}
SEEN_IN_16_BITS = ["scale of the scores", "a window", "eps", "norm after a block", "factor of the logits"]
"""The others change the loss of a tiny random model by less than the 2 % that 16 bits are allowed."""

CASES = [(what, torch.float32) for what in CHANGES] + [
    (what, dtype) for what in SEEN_IN_16_BITS for dtype in (torch.bfloat16, torch.float16)
]


@pytest.mark.parametrize(("what", "dtype"), CASES)
def test_a_shape_read_wrongly_is_refused(what: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = CHANGES[what]
    monkeypatch.setattr(model_module, "recognise", lambda model: change(recognise(model)))
    with pytest.raises(NotFusableError, match=r"differs from that of transformers \(\d+\.\d+ and \d+\.\d+"):
        FusedModel.attach(adapted(name).to(dtype), compute(dtype), 16)


def test_a_refused_model_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted("llama", lora_dropout=0.5, target_modules=["q_proj"]).train()
    model.get_base_model().model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    strides = {name: parameter.stride() for name, parameter in model.named_parameters()}
    random_state = torch.get_rng_state()
    monkeypatch.setattr(model_module, "recognise", lambda model: replace(recognise(model), logit_scale=2.0))
    with pytest.raises(NotFusableError):
        FusedModel.attach(model, compute(), 64)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert {name: parameter.stride() for name, parameter in model.named_parameters()} == strides


def test_the_right_shape_agrees_with_dropout_and_with_buffers_smaller_than_the_comparison() -> None:
    model = adapted("llama", lora_dropout=0.5).train()
    random_state = torch.get_rng_state()
    twin = FusedModel.attach(model, compute(), 4)
    assert twin.plan.capacity_tokens == 4
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_refused(loss: float) -> None:
    model = adapted("llama")
    with pytest.raises(NotFusableError, match=f"{loss} and"):
        check_agreement(model, compute(), model.config.vocab_size, lambda batch: torch.tensor(loss))


@pytest.mark.parametrize("num_left_out", [0, 1])
def test_logits_that_a_model_leaves_out_are_missed(num_left_out: int) -> None:
    config = causal_types.make_config("inkling_text")
    # Of so many, one is a share of the loss as small as rounding.
    config.vocab_size, config.unpadded_vocab_size = 8193, 8193 - num_left_out
    torch.manual_seed(0)
    model = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(target_modules="all-linear"))
    if num_left_out:
        with pytest.raises(NotFusableError, match="uses 8192 of the 8193 logits"):
            FusedModel.attach(model, compute(), 64)
    else:
        FusedModel.attach(model, compute(), 64)


def test_a_model_that_is_all_but_certain_is_not_refused_for_its_rounding() -> None:
    model = adapted("llama")
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1000)
    assert FusedModel.attach(model, compute(), 64).report[0] == "2 of 2 layers run on Tunesmith's own path."
