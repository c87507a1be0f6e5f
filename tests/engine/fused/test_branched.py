"""Experts and an MLP beside each other, each between norms of its own: against their modules, and what isn't fused."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_sparse import EXPERTS
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_core import fused_memory
from tunesmith_core.expert_memory import SparseMlp, passing_bytes, sparse_mlp
from tunesmith_core.mixer_memory import mixers
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.spec import RunSpec
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.branched_block import BranchedBlock
from tunesmith_engine.fused.memory import MemoryPlanner
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.prediction import LayerCosts
from tunesmith_engine.fused.projection import COLUMN_ALIGNMENT
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import SparseShape, Unfused

NAME = "gemma4-a4b"
NUM_TOKENS, TILE = 21, 8
OF_MLP = ["gate_proj", "up_proj", "down_proj"]
WHOLE = "2 of 2 layers run on Tunesmith's own path."


def _adapted(**lora: Any) -> Any:  # Any: PEFT's models
    return adapted(NAME, **{"target_modules": ["q_proj", *OF_MLP], **lora})


def _shape(model: Any) -> SparseShape:
    shape = recognise(model).layers[0].mlp
    assert isinstance(shape, SparseShape)
    return shape


def _trained(model: Any) -> list[torch.nn.Parameter]:
    """Return the adapters of the first layer's experts and MLP."""
    return [part for part in _shape(model).module.parameters() if part.requires_grad]


def _ours(model: Any, x: torch.Tensor, gradient: torch.Tensor, keeps: bool) -> list[torch.Tensor]:
    """Return the block's output, its input's gradient and those of the adapters."""
    assembly = Assembly(model, recognise(model), compute(x.dtype))
    weights = assembly.arena.parameters.values()
    for weight in weights:
        weight.grad.zero_()
    assembly.refresh()
    workspace = assembly.workspace(NUM_TOKENS)
    block = assembly._mlp(assembly.shape.layers[0], assembly.projections[0], workspace, TILE, keeps)
    assert isinstance(block, BranchedBlock)
    gate_up = torch.empty(NUM_TOKENS, block.gate_up_width, dtype=x.dtype) if keeps else None
    out, room = torch.empty_like(x), gradient.clone()
    with torch.no_grad():
        block.forward(x, out, gate_up)
        # The gradient is overwritten, as in a layer.
        block.backward(room, x, room, gate_up)
    return [out, room, *(part.grad.clone() for part in _trained(model))]


def _usual(model: Any, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    trained, leaf = _trained(model), x.clone().requires_grad_()
    out = _shape(model).module(leaf)
    return [out.detach(), *torch.autograd.grad(out, [leaf, *trained], gradient)]


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "computed again"])
@pytest.mark.parametrize("lora", [{"target_parameters": EXPERTS}, {}, {"use_dora": True}], ids=str)
def test_the_block_gives_what_its_modules_give(lora: dict[str, Any], keeps: bool) -> None:
    model, make = _adapted(**lora), torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(NUM_TOKENS, 48, generator=make) for _ in range(2))
    exact = _usual(copy.deepcopy(model).double(), x.double(), gradient.double())
    usual, ours = _usual(model, x, gradient), _ours(model, x, gradient, keeps)
    assert len(ours) == len(exact) > 2 + 4 * ("target_parameters" in lora)
    for mine, theirs, oracle in zip(ours, usual, exact, strict=True):

        def check(value: torch.Tensor, theirs: torch.Tensor = theirs, oracle: torch.Tensor = oracle) -> None:
            judge("block", value, theirs, oracle, torch.float32, 4 * REDUCTION)

        check(mine)
        mutants_fail(check, mine)


def test_experts_and_per_layer_inputs_give_the_gradients_of_peft_under_every_policy() -> None:
    targets = ["q_proj", *OF_MLP, "proj", "per_layer_input_gate"]
    settings = {"target_modules": targets, "target_parameters": EXPERTS}
    expected_loss, expected = reference(adapted("gemma4-experts", **settings), rows())
    assert any("router.proj" in name for name in expected)
    assert any("experts.base_layer.lora_A" in name for name in expected)
    for policy in ("none", "full"):
        twin, loss, gradients = fused(adapted("gemma4-experts", **settings), rows(), policy)
        assert twin.report[0] == "6 of 6 layers run on Tunesmith's own path."
        assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
        assert gradients.keys() == expected.keys()
        for parameter, gradient in gradients.items():
            assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter


def test_dropout_beside_experts_is_the_same_again_in_every_tile() -> None:
    (loss, gradients), (again, others) = (_in_tiles(level, lora_dropout=0.3) for level in ("none", "full"))
    assert torch.equal(loss, again)
    assert torch.equal(gradients, others)
    _, without, _ = fused(_adapted(), rows())
    assert not torch.isclose(loss, without, rtol=1e-6)


