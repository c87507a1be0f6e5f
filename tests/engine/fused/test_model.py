"""The fused model computes the loss and the gradients of the transformers model, packed or not, under every policy."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.engine.fused import families
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.activations import LayerPolicy
from tunesmith_engine.fused.copies import ImmediateCopies
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.policy import RUNGS
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.packed.pack import make_packed_batch

CPU = torch.device("cpu")
LENGTHS = (11, 1, 7, 18, 2)
CAPACITY = 64


def compute(dtype: torch.dtype = torch.float32) -> Compute:
    return Compute(CPU, dtype, "CPU", 1)


def adapted(name: str, **lora: Any) -> PeftModel:
    """Return a family's model with a random adapter, both of its matrices unlike zero."""
    model = families.make(name)
    targets = families.TARGETS.get(name, "all-linear")
    settings = {"r": 4, "lora_alpha": 6, "target_modules": targets, "task_type": "CAUSAL_LM", **lora}
    torch.manual_seed(1)
    with_adapter = get_peft_model(model, LoraConfig(**settings))
    for parameter_name, parameter in with_adapter.named_parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn_like(parameter.data) * 0.1
        if "magnitude" in parameter_name:
            # Of the size of a row, which they are at first and stay near.
            parameter.data = 0.7 + parameter.data
    return with_adapter


def rows(lengths: tuple[int, ...] = LENGTHS, vocab_size: int = 160) -> list[Example]:
    """Return random rows of which about two thirds of the tokens are trained."""
    generator = np.random.default_rng(3)
    examples = []
    for length in lengths:
        ids = generator.integers(3, vocab_size, length)
        labels = np.where(generator.random(length) < 0.67, ids, IGNORED_LABEL)
        examples.append(Example(ids, labels))
    return examples


def num_trained(examples: list[Example]) -> int:
    return sum(int((example.labels[1:] != IGNORED_LABEL).sum()) for example in examples)


def row_loss(model: PeftModel, example: Example) -> torch.Tensor:
    """Return the sum of a row's cross-entropies by transformers."""
    logits = model(input_ids=torch.from_numpy(example.input_ids)[None]).logits[0, :-1]
    labels = torch.from_numpy(example.labels)[1:]
    return torch.nn.functional.cross_entropy(logits.double(), labels, ignore_index=IGNORED_LABEL, reduction="sum")


