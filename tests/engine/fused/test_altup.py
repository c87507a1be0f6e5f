"""Several streams, Laurel and gates that are cut: every adapter, policy and tiling gives what autograd gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from tests.engine.fused import families
from tests.engine.fused.full_models import full_model
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import _in_4_bits, assert_equal
from tunesmith_engine.data import Example
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.model.patches import know_language_model
from tunesmith_engine.model.quant import KEPT_WHOLE
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import NotFusableError, OtherTable

VARIANTS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "biases": {"lora_bias": True, "target_modules": ["q_proj", "per_layer_input_gate", "linear_left", "linear_right"]},
    "coefficients alone": {"target_modules": ["modality_router", "prediction_coefs", "correction_coefs"]},
    "the first projection alone": {"target_modules": ["altup_projections.0"]},
    "the last projections alone": {"target_modules": ["altup_unembed_projections.1"]},
    "Laurel alone": {"target_modules": ["linear_left"]},
    "embedding": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "head": {"target_modules": ["o_proj"], "modules_to_save": ["lm_head"]},
}

OTHER_NUMBERS: dict[str, dict[str, Any]] = {
    "another active stream": {"altup_active_idx": 1},
    "without a scale": {"altup_correct_scale": False},
    "all streams' own keys, no cut": {"num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0] * 6},
    "two streams": {"altup_num_inputs": 2},
}


def assert_same(model: PeftModel, examples: list[Example], policy: str = "smart") -> FusedModel:
    """Hold loss and gradients against autograd's; what has no gradient there has one of zeros here."""
    expected_loss, expected = reference(model, examples)
    twin, loss, gradients = fused(model, examples, policy)
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    without = gradients.keys() - expected.keys()
    assert not any(gradients[name].any() for name in without)
    assert_equal({name: gradient for name, gradient in gradients.items() if name not in without}, expected)
    return twin


QUICK = ("DoRA", "coefficients alone")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "variant", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in VARIANTS]
)
def test_variant_has_the_gradients_of_peft(variant: str, training: bool) -> None:
    assert_same(adapted("gemma3n", **VARIANTS[variant]).train(training), rows())


def test_a_layer_whose_two_parts_run_as_written_counts_once() -> None:
    model = adapted("gemma3n", lora_bias=True, target_modules=["linear_left", "linear_right"])
    notes = FusedModel.attach(model, compute(), CAPACITY).notes
    assert notes == ["Not fused in 6 of 6 layers. Laurel: The adapter has a bias."]


@pytest.mark.parametrize(
    "numbers",
    [name if "active" in name else pytest.param(name, marks=pytest.mark.long) for name in OTHER_NUMBERS],
)
def test_other_numbers_of_a_config_have_the_gradients_of_peft(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = families.make("gemma3n", **OTHER_NUMBERS[numbers])
    monkeypatch.setattr(families, "make", lambda _: made)
    assert_same(adapted("gemma3n"), rows())


def test_bound_holds_in_training_alone() -> None:
    """The correction's adapter has no part in training; outside, it has, and nothing is brought within the bound."""
    model = adapted("gemma3n", target_modules=["correction_coefs", "q_proj"])
    weights = [layer.altup.prediction_coefs.weight for layer in model.get_base_model().model.layers]
    assert max(weight.abs().max() for weight in weights) > families.GEMMA3N["altup_coef_clip"]
    twin, loss, gradients = fused(model.eval(), rows())
    assert any(gradient.any() for name, gradient in gradients.items() if "correction" in name)
    assert max(weight.abs().max() for weight in weights) > families.GEMMA3N["altup_coef_clip"]
    model.train()
    twin.arena.gradients.zero_()
    other = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    assert other != loss
    in_training = {name: parameter.grad for name, parameter in twin.arena.parameters.items() if "correction" in name}
    assert not any(gradient.any() for gradient in in_training.values())
    assert max(weight.abs().max() for weight in weights) <= families.GEMMA3N["altup_coef_clip"]


@pytest.mark.parametrize("policy", ["none", "mlp", "full", "offload"])
def test_tiles_of_cut_gates_have_the_gradients_of_the_whole(policy: str) -> None:
    _, loss, expected = fused(adapted("gemma3n"), rows(), "none")
    twin = FusedModel.attach(adapted("gemma3n"), compute(), CAPACITY, policy)
    twin._change(replace(twin.plan, tiling=Tiling(8, 256, 2**22)))
    assert torch.isclose(twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows())), loss, rtol=1e-6)
    assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, expected)