def _in_tiles(level: str, **lora: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and all gradients of a model in training, a few tokens of its MLPs at a time."""
    twin = FusedModel.attach(_adapted(**lora).train(), compute(), 64, level)
    assert twin.assembly.projections[0].experts is not None
    twin._change(twin._planner._sized(twin.plan.policies, 64, Tiling(TILE, 256, 2**22), False))
    torch.manual_seed(3)
    loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    return loss, twin.arena.gradients.clone()


# What is not fused


@pytest.mark.parametrize("part", ["experts", "norm", "experts apart"])
def test_what_is_not_understood_runs_as_written(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _adapted()
    layer = model.get_base_model().model.layers[0]
    if part == "experts":
        monkeypatch.setattr(type(layer.experts.act_fn), "forward", lambda _, x: x.tanh())
        reason = "not supported"
    elif part == "norm":
        usual = type(layer.router.norm).forward
        changed = type("Other", (type(layer.router.norm),), {"forward": lambda self, x: usual(self, x).sigmoid()})
        for each in model.get_base_model().model.layers:
            each.pre_feedforward_layernorm_2.__class__ = changed
        reason = "pre_feedforward_layernorm_2 .* is a norm with an unsupported formula"
    else:
        for each in model.get_base_model().model.layers:
            each.experts = _Apart(each.experts)
        reason = "norms of their own beside an MLP"
    mlps = [layer.mlp for layer in recognise(model).layers]
    assert [type(mlp) for mlp in mlps] == [Unfused] * 2
    assert re.search(reason, mlps[0].reason)
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter


def test_an_mlp_that_is_not_understood_runs_as_written_beside_fused_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its random numbers are the same again, in tiles and where it runs twice in the backward pass."""
    monkeypatch.setattr(type(_adapted().get_base_model().model.layers[0].mlp), "forward", _with_dropout)
    model = _adapted(target_parameters=EXPERTS)
    assert _shape(model).shared is None
    _, expected = reference(model.eval(), rows())
    twin, _, gradients = fused(model, rows())
    assert any(line.startswith("Not fused in 2 of 2 layers. The shared MLP: ") for line in map(str, twin.report))
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter
    (loss, gradients), (again, others) = (_in_tiles(level, target_parameters=EXPERTS) for level in ("none", "full"))
    assert torch.equal(loss, again)
    assert torch.equal(gradients, others)


def _with_dropout(mlp: Any, x: torch.Tensor) -> torch.Tensor:
    inner = torch.nn.functional.dropout(mlp.act_fn(mlp.gate_proj(x)).sin() * mlp.up_proj(x), 0.3, mlp.training)
    return mlp.down_proj(inner)


class _Apart(torch.nn.Module):
    """Experts whose weights lie somewhere inside."""

    def __init__(self, experts: torch.nn.Module) -> None:
        super().__init__()
        self.inside = experts

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.inside(*given)


@pytest.mark.parametrize("role", ["pre_feedforward_layernorm_2", "post_feedforward_layernorm_1"])
def test_a_norm_that_is_trained_beside_an_adapter_gets_its_gradient(role: str) -> None:
    model = _adapted()
    norms = [getattr(layer, role) for layer in model.get_base_model().model.layers]
    for norm in norms:
        norm.weight.requires_grad_()
    _, expected = reference(model, rows())
    twin, _, gradients = fused(model, rows())
    assert sum(role in name for name in gradients) == 2
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter
    assert twin.report[0].startswith("0 of 2")
    assert any("The experts: Their own weights are trained." in line for line in twin.report)


# What is planned


def test_last_products_that_run_again_are_counted() -> None:
    shape = recognise(families.make(NAME)).layers[0]
    assert isinstance(shape.mlp, SparseShape)
    assert shape.mlp.shared is not None
    width = shape.mlp.per_token * shape.mlp.width + shape.mlp.shared.width
    others = replace(shape, mlp=replace(shape.mlp, branch_norms=None))
    ours, theirs = (LayerCosts.of(each, 48, 100, 10.0, 1.0) for each in (shape, others))
    assert ours.backward_s - theirs.backward_s == 100 * 2 * 48 * width
    assert (ours.forward_s, ours.replay_s) == (theirs.forward_s, theirs.replay_s)


def test_planner_and_engine_count_the_same_of_a_tile_and_its_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COLUMN_ALIGNMENT, "cpu", fused_memory.COLUMN_ALIGNMENT)
    families.make(NAME).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    card, model, spec = read_model_card(tmp_path), _adapted(), RunSpec()
    spec.adapter.target_modules = ["q_proj", *OF_MLP]
    assembly, tiling = Assembly(model, recognise(model), compute()), Tiling(TILE, 256, 2**22)
    block = assembly._mlp(assembly.shape.layers[0], assembly.projections[0], assembly.workspace(TILE), TILE, True)
    of_token = sum(num_rows * width for num_rows, width in block._block(1))
    experts = sparse_mlp(card)
    assert experts == SparseMlp(2, 4, 2, 32, 96, has_shared_gate=False, has_branches=True)
    assert of_token == experts.block(48, 0, fused_memory.COLUMN_ALIGNMENT)
    passing = MemoryPlanner(assembly, NUM_TOKENS, None, 8.0)._passing._expert_bytes(NUM_TOKENS, tiling)
    assert passing == passing_bytes(NUM_TOKENS, TILE, 4, 2, 48, 4, has_norm=True)
    ours = fused_memory._expert_bytes(spec, card, fused_memory.COLUMN_ALIGNMENT, 4, NUM_TOKENS, "none")
    in_whole = passing_bytes(NUM_TOKENS, fused_memory.WHOLE.mlp_tokens, 4, 2, 48, 4, has_norm=True)
    assert ours == in_whole + NUM_TOKENS * of_token * 4
    # Gate and up that are computed again lie with those of the experts.
    kinds = [replace(kind, block=0, block_columns=0) for kind in mixers(card, False)]
    sizes = card, kinds, fused_memory.COLUMN_ALIGNMENT, 4, NUM_TOKENS
    assert len({fused_memory._block_bytes(*sizes, level) for level in ("none", "full")}) == 1


def test_the_workspace_has_room_for_gate_and_up_of_both_once() -> None:
    model = families.make(NAME)
    assembly = Assembly(model, recognise(model), compute())
    sizes = {}
    for keeps in (True, False):
        workspace = Workspace(CPU, torch.float32)
        block = assembly._mlp(assembly.shape.layers[0], assembly.projections[0], workspace, TILE, keeps)
        sizes[keeps] = workspace.num_bytes
    assert sizes[False] - sizes[True] == 4 * TILE * block.gate_up_width
