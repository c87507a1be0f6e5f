"""Shared keys and values, per-layer inputs and latent attention: every adapter, policy and division is autograd's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig

from tests.engine.fused import families
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import _in_4_bits, assert_equal
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import branches, recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import NotFusableError, Placeholders, SparseShape

NAMES = ("gemma4", "deepseek-v3")

VARIANTS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "biases": {"lora_bias": True, "target_modules": ["q_proj", "per_layer_input_gate", "per_layer_projection"]},
    "values alone": {"target_modules": ["v_proj"]},
    "per-layer inputs alone": {"target_modules": ["per_layer_model_projection"]},
    "not of per-layer inputs": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]},
    "embedding": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
}


@pytest.mark.parametrize("name", [*NAMES, "gemma3n"])
def test_policies_and_groups_of_heads_change_no_bit(name: str) -> None:
    twin, loss, kept = fused(adapted(name), rows(), "none")
    batch = make_packed_batch(rows(), CPU)

    def again() -> None:
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, kept[name]) for name, parameter in twin.arena.parameters.items())

    for policy in ("mlp", "smart", "full", "offload"):
        twin._change(twin._planner.plan(policy))
        again()
    twin._change(replace(twin.plan, tiling=Tiling(CAPACITY, 256, 2)))
    assert len(list(twin._layers[0].attention._parts(39))) > 1
    twin.arena.gradients.zero_()
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(rows())), loss, rtol=1e-6)
    assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, kept)


OF_LATENTS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "biases": {"lora_bias": True, "target_modules": ["q_b_proj", "kv_b_proj", "kv_a_proj_with_mqa"]},
    "expansions alone": {"target_modules": ["q_b_proj", "kv_b_proj"]},
    "latents alone": {"target_modules": ["q_a_proj", "kv_a_proj_with_mqa"]},
}
CASES = [("gemma4", name) for name in VARIANTS] + [("deepseek-v3", name) for name in OF_LATENTS]


@pytest.mark.parametrize(
    ("family", "variant"), [pytest.param(*case, marks=() if case[1] == "DoRA" else pytest.mark.long) for case in CASES]
)
def test_variant_has_the_gradients_of_peft(family: str, variant: str) -> None:
    model = adapted(family, **(VARIANTS if family == "gemma4" else OF_LATENTS)[variant])
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows(), "smart")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_base_in_4_bits_gives_the_gradients_of_peft(name: str) -> None:
    model = get_peft_model(_in_4_bits(families.make(name)), LoraConfig(r=4, target_modules="all-linear"))
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            torch.nn.init.normal_(parameter, std=0.1)
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.parametrize("name", [*NAMES, "gemma3n"])
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


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_updates_follow_those_of_transformers(name: str) -> None:
    model, twin = adapted(name), FusedModel.attach(adapted(name), compute(), CAPACITY)
    theirs = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizers = [torch.optim.AdamW(weights.values(), lr=1e-2) for weights in (theirs, twin.arena.parameters)]
    batch = make_packed_batch(rows(), CPU)
    for _ in range(5):
        loss, gradients = reference(model, rows())
        for parameter_name, parameter in theirs.items():
            parameter.grad = gradients[parameter_name]
        twin.arena.gradients.zero_()
        ours = twin.loss_and_gradients(batch, num_trained(rows()))
        assert torch.isclose(ours.double(), loss, rtol=1e-4)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        twin.refresh()


# Models for images and texts

QWEN_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
}
PLACEHOLDERS = {"image_token_id": 15, "video_token_id": 16}
WITH_IMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma4ForConditionalGeneration": (
        "gemma4",
        {"model_type": "gemma4", "vision_config": {**families.VISION, "head_dim": 16, "num_key_value_heads": 2},
         "audio_config": None, "audio_token_id": 17, **PLACEHOLDERS},
    ),
    "Qwen3_5ForConditionalGeneration": (
        "qwen3.5", {"model_type": "qwen3_5", "vision_config": QWEN_VISION, **PLACEHOLDERS}
    ),
    "Mistral3ForConditionalGeneration": (
        "mistral",
        {"model_type": "mistral3", "vision_config": {"model_type": "pixtral", **families.VISION, "head_dim": 16},
         "image_token_index": 15},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        "Gemma4ForConditionalGeneration",
        pytest.param("Qwen3_5ForConditionalGeneration", marks=pytest.mark.long),
        pytest.param("Mistral3ForConditionalGeneration", marks=pytest.mark.long),
    ],
)
def test_text_trains_the_decoder_of_a_model_for_images(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, settings = WITH_IMAGES[kind]
    config = AutoConfig.for_model(**settings, text_config={**families.SIZES, **families.FUSED[family]})
    torch.manual_seed(0)
    base = getattr(transformers, kind)(config).eval().requires_grad_(False)
    base.set_attn_implementation("eager")
    monkeypatch.setattr(families, "make", lambda _: base)
    layers = r".*language_model.*(q_proj|down_proj|k_proj|per_layer_projection)"
    model = adapted(family, target_modules=layers)
    examples = rows()
    # Tokens that stand for images are read as padding where there are none.
    examples[0].input_ids[2:5] = (15, 16, 17)
    expected_loss, expected = reference(model, examples)
    twin, loss, gradients = fused(model, examples)
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert twin.report[0].startswith(f"{len(twin.plan.policies)} of ")
    found = recognise(model).placeholders
    assert found == (Placeholders((15, 16, 17), 0) if kind.startswith("Gemma4") else None)


def test_who_lends_and_who_reads_is_told_by_the_code() -> None:
    attentions = recognise(families.make("gemma4")).attentions
    assert [shape.source for shape in attentions] == [None, None, None, 1, 2, 1]
    assert [shape.lends for shape in attentions] == [False, True, True, False, False, False]
    assert [shape.head_dim for shape in attentions] == [16, 32] * 3


@pytest.mark.parametrize("part", ["norm", "lender", "gate"])
def test_a_layer_that_computes_something_else_is_refused(part: str) -> None:
    model = families.make("gemma4")
    layers = model.model.layers
    if part == "norm":
        layers[0].self_attn.v_norm = torch.nn.Tanh()
    elif part == "lender":
        layers[4].self_attn.layer_type = "other"
    else:
        layers[2].act_fn = torch.nn.Tanh()
    with pytest.raises(NotFusableError):
        recognise(model)


@pytest.mark.parametrize("part", ["norms behind", "router"])
def test_experts_beside_an_mlp_are_held_against_the_layers_own_code(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms that change places, or a router that reads what the experts read, make another layer."""
    model = families.make("gemma4-experts")
    assert [type(layer.mlp) for layer in recognise(model).layers] == [SparseShape] * 6

    def with_norm_before_the_router(block: branches.Branches, x: torch.Tensor) -> torch.Tensor:
        flat = block.before_experts(x.reshape(-1, x.shape[-1]))
        _, weights, chosen = block.router(flat)
        of_experts = block.experts(flat, chosen, weights).reshape(x.shape)
        return block.behind(block.shared_mlp(block.before(x))) + block.behind_experts(of_experts)

    if part == "router":
        monkeypatch.setattr(branches.Branches, "forward", with_norm_before_the_router)
    else:
        monkeypatch.setattr(branches, "BEHIND", branches.BEHIND_EXPERTS)
        monkeypatch.setattr(branches, "BEHIND_EXPERTS", "post_feedforward_layernorm_1")
    with pytest.raises(NotFusableError, match="experts beside its MLP"):
        recognise(model)
