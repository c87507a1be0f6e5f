"""What is read from a model's parts, and that a part which computes not a gated MLP is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.llama import modeling_llama
from transformers.models.nanochat.modeling_nanochat import NanoChatRMSNorm
from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm

from tests.engine.fused import families
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.recognise.parts import activation_name, normalise, read_norm
from tunesmith_engine.fused.recognise.stand_ins import result_of
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.shapes import ModelShape, NotFusableError, Unfused, UnfusedLayer


def _adapted(name: str = "llama", **options: Any) -> Any:  # Any: PEFT's model
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], **options}
    return get_peft_model(families.make(name), LoraConfig(**settings))


def _with_method(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Give a module a class of its own with other methods."""
    module.__class__ = type(type(module).__name__, (type(module),), methods)


def _check_as_written(shape: ModelShape, kind: type, reason: str) -> None:
    """Check that all layers, or only their mixers, run as written, and that the reason is the same for all."""
    reasons = set()
    for layer in shape.layers:
        assert isinstance(layer if kind is UnfusedLayer else layer.attention, kind)
        assert isinstance(layer.attention, Unfused)
        reasons.add(layer.attention.reason)
    assert len(reasons) == 1
    assert re.search(reason, reasons.pop())
    assert shape.handing is not None


# Norms


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        ("llama", (False, False, False)),
        ("gemma", (True, False, True)),
        ("cohere", (False, True, True)),
        ("olmo2", (False, False, True)),
        ("glm", (False, False, False)),
    ],
)
def test_formula_of_norm_is_found_for_any_weight(family: str, flags: tuple[bool, bool, bool]) -> None:
    module = families.make(family).model.norm.to(torch.bfloat16)
    nn.init.ones_(module.weight)
    norm = read_norm("norm", module)
    assert (norm.plus_one, norm.centred, norm.cast_last) == flags
    x = torch.randn(3, module.weight.shape[0], generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(normalise(x, norm), module(x))


@pytest.mark.parametrize("kind", [nn.LayerNorm, NemotronLayerNorm1P])
def test_norm_with_bias_is_read_for_any_weights(kind: type[nn.LayerNorm]) -> None:
    module = kind(64).bfloat16()
    norm = read_norm("norm", module)
    assert (norm.plus_one, norm.centred, norm.cast_last) == (kind is NemotronLayerNorm1P, True, True)
    assert (norm.trained, norm.trained_bias) == (module.weight, module.bias)
    module.requires_grad_(False)
    for parameter in (module.weight, module.bias):
        parameter.copy_(torch.randn(64, generator=torch.Generator().manual_seed(1)))
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(normalise(x, norm), module(x))


NORMS_WITHOUT_WEIGHT = (
    (OlmoLayerNorm(48), 1e-5),
    (NanoChatRMSNorm(1e-6), 1e-6),
    (nn.LayerNorm(48, elementwise_affine=False, eps=1e-3), 1e-3),
    (nn.RMSNorm(48, elementwise_affine=False, eps=1e-3), 1e-3),
)


@pytest.mark.parametrize(("module", "eps"), NORMS_WITHOUT_WEIGHT)
def test_norm_without_a_weight_is_read(module: nn.Module, eps: float) -> None:
    norm = read_norm("norm", module)
    assert (norm.weight, norm.bias, norm.eps) == (None, None, eps)
    assert norm.centred == isinstance(module, OlmoLayerNorm | nn.LayerNorm)
    x = torch.randn(3, 48, generator=torch.Generator().manual_seed(0)) * eps
    assert torch.allclose(normalise(x, norm), module(x), rtol=1e-5, atol=1e-7)


def test_what_only_looks_like_a_norm_is_refused() -> None:
    with pytest.raises(NotFusableError, match=r"layers\.1\.some_norm"):
        read_norm("layers.1.some_norm", nn.Tanh())


def test_norm_with_wrong_eps_is_refused() -> None:
    module = families.make("llama").model.norm
    _with_method(module, forward=lambda self, x: nn.functional.rms_norm(x, (64,), self.weight, eps=1e-3))
    with pytest.raises(NotFusableError, match="formula"):
        read_norm("norm", module)


# Activations


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        ("silu", "silu"),
        ("swish", "silu"),
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("quick_gelu", "quick_gelu"),
        ("relu", "relu"),
        ("relu2", "relu2"),
    ],
)
def test_activation_goes_by_its_values(activation: str, name: str) -> None:
    from transformers.activations import ACT2FN

    assert activation_name(ACT2FN[activation]) == name


