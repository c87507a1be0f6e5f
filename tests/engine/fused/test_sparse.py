"""Mixtures of experts: a block against its own module and autograd, what is refused, what no setting changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from tests.engine.fused import families
from tests.engine.fused.test_model import adapted, compute, fused, num_trained, reference, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.projection import WeightScratch
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.recognise.sparse import read_sparse
from tunesmith_engine.fused.routing import Router
from tunesmith_engine.fused.sparse_block import SparseBlock
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import SparseShape, Unfused

CPU = torch.device("cpu")
NUM_TOKENS, TILE = 21, 8
EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
SIZES = {"hidden_size": 24, "intermediate_size": 20, "num_local_experts": 5, "num_experts_per_tok": 3}


class _Whole(nn.Module):
    """A block as a model, for PEFT."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.mlp(x[None])
        return (result[0] if isinstance(result, tuple) else result).view_as(x)


def _block(kind: str, with_adapter: bool, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Return a block with random weights whose experts may have an adapter."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, swiglu_limit=0.8, **SIZES)
    config._experts_implementation = "eager"
    block = {"gpt_oss": GptOssMLP, "mixtral": MixtralSparseMoeBlock}[kind](config)
    for parameter in block.parameters():
        parameter.data.normal_(std=0.3)
    whole = _Whole(block.to(dtype)).requires_grad_(False)
    if with_adapter:
        whole = get_peft_model(whole, LoraConfig(r=3, lora_alpha=5, target_parameters=EXPERTS)).base_model.model
        for parameter in whole.parameters():
            if parameter.requires_grad:
                parameter.data.normal_(std=0.3)
    return whole.eval()


def _ours(whole: Any, x: torch.Tensor, gradient: torch.Tensor, keeps: bool) -> list[torch.Tensor]:
    """Return a block's output, its input's gradient and those of the adapters."""
    shape = read_sparse(whole.mlp)
    assert isinstance(shape, SparseShape)
    trained = [parameter for parameter in whole.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    workspace = Workspace(CPU, x.dtype)
    experts = Experts(shape, WeightScratch(x.device, x.dtype), x.dtype)
    block = SparseBlock(shape, experts, Router(shape, None), None, workspace, TILE, keeps)
    gate_up = torch.empty(NUM_TOKENS, block.gate_up_width, dtype=x.dtype) if keeps else None
    out, room = torch.empty_like(x), gradient.clone()
    with torch.no_grad():
        block.forward(x, out, gate_up)
        # The gradient is overwritten, as in a layer.
        block.backward(room, x, room, gate_up)
    return [out, room, *(parameter.grad for parameter in trained if parameter.grad is not None)]


def _usual(whole: Any, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    trained = [parameter for parameter in whole.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = None
    leaf = x.clone().requires_grad_()
    out = whole(leaf)
    out.backward(gradient)
    assert leaf.grad is not None
    return [out.detach(), leaf.grad, *(parameter.grad for parameter in trained if parameter.grad is not None)]


@pytest.mark.parametrize("with_adapter", [False, True])
@pytest.mark.parametrize("kind", ["gpt_oss", "mixtral"])
def test_a_block_gives_what_its_module_gives(kind: str, with_adapter: bool) -> None:
    whole = _block(kind, with_adapter)
    make = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(NUM_TOKENS, SIZES["hidden_size"], generator=make).double() for _ in range(2))
    exact = _usual(whole, x, gradient)
    single = _usual(copy.deepcopy(whole).float(), x.float(), gradient.float())
    for keeps in (True, False):
        ours = _ours(whole, x, gradient, keeps)
        assert len(ours) == len(exact) == 2 + 4 * with_adapter
        for number, (mine, theirs) in enumerate(zip(ours, exact, strict=True)):
            assert (mine - theirs).norm() < 1e-6 * theirs.norm(), number
    ours = _ours(whole.float(), x.float(), gradient.float(), True)
    for mine, theirs, oracle in zip(ours, single, exact, strict=True):

        def check(value: torch.Tensor, theirs: torch.Tensor = theirs, oracle: torch.Tensor = oracle) -> None:
            judge(kind, value, theirs, oracle, torch.float32, 4 * REDUCTION)

        check(mine)
        mutants_fail(check, mine)


def test_what_is_read_of_a_clamped_gate() -> None:
    shape = read_sparse(_block("gpt_oss", True).mlp)
    assert isinstance(shape, SparseShape)
    assert (shape.gate.activation, shape.gate.in_turn, shape.gate.limit) == ("clamped", True, 0.8)
    assert (shape.transposed, shape.returns_pair, shape.per_token) == (True, True, 3)


def test_experts_of_another_form_run_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    block = _block("mixtral", False).mlp
    monkeypatch.setattr(type(block.experts), "_apply_gate", lambda self, x: self.act_fn(x.chunk(2, -1)[0]))
    monkeypatch.setattr(block.experts.config, "_experts_implementation", "grouped_mm")
    shape = read_sparse(block.float())
    assert isinstance(shape, Unfused)
    assert "unsupported form" in shape.reason


def test_a_block_that_does_more_with_its_experts_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    block = _block("mixtral", False).mlp
    usual = type(block).forward
    monkeypatch.setattr(type(block), "forward", lambda self, hidden_states: usual(self, hidden_states).sigmoid())
    shape = read_sparse(block)
    assert isinstance(shape, Unfused)
    assert "mlp (MixtralSparseMoeBlock)" in shape.reason


@pytest.mark.parametrize(
    "policy", ["smart", "offload", *(pytest.param(policy, marks=pytest.mark.long) for policy in ("mlp", "full"))]
)
@pytest.mark.parametrize(
    "name", ["qwen2-moe", "gemma4-a4b", *(pytest.param(n, marks=pytest.mark.long) for n in ("mixtral", "hy3"))]
)
def test_no_policy_changes_a_bit(name: str, policy: str) -> None:
    _, kept_loss, kept = fused(adapted(name, target_parameters=EXPERTS), rows(), "none")
    _, loss, gradients = fused(adapted(name, target_parameters=EXPERTS), rows(), policy)
    assert torch.equal(loss, kept_loss)
    assert all(torch.equal(gradients[name], kept[name]) for name in kept)
    assert any("experts" in name for name in kept)


@pytest.mark.parametrize("lora", [{}, {"use_dora": True}, {"lora_dropout": 0.2}], ids=str)
def test_other_adapters_beside_experts(lora: dict[str, Any]) -> None:
    """DoRA and dropout are for the shared MLP and attention; PEFT has none for stacked weights."""
    targets = ["q_proj", "o_proj", "gate_proj", "down_proj", "shared_expert_gate"]
    model = adapted("qwen2-moe", target_modules=targets, **lora)
    if "lora_dropout" in lora:
        twin, loss, gradients = fused(model, rows(), "full")
        assert all(gradient.isfinite().all() for gradient in (loss, *gradients.values()))
        assert twin.report[0] == "2 of 2 layers run on Tunesmith's own path."
        return
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter
    assert twin.report[0].startswith("0" if lora else "2")


def test_tiles_change_only_the_order_of_sums() -> None:
    model = adapted("qwen2-moe", target_parameters=EXPERTS)
    _, loss, gradients = fused(model, rows())
    twin = FusedModel.attach(adapted("qwen2-moe", target_parameters=EXPERTS), compute(), 64, "full")
    tiling = type(twin.plan.tiling)(mlp_tokens=8, head_rows=256, attention_numbers=2**22)
    twin._change(twin._planner._sized(twin.plan.policies, 64, tiling, False))
    other = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    assert torch.isclose(loss, other, rtol=1e-6)
    for name, parameter in twin.arena.parameters.items():
        assert (parameter.grad - gradients[name]).norm() <= 1e-5 * gradients[name].norm(), name


def test_a_router_that_draws_draws_the_same_again() -> None:
    """PhiMoE's router chooses at random in training; what is computed again must choose alike."""
    results = []
    for policy in ("none", "full"):
        model = adapted("phimoe", target_modules=["q_proj", "o_proj"], target_parameters=EXPERTS).train()
        twin = FusedModel.attach(model, compute(), 64, policy)
        torch.manual_seed(3)
        loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
        results.append((loss, {name: part.grad.clone() for name, part in twin.arena.parameters.items()}))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(gradient, results[1][1][name]) for name, gradient in results[0][1].items())


@pytest.mark.parametrize(("name", "overrides", "expected"), [
    ("qwen2-moe", {}, True),
    ("gpt-oss", {}, True),
    ("phimoe", {}, False),  # it draws
    ("mixtral", {"output_router_logits": True}, False),  # it counts
])  # fmt: skip
def test_which_mixtures_a_graph_can_hold(name: str, overrides: dict[str, Any], expected: bool) -> None:
    model = families.make(name, **overrides)
    targets = ["q_proj", "shared_expert_gate"] if name == "qwen2-moe" else ["q_proj"]
    model = get_peft_model(model, LoraConfig(r=2, target_modules=targets, target_parameters=EXPERTS)).train()
    state = torch.get_rng_state()
    assembly = Assembly(model, recognise(model), compute())
    assert assembly.capturable == expected
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state), "the run draws what it would have drawn"


def test_stored_models_choose_among_ways_that_agree() -> None:
    """The fused path is held against transformers' grouped products, too."""
    config = AutoConfig.for_model(**{**families.SIZES, **families.SPARSE["mixtral"]})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    assert isinstance(read_sparse(model.model.layers[0].mlp), SparseShape)
