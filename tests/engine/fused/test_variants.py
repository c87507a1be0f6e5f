"""Every kind of adapter gives autograd's gradients through the fused model, and what isn't fused is said by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict

from tests.engine.fused import families
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tunesmith_core.errors import BugError
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.packed.pack import make_packed_batch, pack
from tunesmith_engine.shapes import NotFusableError

MOST = 2e-4
"""Of a gradient's length: float32 rounding of sums in another order, through two layers."""

FUSED_VARIANTS: dict[str, dict[str, Any]] = {
    "rank-stabilised": {"use_rslora": True},
    "queries and values": {"target_modules": ["q_proj", "v_proj"]},
    "keys": {"target_modules": ["k_proj"]},
    "mlp": {"target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "down": {"target_modules": ["down_proj"]},
    "a wide down": {"rank_pattern": {"down_proj": 60}},
    "up and outputs": {"target_modules": ["up_proj", "o_proj"]},
    "one layer": {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1]},
    "unequal ranks": {
        "rank_pattern": {"k_proj": 1, "v_proj": 7, "gate_proj": 70, "layers.1.down_proj": 3},
        "alpha_pattern": {"k_proj": 5, "up_proj": 2, "layers.1.o_proj": 11},
    },
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "biases of layers": {"bias": "lora_only", "target_modules": ["q_proj"]},
    "all biases": {"bias": "all", "target_modules": ["o_proj"]},
    "all biases with DoRA": {"bias": "all", "use_dora": True},
    "DoRA": {"use_dora": True},
    "DoRA in part": {"use_dora": True, "target_modules": ["k_proj", "down_proj"]},
}

UNFUSED_VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "biases of adapters": ({"lora_bias": True, "target_modules": ["v_proj", "o_proj", "up_proj"]}, "bias"),
}
"""What an adapter is made of, and a word of the reason why it is left to PEFT."""


def assert_equal(gradients: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        error = (gradient - expected[name]).norm() / expected[name].norm().clamp_min(1e-12)
        assert error < MOST, (name, error)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
@pytest.mark.parametrize("variant", list(FUSED_VARIANTS))
def test_variant_runs_fused(variant: str, family: str) -> None:
    model = adapted(family, **FUSED_VARIANTS[variant])
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert twin.notes == []


@pytest.mark.parametrize("policy", ["none", "full"])
@pytest.mark.parametrize("variant", list(UNFUSED_VARIANTS))
def test_variant_is_left_to_peft_by_name(variant: str, policy: str) -> None:
    settings, word = UNFUSED_VARIANTS[variant]
    model = adapted("qwen2", **settings)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows(), policy)
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert twin.notes
    assert all(note.startswith("Not fused in 2 of 2 layers. ") and word in note for note in twin.notes)


@pytest.mark.parametrize("settings", [{"lora_bias": True}])
def test_head_that_only_peft_can_run_is_refused_by_name(settings: dict[str, Any]) -> None:
    model = adapted("llama", target_modules=["lm_head"], **settings)
    with pytest.raises(NotFusableError, match=r"output projection can't be computed in chunks\. .*bias"):
        FusedModel.attach(model, compute(), CAPACITY)


def test_trained_weights_of_norms_are_refused_by_name() -> None:
    model = adapted("qwen2", target_modules=["q_proj"])
    model.get_base_model().model.norm.weight.requires_grad_(True)
    with pytest.raises(NotFusableError, match=r"model\.norm\.weight is trained"):
        FusedModel.attach(model, compute(), CAPACITY)


# Dropout


@pytest.mark.parametrize("policy", ["none", "mlp", "smart", "full"])
def test_dropout_in_plain_pytorch_draws_the_masks_of_transformers(policy: str) -> None:
    model = adapted("llama", lora_dropout=0.5, use_dora=True).train()
    one_row = rows((29,))
    torch.manual_seed(5)
    expected_loss, expected = reference(model, one_row)
    twin = FusedModel.attach(model, compute(), CAPACITY, policy)
    for seed, same in ((5, True), (6, False)):
        twin.arena.gradients.zero_()
        torch.manual_seed(seed)
        loss = twin.loss_and_gradients(make_packed_batch(one_row, CPU), num_trained(one_row))
        assert torch.isclose(loss.double(), expected_loss, rtol=1e-5) == same
        if same:
            assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, expected)
    assert twin.notes
    assert all("DoRA with dropout runs in plain PyTorch" in note for note in twin.notes)