def test_unknown_activation_leaves_the_mlp_unfused() -> None:
    mlp = recognise(families.make("llama", hidden_act="mish")).layers[0].mlp
    assert isinstance(mlp, Unfused)
    assert "Mish" in mlp.reason


# A part that looks as usual and computes not a gated MLP


@pytest.mark.parametrize("changed", ["apply_rotary_pos_emb", "repeat_kv"])
def test_attention_that_computes_something_else_runs_as_written(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = getattr(modeling_llama, changed)
    changes = {
        "apply_rotary_pos_emb": lambda q, k, cos, sin: usual(q, k, cos, 2 * sin),
        # Heads share keys in turns instead of in groups.
        "repeat_kv": lambda heads, groups: heads.repeat(1, groups, 1, 1),
    }
    monkeypatch.setattr(modeling_llama, changed, changes[changed])
    _check_as_written(recognise(families.make("llama")), Unfused, r"self_attn .*doesn't compute")


def test_layer_that_adds_its_parts_twice_runs_as_written() -> None:
    model = families.make("llama")
    layer = model.model.layers[0]

    def forward(self: Any, hidden_states: torch.Tensor, **rest: Any) -> Any:
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **rest)
        hidden_states = hidden_states + attended + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

    _with_method(layer, forward=forward)
    shape = recognise(model)
    assert isinstance(shape.layers[0], UnfusedLayer)
    assert "order" in shape.layers[0].attention.reason
    assert isinstance(shape.layers[1].attention, AttentionShape)


def test_mlp_with_gate_and_up_exchanged_is_unfused() -> None:
    model = families.make("llama")
    mlp = model.model.layers[0].mlp
    _with_method(mlp, forward=lambda self, x: self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x)))
    layers = recognise(model).layers
    assert isinstance(layers[0].mlp, Unfused)
    assert "not a gated MLP" in layers[0].mlp.reason
    assert not isinstance(layers[1].mlp, Unfused)


def test_unknown_word_is_named() -> None:
    model = families.make("llama")
    attention = model.model.layers[0].self_attn
    usual = type(attention).forward
    _with_method(attention, forward=lambda self, **rest: usual(self, **rest) if self.drains is None else None)
    attention = recognise(model).layers[0].attention
    assert isinstance(attention, Unfused)
    assert "drains" in attention.reason


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("model.norm", "none of norm, "),
        ("model", "no model"),
        ("lm_head", "lm_head"),
    ],
)
def test_missing_part_is_a_sentence(missing: str, named: str) -> None:
    model = families.make("llama")
    parent, _, name = missing.rpartition(".")
    delattr(model.get_submodule(parent), name)
    with pytest.raises(NotFusableError, match=named):
        recognise(model)


@pytest.mark.parametrize("norm_before", [True, False])
def test_a_projection_behind_the_embedding_is_named(norm_before: bool) -> None:
    model = families.make("opt", word_embed_proj_dim=32, do_layer_norm_before=norm_before)
    words = r"^model\.decoder turns embeddings of 32 numbers into the 64 that its layers read, which is not supported"
    with pytest.raises(NotFusableError, match=words):
        recognise(model)


def test_code_that_runs_on_no_example_is_named_without_the_words_of_a_library() -> None:
    left, right = torch.ones(5, 8), torch.ones(32, 64)
    with pytest.raises(NotFusableError) as caught:
        result_of("model.decoder", lambda: left @ right)
    assert str(caught.value) == "The code of model.decoder doesn't run on a small example, so it can't be checked."


@pytest.mark.parametrize("cap", [0.7, 30.0, None])
def test_soft_cap_is_the_module_s(cap: float | None) -> None:
    shape = recognise(families.make("gemma2", attn_logit_softcapping=cap, final_logit_softcapping=cap))
    assert [layer.attention.softcap for layer in shape.layers] == [cap] * 3
    assert shape.softcap == cap


def test_unused_soft_cap_is_none() -> None:
    assert recognise(families.make("gemma3")).layers[0].attention.softcap is None