def reference(model: PeftModel, examples: list[Example]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return loss and gradients by transformers and autograd, a row at a time."""
    total = torch.zeros((), dtype=torch.float64)
    for example in examples:
        loss = row_loss(model, example) / num_trained(examples)
        loss.backward()
        total += loss.detach()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return total, gradients


def fused(
    model: PeftModel, examples: list[Example], policy: str = "auto", capacity: int = CAPACITY
) -> tuple[FusedModel, torch.Tensor, dict[str, torch.Tensor]]:
    """Return the fused model with its loss and gradients for all rows in one batch."""
    twin = FusedModel.attach(model, compute(), capacity, policy)
    loss = twin.loss_and_gradients(make_packed_batch(examples, CPU), num_trained(examples))
    gradients = {name: parameter.grad.clone() for name, parameter in twin.arena.parameters.items()}
    return twin, loss, gradients


@pytest.mark.parametrize("name", families.marked([*families.FUSED, *families.MLP_UNFUSED]))
def test_packed_rows_give_the_loss_and_gradients_of_separate_rows(name: str) -> None:
    model = adapted(name)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert gradients.keys() >= expected.keys()
    for parameter, gradient in gradients.items():
        if parameter not in expected:
            # Layers that text never reaches, such as those for images.
            assert not gradient.any()
            continue
        error = (gradient - expected[parameter]).norm() / expected[parameter].norm().clamp_min(1e-12)
        assert error < 2e-4, (parameter, error)
    num_layers = len(twin.plan.policies)
    whole = name in families.FUSED
    assert twin.report[0] == f"{num_layers if whole else 0} of {num_layers} layers run on Tunesmith's own path."
    assert any(line.startswith("Not fused in") for line in twin.report) != whole


@pytest.mark.parametrize("policy", ["mlp", "smart", "full", "offload"])
@pytest.mark.parametrize(
    "name",
    [
        "llama",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("cohere", *families.BY_SHAPE, *families.BY_ATTENTION, "llama4", "gpt-oss")
        ),
    ],
)
def test_no_policy_changes_a_bit(name: str, policy: str) -> None:
    _, kept_loss, kept = fused(adapted(name), rows(), "none")
    _, loss, gradients = fused(adapted(name), rows(), policy)
    assert torch.equal(loss, kept_loss)
    assert all(torch.equal(gradients[name], kept[name]) for name in kept)


@pytest.mark.parametrize(
    ("name", "lora"),
    [("llama", {}), ("gemma2", {}), ("cohere", {}), ("llama", {"lora_dropout": 0.2}), ("llama", {"use_dora": True}),
     ("llama", {"use_dora": True, "lora_dropout": 0.2}), ("gemma4-a4b", {"target_parameters": ["experts.down_proj"]})],
)
def test_tiles_that_were_sent_change_no_bit(name: str, lora: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = Tiling(mlp_tokens=8, head_rows=256, attention_numbers=2**22)
    results, num_copies = [], 0

    class Counting(ImmediateCopies):
        def start(self, destination: torch.Tensor, source: torch.Tensor) -> None:
            nonlocal num_copies
            num_copies += 1
            super().start(destination, source)

    monkeypatch.setattr("tunesmith_engine.fused.activations.ImmediateCopies", Counting)
    for policy in (LayerPolicy("none"), LayerPolicy("mlp", "host"), LayerPolicy("mlp", "host", 3)):
        twin = FusedModel.attach(adapted(name, **lora), compute(), 40, "full")
        num_layers, before = len(twin.plan.policies), num_copies
        twin._change(twin._planner._sized((policy,) * num_layers, 40, tiling, False))
        torch.manual_seed(2)
        loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
        results.append((loss, twin.arena.gradients.clone()))
        # What a layer keeps, and three of its five tiles; of both the last two stay.
        num_sent = (num_layers - 2) * (policy.place == "host") + (3 * num_layers - 2) * bool(policy.sent_tiles)
        assert num_copies - before == 2 * num_sent
    assert num_sent > 0
    for loss, gradients in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradients, results[0][1])


@pytest.mark.parametrize(
    "name",
    ["qwen3.5", "lfm2", *(pytest.param(name, marks=pytest.mark.long) for name in ("gemma2", "gpt-oss", "llama4"))],
)
def test_a_policy_of_its_own_for_each_layer_changes_no_bit(name: str) -> None:
    """As the plan gives them where layers differ."""
    tiling, chance = Tiling(mlp_tokens=8, head_rows=256, attention_numbers=2**22), random.Random(0)
    twin = FusedModel.attach(adapted(name), compute(), 40, "full")
    results = []
    for trial in range(6):
        policies = [chance.choice(RUNGS) if trial else LayerPolicy("none") for _ in twin.plan.policies]
        policies = [p if p.level == "none" else replace(p, sent_tiles=chance.randint(0, 5)) for p in policies]
        twin._change(twin._planner._sized(tuple(policies), 40, tiling, False))
        twin.arena.gradients.zero_()
        loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
        results.append((loss, twin.arena.gradients.clone()))
    assert results[0][1].any()
    for loss, gradients in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradients, results[0][1])


def test_the_loss_alone_is_that_of_training_and_leaves_no_gradient() -> None:
    model = adapted("llama")
    twin, loss, _ = fused(model, rows())
    twin.arena.gradients.zero_()
    batch = make_packed_batch(rows(), CPU)
    assert torch.isclose(twin.loss(batch) / num_trained(rows()), loss)
    with model.disable_adapter(), torch.no_grad():
        base = sum(row_loss(model, example) for example in rows())
    assert torch.isclose(twin.loss(batch, with_adapter=False).double(), base, rtol=1e-5)
    assert not torch.isclose(base / num_trained(rows()), loss.double(), rtol=1e-3)
    assert not twin.arena.gradients.any()
