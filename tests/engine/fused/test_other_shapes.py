"""What few models do: shapes that are read, and what is not taken for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers.models.cohere2_moe import modeling_cohere2_moe as cohere
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as hybrid
from transformers.models.laguna import modeling_laguna as laguna
from transformers.models.llama4 import modeling_llama4 as llama4

from tests.engine.fused import families
from tests.engine.fused.test_model import adapted, fused, rows
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.recognise.model import check_tables, find_decoder
from tunesmith_engine.fused.recognise.rotary import rotary_tables
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.shapes import LayerShape, NotFusableError, SparseShape, Unfused

NAMES = ("laguna", "cohere2-moe", "llama4", "granite-hybrid-moe", "granite-windows", "lfm3", "lfm2-moe", "axk1")


def test_gates_of_heads_are_read() -> None:
    gated = [layer.attention for layer in recognise(families.make("laguna")).layers]
    assert [each.head_gate for each in gated if isinstance(each, AttentionShape)] == ["softplus", "softplus"]
    assert [each.num_gates for each in gated if isinstance(each, AttentionShape)] == [4, 6]


def test_layers_of_several_bases_take_their_own_tables() -> None:
    shape = recognise(families.make("granite-windows"))
    kinds = [(layer.rotary_kind, layer.attention.rotary) for layer in shape.layers if isinstance(layer, LayerShape)]  # type: ignore[union-attr]
    assert kinds == [("10000.0", True), ("", False), ("50.0", True)]
    assert shape.rotary_kinds == {"10000.0", "50.0"}


def test_experts_beside_an_mlp_are_read() -> None:
    mlps = [layer.mlp for layer in recognise(families.make("granite-hybrid-moe")).layers]
    assert all(isinstance(mlp, SparseShape) and mlp.shared and not mlp.shared_role for mlp in mlps)


def _beside(self: Any, *args: Any, **named: Any) -> Any:
    result = USUAL["granite-hybrid-moe"](self, *args, **named)
    return result + 1e-2 * self.shared_mlp(result)


def _averaged(self: Any, hidden_states: torch.Tensor) -> Any:
    return 0.9 * USUAL["cohere2-moe"](self, hidden_states)


def _opened(self: Any, hidden_states: torch.Tensor, *args: Any, **named: Any) -> Any:
    usual = functional.softplus
    try:
        functional.softplus = functional.elu  # type: ignore[assignment]
        return USUAL["laguna"](self, hidden_states, *args, **named)
    finally:
        functional.softplus = usual


MUTANTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "granite-hybrid-moe": (hybrid.GraniteMoeHybridDecoderLayer, _beside),
    "cohere2-moe": (cohere.Cohere2MoeSparseMoeBlock, _averaged),
    "laguna": (laguna.LagunaAttention, _opened),
}
USUAL: dict[str, Callable[..., Any]] = {name: kind.forward for name, (kind, _) in MUTANTS.items()}


@pytest.mark.parametrize("name", MUTANTS)
def test_what_does_more_runs_as_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, mutant = MUTANTS[name]
    assert not any(isinstance(layer.mlp, Unfused) for layer in recognise(families.make(name)).layers)
    monkeypatch.setattr(kind, "forward", mutant)
    layers = recognise(families.make(name)).layers
    assert all(isinstance(layer.attention, Unfused) or isinstance(layer.mlp, Unfused) for layer in layers)


def test_weights_behind_experts_are_not_taken_for_weights_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def behind(self: Any, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden_states = hidden_states.reshape(-1, self.hidden_dim)
        scores, logits = self.router(hidden_states)
        routed_out = self.experts(hidden_states.repeat(scores.shape[1], 1)) * scores.transpose(0, 1).reshape(-1, 1)
        out = self.shared_expert(hidden_states)
        out.add_(routed_out.reshape(scores.shape[1], -1, out.shape[-1]).sum(dim=0))
        return out, logits

    monkeypatch.setattr(llama4.Llama4TextMoe, "forward", behind)
    layers = recognise(families.make("llama4")).layers
    assert all(isinstance(layer.mlp, Unfused) for layer in layers)


def test_tables_that_layers_are_not_handed_are_refused() -> None:
    body = find_decoder(families.make("granite-windows"))
    tables = rotary_tables(body.module, [])
    assert tables is not None
    check_tables(body, tables, ["10000.0", "", "50.0"])
    for wrong in (["50.0", "", "10000.0"], ["10000.0", "50.0", "50.0"], ["10000.0", "", ""]):
        with pytest.raises(NotFusableError, match="different rotary embeddings"):
            check_tables(body, tables, wrong)


@pytest.mark.parametrize("policy", ["mlp", "full", "offload"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in NAMES])
def test_no_policy_changes_a_bit(name: str, policy: str) -> None:
    _, kept_loss, kept = fused(adapted(name), rows(), "none")
    _, loss, gradients = fused(adapted(name), rows(), policy)
    assert torch.equal(loss, kept_loss)
    assert all(torch.equal(gradients[name], kept[name]) for name in kept)