@pytest.mark.parametrize("policy", ["smart", "full"])
def test_dropout_of_coefficients_is_that_of_the_forward_pass(policy: str) -> None:
    """The slope of the loss along the gradient is the gradient's square, with the same random numbers each time."""
    lora = {"lora_dropout": 0.3, "target_modules": ["modality_router", "prediction_coefs"]}
    twin = FusedModel.attach(adapted("gemma3n", **lora).train(), compute(), CAPACITY, policy)
    batch = make_packed_batch(rows(), CPU)

    def loss_at(step: float, direction: torch.Tensor) -> float:
        twin.arena.weights.add_(direction, alpha=step)
        twin.refresh()
        twin.arena.gradients.zero_()
        torch.manual_seed(5)
        loss = twin.loss_and_gradients(batch, num_trained(rows()))
        twin.arena.weights.sub_(direction, alpha=step)
        return float(loss)

    with torch.no_grad():
        loss_at(0.0, torch.zeros_like(twin.arena.weights))
        gradient = twin.arena.gradients.clone()
        direction = gradient / gradient.norm()
        # As large as the slope stays one: what float32 leaves of a smaller difference depends on the processor.
        step = 0.05
        slope = (loss_at(step, direction) - loss_at(-step, direction)) / (2 * step)
    assert slope == pytest.approx(float(gradient.norm()), rel=0.01)


def test_tokens_behind_those_of_the_table_read_its_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = families.make("gemma3n")
    made.config.vocab_size_per_layer_input = 100
    monkeypatch.setattr(families, "make", lambda _: made)
    assert recognise(made).per_layer.num_rows == 100 < made.model.embed_tokens_per_layer.num_embeddings
    assert_same(adapted("gemma3n", target_modules=["q_proj"]), rows())


def test_tokens_that_are_almost_nothing_have_the_gradients_of_peft() -> None:
    """Projections of them are divided by the least size, which doesn't depend on them."""
    targets = ["altup_projections.0", "altup_projections.1", "altup_unembed_projections.0", "q_proj"]
    model = adapted("gemma3n", target_modules=targets, modules_to_save=["embed_tokens"])
    (embedding,) = (part for name, part in model.named_parameters() if "embed_tokens.modules_to_save" in name)
    embedding.data.mul_(0.006)
    assert_same(model, rows())


def test_a_base_in_4_bits_keeps_coefficients_whole_and_has_the_gradients_of_peft() -> None:
    pytest.importorskip("bitsandbytes")
    whole = tuple(KEPT_WHOLE["gemma3n_text"])
    # Rows of weights must be whole blocks of 64 there.
    base = _in_4_bits(families.make("gemma3n", hidden_size=64, intermediate_size=128, laurel_rank=64), whole)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    assert not hasattr(base.model.layers[0].altup.prediction_coefs.weight, "quant_state")
    assert hasattr(base.model.layers[0].altup.modality_router.weight, "quant_state")
    assert hasattr(base.model.altup_projections[0].weight, "quant_state")
    twin = assert_same(model, rows())
    assert twin.report[0] == "6 of 6 layers run on Tunesmith's own path."


def test_own_weights_are_trained_in_plain_pytorch() -> None:
    with pytest.raises(NotFusableError, match="own weights of Gemma3nTextDecoderLayer"):
        recognise(full_model("gemma3n"))


# What is not what it seems


def _predicts_otherwise(kind: type) -> Any:
    def predict(self: Any, streams: torch.Tensor) -> torch.Tensor:
        return kind.predict(self, streams) + streams[:1]

    return predict


def _corrects_otherwise(kind: type) -> Any:
    def correct(self: Any, predictions: torch.Tensor, activated: torch.Tensor) -> torch.Tensor:
        return predictions + 0.9 * (kind.correct(self, predictions, activated) - predictions)

    return correct


def _without_residual(_: type) -> Any:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.post_laurel_norm(self.linear_right(self.linear_left(x)))
        return normed

    return forward


def _halves(kind: type) -> Any:
    def forward(self: Any, *args: Any, **named: Any) -> Any:
        found = kind.forward(self, *args, **named)
        found.last_hidden_state = found.last_hidden_state * 0.5
        return found

    return forward


OTHERS = {
    "predict": ("layers.1.altup", "predict", _predicts_otherwise),
    "correct": ("layers.2.altup", "correct", _corrects_otherwise),
    "Laurel": ("layers.4.laurel", "forward", _without_residual),
    "the end": ("", "forward", _halves),
}


