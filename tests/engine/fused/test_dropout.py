"""Dropout on the fused path: autograd's gradients with the same masks, none in evaluation, no bit by the policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import nn

from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, num_trained, reference, rows
from tests.engine.fused.test_variants import assert_equal
from tunesmith_engine.fused import fp8
from tunesmith_engine.fused.masks import Masks
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.kernels.dropout import Mask, keep
from tunesmith_engine.packed.pack import make_packed_batch

SHARE = 0.4
FAMILIES = ("llama", "llama-biases", "gemma2", "cohere", "phi3", "olmo2")


class SameMask(nn.Module):
    """Stands in PEFT's layers for their dropout, with the masks of the fused model."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = keep(self._mask, slice(0, x.shape[-2]), x.shape[-1])
        return x * (kept * self._mask.factor).to(x.dtype)


def one_step(model: PeftModel, policy: str = "auto", tiling: Tiling | None = None) -> tuple[FusedModel, torch.Tensor]:
    twin = FusedModel.attach(model, compute(), CAPACITY, policy)
    if tiling is not None:
        twin._change(twin._planner._sized(twin.plan.policies, CAPACITY, tiling, False))
    torch.manual_seed(11)
    one_row = rows((29,))
    return twin, twin.loss_and_gradients(make_packed_batch(one_row, CPU), num_trained(one_row))


def use_the_same_masks(model: PeftModel, twin: FusedModel) -> None:
    """Let PEFT's layers drop what the fused model dropped in its last step."""
    by_weight = {
        id(module.lora_A["default"].weight): module for module in model.modules() if hasattr(module, "lora_A")
    }
    parts = [twin.assembly.head, *(part for layer in twin.assembly.projections for part in layer.all())]
    for part in parts:
        assert isinstance(part, Projection)
        part.first_row = 0
        masks = [mask for _, mask in part._masked()]
        for member, mask in zip([m for m in part.members if m.adapter], masks, strict=True):
            by_weight[id(member.adapter.a)].lora_dropout["default"] = SameMask(mask)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_autograd_with_the_same_masks(name: str) -> None:
    model = adapted(name, lora_dropout=SHARE).train()
    twin, loss = one_step(model)
    assert twin.notes == []
    gradients = {name: parameter.grad.clone() for name, parameter in twin.arena.parameters.items()}
    twin.arena.gradients.zero_()
    use_the_same_masks(model, twin)
    expected_loss, expected = reference(model, rows((29,)))
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


def test_an_adapter_of_the_head_drops_too() -> None:
    model = adapted("llama", lora_dropout=SHARE, target_modules=["lm_head", "v_proj"]).train()
    twin, loss = one_step(model)
    dropped = loss.clone()
    twin.assembly.masks.active = False
    assert not torch.isclose(twin.loss(make_packed_batch(rows((29,)), CPU)) / num_trained(rows((29,))), dropped)


@pytest.mark.parametrize("policy", ["mlp", "smart", "full", "offload"])
def test_no_policy_changes_a_bit(policy: str) -> None:
    kept, kept_loss = one_step(adapted("llama", lora_dropout=SHARE).train(), "none")
    twin, loss = one_step(adapted("llama", lora_dropout=SHARE).train(), policy)
    assert torch.equal(loss, kept_loss)
    assert torch.equal(twin.arena.gradients, kept.arena.gradients)


def test_tiles_draw_what_the_whole_would() -> None:
    whole, whole_loss = one_step(adapted("llama", lora_dropout=SHARE).train())
    twin, loss = one_step(adapted("llama", lora_dropout=SHARE).train(), "full", Tiling(8, 8, 2**22))
    assert torch.isclose(loss, whole_loss, rtol=1e-5)
    assert torch.allclose(twin.arena.gradients, whole.arena.gradients, rtol=1e-3, atol=1e-6)


def test_every_micro_batch_has_masks_of_its_own_that_the_random_state_decides() -> None:
    twin, first = one_step(adapted("llama", lora_dropout=SHARE).train())
    batch, num = make_packed_batch(rows((29,)), CPU), num_trained(rows((29,)))
    state = torch.get_rng_state()
    second = twin.loss_and_gradients(batch, num)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(twin.loss_and_gradients(batch, num), second)


def test_no_two_adapters_share_a_mask() -> None:
    masks = Masks(CPU)
    numbers = [masks.reserve() for _ in range(5)]
    masks.draw()
    assert len({int(masks.seed(number)) for number in numbers}) == 5


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_drops_nothing(training: bool) -> None:
    model = adapted("llama", lora_dropout=SHARE).train(training)
    twin, _ = one_step(model)
    expected, _ = reference(adapted("llama", lora_dropout=SHARE).eval(), rows())
    state = torch.get_rng_state()
    found = twin.loss(make_packed_batch(rows(), CPU)) / num_trained(rows())
    assert torch.isclose(found.double(), expected, rtol=1e-5)
    assert torch.equal(torch.get_rng_state(), state)
    loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    assert torch.isclose(loss.double(), expected, rtol=1e-5) != training


def test_8_bit_products_have_none() -> None:
    twin, _ = one_step(adapted("llama", lora_dropout=SHARE))
    gpu: Any = type("Gpu", (), {"device": torch.device("cuda"), "dtype": torch.bfloat16})()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
        assert fp8.problem(gpu, twin.assembly.projections) == "They do not support dropout."