@pytest.mark.parametrize("policy", ["none", "full"])
def test_dropout_in_several_tiles_has_the_gradient_of_its_own_masks(policy: str) -> None:
    # In plain PyTorch for the biases of its adapters.
    model = adapted("llama", lora_dropout=0.5, lora_bias=True).train()
    twin = FusedModel.attach(model, compute(), CAPACITY, policy)
    twin._use(replace(twin.plan, tiling=Tiling(16, 16, 2**24)))
    batch, arena = make_packed_batch(rows(), CPU), twin.arena

    def loss_with_masks() -> float:
        torch.manual_seed(5)
        return float(twin.loss_and_gradients(batch, num_trained(rows())))

    loss_with_masks()
    direction = arena.gradients / arena.gradients.norm()
    slope = float(arena.gradients.norm())
    weights, step = arena.weights.clone(), 3e-3
    losses = []
    for sign in (1, -1):
        arena.weights.copy_(weights + sign * step * direction)
        twin.refresh()
        losses.append(loss_with_masks())
    assert abs((losses[0] - losses[1]) / (2 * step) - slope) < 1e-2 * slope


def test_evaluation_mode_has_no_dropout() -> None:
    model = adapted("llama", lora_dropout=0.5).eval()
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


# 4-bit weights


def _in_4_bits(model: Any, whole: tuple[str, ...] = ("lm_head",)) -> Any:  # Any: transformers models have no types
    """Return the model with its decoder's linear layers in NF4, as bitsandbytes loads it; some stay whole."""
    from bitsandbytes.nn import Linear4bit, Params4bit

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Linear) and name not in whole:
                layer = Linear4bit(child.in_features, child.out_features, child.bias is not None, quant_type="nf4")
                layer.compute_dtype = torch.float32
                layer.weight = Params4bit(child.weight.data, requires_grad=False, quant_type="nf4", module=layer)
                layer.bias = child.bias
                setattr(parent, name, layer.to("cpu"))
    model.is_loaded_in_4bit = True
    return model


@pytest.mark.parametrize("settings", [{}, {"target_modules": ["k_proj", "down_proj"]}, {"use_dora": True}])
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_a_base_in_4_bits_gives_the_gradients_of_peft(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitsandbytes")
    bare = families.make
    # Rows of weights must be whole blocks of 64 there.
    monkeypatch.setattr(families, "make", lambda name: _in_4_bits(bare(name, intermediate_size=128)))
    model = adapted(name, **settings)
    expected_loss, expected = reference(model, rows())
    packed = model.get_base_model().model.layers[0].mlp.up_proj
    packed_before = getattr(packed, "base_layer", packed).weight.data.clone()
    twin, loss, gradients = fused(model, rows(), "full")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert twin.notes == []
    twin.detach()
    assert torch.equal(getattr(packed, "base_layer", packed).weight.data, packed_before)


# Several adapters, none, or no more


def test_the_active_one_of_two_adapters_is_trained() -> None:
    model = adapted("llama", target_modules=["q_proj", "down_proj"])
    torch.manual_seed(2)
    other = LoraConfig(r=3, lora_alpha=9, target_modules=["v_proj", "down_proj"], init_lora_weights=False)
    model.add_adapter("other", other)
    model.set_adapter("other")
    idle = {name: tensor.clone() for name, tensor in get_peft_model_state_dict(model, adapter_name="default").items()}
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert all(".other." in name for name in twin.arena.parameters)
    after = get_peft_model_state_dict(model, adapter_name="default")
    assert all(torch.equal(after[name], tensor) for name, tensor in idle.items())


def test_an_adapter_of_zeros_is_the_base_model() -> None:
    model = adapted("llama")
    twin = FusedModel.attach(model, compute(), CAPACITY)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.zero_()
    twin.refresh()
    batch = make_packed_batch(rows(), CPU)
    assert torch.equal(twin.loss(batch), twin.loss(batch, with_adapter=False))


@pytest.mark.parametrize("settings", [{}, {"use_dora": True}, {"target_modules": ["lm_head", "v_proj"]}])
def test_the_base_model_is_there_without_the_adapter(settings: dict[str, Any]) -> None:
    model = adapted("qwen2", **settings)
    twin = FusedModel.attach(model, compute(), CAPACITY)
    bare = families.make("qwen2")
    expected = sum(
        torch.nn.functional.cross_entropy(
            bare(input_ids=torch.from_numpy(row.input_ids)[None]).logits[0, :-1],
            torch.from_numpy(row.labels)[1:],
            reduction="sum",
        )
        for row in rows()
    )
    batch = make_packed_batch(rows(), CPU)
    assert torch.isclose(twin.loss(batch, with_adapter=False), torch.as_tensor(expected), rtol=1e-5)
    assert not torch.isclose(twin.loss(batch), torch.as_tensor(expected), rtol=1e-4)
    assert all(parameter.requires_grad for parameter in twin.arena.parameters.values())


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
def test_a_merged_adapter_gives_the_same_loss(name: str) -> None:
    model = adapted(name)
    twin = FusedModel.attach(model, compute(), CAPACITY)
    batch = make_packed_batch(rows(), CPU)
    unmerged = twin.loss(batch)
    twin.detach()
    merged = model.merge_and_unload()
    with torch.no_grad():
        expected, _ = _loss_of(merged)
    assert torch.isclose(unmerged / num_trained(rows()), expected, rtol=1e-5)


def _loss_of(model: Any) -> tuple[torch.Tensor, int]:
    total = torch.zeros(())
    for row in rows():
        logits = model(input_ids=torch.from_numpy(row.input_ids)[None]).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, torch.from_numpy(row.labels)[1:], reduction="sum")
    return total / num_trained(rows()), num_trained(rows())