@pytest.mark.parametrize("part", list(OTHERS))
def test_another_way_to_mix_streams_is_refused(part: str) -> None:
    model = families.make("gemma3n")
    name, method, changed = OTHERS[part]
    module = model.model.get_submodule(name)
    kind = type(module)
    module.__class__ = type(kind.__name__, (kind,), {method: changed(kind)})
    with pytest.raises(NotFusableError):
        recognise(model)


def test_streams_that_mix_otherwise_in_training_are_refused() -> None:
    model = families.make("gemma3n")
    altup = model.model.layers[3].altup
    kind = type(altup)

    def correct(self: Any, predictions: torch.Tensor, activated: torch.Tensor) -> torch.Tensor:
        corrected: torch.Tensor = kind.correct(self, predictions, activated)
        return 1.1 * corrected if self.training else corrected

    altup.__class__ = type(kind.__name__, (kind,), {"correct": correct})
    with pytest.raises(NotFusableError):
        recognise(model)


def test_gates_that_are_cut_otherwise_run_as_written() -> None:
    model = families.make("gemma3n")
    mlp = model.model.layers[0].mlp
    kind = type(mlp)

    def above_the_mean(_: Any, gate: torch.Tensor) -> torch.Tensor:
        return torch.relu(gate - gate.mean(-1, keepdim=True))

    mlp.__class__ = type(kind.__name__, (kind,), {"_gaussian_topk": above_the_mean})
    assert "not a gated MLP" in recognise(model).layers[0].mlp.reason
    assert_same(get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "linear_left"])), rows())


# The whole model for images and sounds, trained on texts


FIRST_OF_IMAGES, FIRST_OF_SOUNDS, NUM_OTHERS = 140, 148, 8
AUDIO = {
    "vocab_size": NUM_OTHERS,
    "vocab_offset": FIRST_OF_SOUNDS,
    "hidden_size": 32,
    "conf_num_attention_heads": 2,
    "conf_num_hidden_layers": 1,
    "input_feat_size": 16,
    "sscp_conv_channel_size": (8, 4),
}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Any:  # Any: a transformers model
    """A small model for images, sounds and texts."""
    know_language_model("gemma3n")
    config = AutoConfig.for_model(
        "gemma3n",
        text_config={**families.SIZES, **families.GEMMA3N},
        audio_config=AUDIO,
        vision_config={"hidden_size": 32, "vocab_size": NUM_OTHERS, "vocab_offset": FIRST_OF_IMAGES},
        image_token_id=FIRST_OF_IMAGES + 1,
        audio_token_id=FIRST_OF_SOUNDS + 1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.dim() == 1 else 0.05))
    monkeypatch.setattr(families, "make", lambda _: model)
    return model


LAYERS_OF_TEXTS = r".*language_model.*(q_proj|down_proj|k_proj|linear_left|modality_router|altup_projections.0)"


@pytest.mark.parametrize("targets", [LAYERS_OF_TEXTS, "all-linear"])
def test_texts_train_the_decoder_of_a_model_for_images_and_sounds(targets: str, whole: Any) -> None:
    tables = recognise(whole).other_tables
    body = whole.model
    assert tables == (
        OtherTable(body.embed_vision, FIRST_OF_IMAGES, NUM_OTHERS),
        OtherTable(body.embed_audio, FIRST_OF_SOUNDS, NUM_OTHERS),
    )
    examples = rows()
    # Tokens of the other tables, and one of the embedding's before them.
    examples[0].input_ids[2:7] = (140, 141, 148, 155, 139)
    twin = assert_same(adapted("gemma3n", target_modules=targets), examples)
    assert twin.report[0] == "6 of 6 layers run on Tunesmith's own path."
    assert any("never see text" in note for note in twin.notes) == (targets == "all-linear")


def test_an_embedding_gets_no_gradient_for_tokens_of_other_tables(whole: Any) -> None:
    examples = rows()
    examples[0].input_ids[2:5] = (140, 150, 139)
    model = adapted("gemma3n", target_modules=r".*language_model.*q_proj", modules_to_save=["embed_tokens"])
    assert_same(model, examples)


def test_a_wrapper_that_embeds_other_tokens_otherwise_is_refused(whole: Any) -> None:
    kind = type(whole.model)

    def forward(self: Any, input_ids: torch.Tensor, **named: Any) -> Any:
        return kind.forward(self, input_ids=input_ids.clamp_max(FIRST_OF_SOUNDS), **named)

    whole.model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    with pytest.raises(NotFusableError):
        recognise(whole)
