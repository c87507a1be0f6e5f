"""What a model adds to its loss for an even use of its experts: the fused path against transformers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers.models.mixtral import modeling_mixtral

from tests.engine.fused import families
from tests.engine.fused.test_model import adapted, fused, rows
from tests.engine.fused.test_sparse import EXPERTS
from tunesmith_engine.data import Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.shapes import NotFusableError

WEIGHT = 0.5
KINDS = (
    "mixtral",
    *(
        pytest.param(name, marks=pytest.mark.long)
        for name in ("qwen2-moe", "granite-hybrid-moe", "granite-windows", "laguna", "gpt-oss", "qwen3.5-moe", "olmoe")
    ),
)


def _adapted(name: str, monkeypatch: pytest.MonkeyPatch, weight: float = WEIGHT, **lora: Any) -> PeftModel:
    make = families.make
    with monkeypatch.context() as patch:
        patch.setattr(
            families, "make", lambda name: make(name, output_router_logits=True, router_aux_loss_coef=weight)
        )
        return adapted(name, **lora)


def _by_transformers(model: PeftModel, examples: list[Example]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the model's own loss of padded rows together, and its gradients."""
    loss = model(**collate(examples, 0), use_cache=False).loss
    loss.backward()
    found = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    return loss.detach(), found


@pytest.mark.parametrize("name", KINDS)
def test_loss_and_gradients_are_those_of_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _adapted(name, monkeypatch, target_parameters=EXPERTS)
    without = _by_transformers(_adapted(name, monkeypatch, 0.0, target_parameters=EXPERTS), rows())[1]
    expected_loss, expected = _by_transformers(model, rows())
    twin, loss, gradients = fused(copy.deepcopy(model), rows())
    assert twin.report[0].startswith("2 of 2" if len(twin.plan.policies) == 2 else "3 of 3")
    assert torch.isclose(loss, expected_loss, rtol=1e-5)
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter
    # It is there: without it, gradients are others.
    first = next(iter(expected))
    assert (gradients[first] - without[first]).norm() > 1e-2 * without[first].norm()
    for policy in ("full", "offload"):
        _, again, same = fused(copy.deepcopy(model), rows(), policy)
        assert torch.equal(again, loss)
        assert all(torch.equal(same[parameter], gradients[parameter]) for parameter in gradients)


def _assert_refused() -> None:
    with pytest.raises(NotFusableError, match="balances the experts"):
        recognise(families.make("mixtral", output_router_logits=True))


def test_another_formula_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = modeling_mixtral.load_balancing_loss_func
    assert recognise(families.make("mixtral", output_router_logits=True)).balance is not None
    monkeypatch.setattr(modeling_mixtral, "load_balancing_loss_func", lambda *args: 2.0 * usual(*args))
    _assert_refused()


def test_what_the_model_does_not_record_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class names other results of its routers than what the model has recorded."""
    model = families.make("mixtral", output_router_logits=True)
    model(input_ids=torch.arange(20, 25)[None])
    recorders = {**model.model._can_record_outputs, "router_logits": modeling_mixtral.MixtralSparseMoeBlock}
    monkeypatch.setattr(type(model.model), "_can_record_outputs", recorders)
    with pytest.raises(NotFusableError, match="balances the experts"):
        recognise(model)