# What transformers and PEFT see


@pytest.mark.parametrize("name", ["llama", "llama-biases", "llama3", "phi3", "mixtral"])
def test_detaching_leaves_the_model_as_before(name: str) -> None:
    model = adapted(name)
    ids = torch.from_numpy(rows()[3].input_ids)[None]
    before, logits = {key: tensor.clone() for key, tensor in model.state_dict().items()}, model(input_ids=ids).logits
    layout = {key: (tensor.shape, tensor.stride()) for key, tensor in before.items()}
    twin, _, _ = fused(model, rows())
    assert torch.allclose(model(input_ids=ids).logits, logits, atol=1e-5)
    twin.detach()
    after = model.state_dict()
    assert {key: (tensor.shape, tensor.stride()) for key, tensor in after.items()} == layout
    assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())
    assert torch.equal(model(input_ids=ids).logits, logits)


def test_saving_and_generating_while_attached_use_the_trained_weights(tmp_path: Path) -> None:
    model = adapted("llama", target_modules=["q_proj", "up_proj", "lm_head"])
    twin, _, _ = fused(model, rows())
    twin.arena.weights.sub_(twin.arena.gradients)
    twin.refresh()
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(families.make("llama"), tmp_path)
    trained = get_peft_model_state_dict(model)
    assert all(torch.equal(tensor, trained[name]) for name, tensor in get_peft_model_state_dict(loaded).items())
    batch = make_packed_batch(rows(), CPU)
    expected, _ = _loss_of(loaded)
    assert torch.isclose(twin.loss(batch) / num_trained(rows()), expected, rtol=1e-5)
    ids = torch.from_numpy(rows()[0].input_ids)[None]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(input_ids=ids, **options), loaded.generate(input_ids=ids, **options))


# Buffers


def test_stepping_down_changes_no_bit_and_takes_less_memory() -> None:
    model = adapted("gemma2")
    twin, loss, gradients = fused(model, rows(), "none")
    batch, sizes = make_packed_batch(rows(), CPU), [twin.plan_bytes]
    while sentence := twin.step_down():
        assert sentence
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, gradients[name]) for name, parameter in twin.arena.parameters.items())
        sizes.append(twin.plan_bytes)
    assert len(sizes) > 2
    assert all(later < earlier for earlier, later in pairwise(sizes)), sizes


def test_micro_batches_add_up_to_the_step() -> None:
    _, loss, gradients = fused(adapted("llama"), rows())
    twin = FusedModel.attach(adapted("llama"), compute(), max(len(row.input_ids) for row in rows()))
    bins = pack(rows(), twin.plan.capacity_tokens)
    assert len(bins) > 1
    total = sum(twin.loss_and_gradients(make_packed_batch(part, CPU), num_trained(rows())) for part in bins)
    assert torch.isclose(torch.as_tensor(total), loss, rtol=1e-5)
    assert_equal({name: parameter.grad for name, parameter in twin.arena.parameters.items()}, gradients)


def test_a_batch_larger_than_the_buffers_is_refused() -> None:
    twin = FusedModel.attach(adapted("llama"), compute(), 16)
    batch = make_packed_batch(rows(), CPU)
    with pytest.raises(BugError, match="39 tokens don't fit into buffers for 16"):
        twin.loss_and_gradients(batch, num_trained(rows()))
    twin.resize(48)
    assert torch.isfinite(twin.loss_and_gradients(batch, num_trained(rows())))