def test_dynamic_table_is_left_to_the_decoder() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    _check_as_written(recognise(families.make("llama", rope_parameters=rope)), Unfused, "dynamic")


@pytest.mark.parametrize("name", ["llama", "mistral", "phi3"])
def test_attention_with_dropout_runs_as_written(name: str) -> None:
    _check_as_written(recognise(families.make(name, attention_dropout=0.1)), Unfused, r"self_attn uses dropout .*0\.1")


def test_layer_with_dropout_of_residuals_runs_as_written() -> None:
    _check_as_written(recognise(families.make("phi3", resid_pdrop=0.1)), UnfusedLayer, "model.layers uses dropout")


# Adapters and what is trained


def test_adapters_stay_where_they_are() -> None:
    model = _adapted()
    layer = recognise(model).layers[0]
    own = model.get_base_model().model.layers[0]
    assert layer.attention.inputs == (own.self_attn.q_proj, own.self_attn.k_proj, own.self_attn.v_proj)
    assert hasattr(layer.attention.inputs[0], "lora_A")
    assert not hasattr(layer.attention.inputs[1], "lora_A")
    assert layer.mlp.down is own.mlp.down_proj  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens"),
        ({"modules_to_save": ["norm"]}, "norm"),
    ],
)
def test_trained_weights_outside_linear_layers_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(NotFusableError, match=named):
        recognise(_adapted(**options))


def test_adapters_of_images_are_noted() -> None:
    shape = recognise(_adapted("gemma3-images", target_modules="all-linear"))
    (note,) = shape.notes
    assert "vision_tower" in note
    assert "never see text" in note
    assert shape.layers[0].name == "model.language_model.layers.0"


def test_decoder_with_images_is_held_to_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.make("gemma3-images")

    def doubled(self: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda ids: self.language_model.embed_tokens(ids) * 2

    monkeypatch.setattr(type(model.model), "get_input_embeddings", doubled)
    with pytest.raises(NotFusableError, match="changes what its decoder reads"):
        recognise(model)


@pytest.mark.parametrize("squared", [False, True])
def test_factor_of_logits_is_measured_and_anything_else_refused(squared: bool) -> None:
    model = families.make("granite")

    def forward(self: Any, input_ids: torch.Tensor, use_cache: bool) -> Any:
        outputs = self.model(input_ids=input_ids, use_cache=use_cache)
        logits = self.lm_head(outputs.last_hidden_state)
        return CausalLMOutputWithPast(logits=logits.square() if squared else logits * self.config.logits_scaling)

    _with_method(model, forward=forward)
    if squared:
        with pytest.raises(NotFusableError, match="logits"):
            recognise(model)
    else:
        assert recognise(model).logit_scale == 3.0


def test_embedding_with_a_hidden_factor_runs_as_written() -> None:
    model = families.make("gemma")
    _with_method(model.model.embed_tokens, forward=lambda self, ids: self.weight[ids] * self.embed_scale * 1.5)
    shape = recognise(model)
    assert shape.begins_as_written
    assert any("embedding" in str(note) for note in shape.notes)
    assert isinstance(shape.layers[0].attention, AttentionShape)


def test_adapter_on_the_head_is_kept() -> None:
    model = _adapted(target_modules=["q_proj", "lm_head"])
    assert recognise(model).head is model.get_base_model().lm_head


def test_trained_head_is_refused() -> None:
    model = families.make("llama")
    model.lm_head.weight.requires_grad_(True)
    with pytest.raises(NotFusableError, match=r"lm_head\.weight is trained"):
        recognise(model)


def test_recognition_draws_no_random_numbers_and_changes_nothing() -> None:
    model = families.make("cohere2").train()
    state = torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    implementation = model.config._attn_implementation
    recognise(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config._attn_implementation == implementation
    assert model.model.layers[0].training


@pytest.mark.parametrize("name", ["llama", "gemma4", "gemma3n"])
def test_an_adapter_of_the_embedding_is_named(name: str) -> None:
    settings = LoraConfig(r=4, target_modules=["embed_tokens", "q_proj"], task_type="CAUSAL_LM")
    with pytest.raises(NotFusableError, match=r"model\.embed_tokens \(Embedding\) is not a plain embedding"):
        recognise(get_peft_model(families.make(name), settings))
