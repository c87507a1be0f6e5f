"""Layers, ranks and kinds of adapters: what may be written and what it means, what it takes, what can't go together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_planner import CARD, LAYERS, gpu, make
from tunesmith_core import fused_memory, planner
from tunesmith_core.adapter_kinds import KINDS, block_size, papers
from tunesmith_core.adapter_ranks import (
    adapts_experts,
    alpha_problem,
    alphas,
    is_in_layers,
    layer_numbers,
    layers_problem,
    matching,
    rank_problem,
    size_of,
)
from tunesmith_core.declared import FieldProblem, read_section
from tunesmith_core.errors import UserError
from tunesmith_core.memory_steps import steps_left
from tunesmith_core.spec import RunSpec, has_effect, told_settings
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.spec_sections import AdapterSpec
from tunesmith_core.trained_parts import OF_LORA, matters

QUERY, UP = 4096 + 4096, 14336 + 4096


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (rank_problem, ["q_proj = 8", "a.*.b=4096"], ["q_proj", "= 8", "q_proj = 0", "q = 4097", "q = x", "q = ٣"]),
        (alpha_problem, ["q_proj = 8", "q=0.5"], ["q_proj", "= 1", "q = 0", "q = -1", "q = 1e400", "q = nan"]),
        (layers_problem, ["3", "0-7", " 4 - 4 "], ["", "-", "x", "7-3", "3-", "-3", "0-99999"]),
    ],
)
def test_entries(rule: Any, right: list[str], wrong: list[str]) -> None:
    assert [rule(each) for each in right] == [None] * len(right)
    assert all("must be written as" in str(rule(each)) for each in wrong)


def test_a_wrong_entry_is_named_by_its_setting() -> None:
    values = RunSpec().to_dict()
    values["model"]["path"], values["data"]["sources"][0]["path"] = "/m", "/d"
    values["adapter"]["rank_pattern"] = ["q_proj: 8"]
    with pytest.raises(UserError, match=r"adapter\.rank_pattern must be written as: module = rank"):
        RunSpec.from_dict(values)


@pytest.mark.parametrize(
    ("pattern", "module", "fits"),
    [
        ("q_proj", "model.layers.0.self_attn.q_proj", True),
        ("proj", "model.layers.0.self_attn.q_proj", False),
        ("layers.0.*.q_proj", "model.layers.0.self_attn.q_proj", True),
        ("layers.0.*", "model.layers.10.self_attn.q_proj", False),
        ("self.attn.q_proj", "model.layers.0.self_attn.q_proj", False),
    ],
)
def test_patterns_are_ends_of_names(pattern: str, module: str, fits: bool) -> None:
    assert matching([pattern], module) == [pattern] * fits


def test_numbers_of_layers() -> None:
    adapter = with_changes(RunSpec(), {"adapter.layers": ["4", "0 - 2"]}).adapter
    assert layer_numbers(adapter) == [0, 1, 2, 4]
    assert is_in_layers([4], "model.layers.4.q")
    assert not is_in_layers([4], "model.layers.14.q")
    assert not is_in_layers([4], "lm_head")
    assert layer_numbers(RunSpec().adapter) is None
    assert alphas(["q_proj = 4.5"]) == {"q_proj": 4.5}


def test_layers_of_a_file_may_be_numbers() -> None:
    problems: list[FieldProblem] = []
    adapter = read_section(AdapterSpec, {"layers": [3, "0-1"]}, "adapter", problems)
    assert problems == []
    assert adapter.layers == ["3", "0-1"]
    assert layer_numbers(adapter) == [0, 1, 3]


def test_size_of_an_adapter_by_layers_ranks_and_start() -> None:
    def size(**changes: Any) -> int:
        some = {"adapter.rank": 4, "adapter.target_modules": ["q_proj", "up_proj"]}
        return planner.num_adapter_parameters(make({**some, **changes}), CARD)

    assert size() == LAYERS * 4 * (QUERY + UP)
    assert size(**{"adapter.layers": ["0-1"]}) == 2 * 4 * (QUERY + UP)
    assert size(**{"adapter.rank_pattern": ["q_proj = 16"]}) == LAYERS * (16 * QUERY + 4 * UP)
    assert size(**{"adapter.initial_values": "pissa"}) == 2 * size()
    assert size(**{"adapter.initial_values": "eva"}) == size()
    adapter = with_changes(RunSpec(), {"adapter.initial_values": "olora"}).adapter
    assert size_of(adapter, "x", {"x": 3}) == 6


def test_a_half_that_stays_takes_memory() -> None:
    def taken(**changes: Any) -> int:
        return planner.plan(make({"adapter.rank": 8, **changes}), gpu(80), card=CARD).parts["adapter"]

    number = planner.num_adapter_parameters(make({"adapter.rank": 16}), CARD)
    start = {"adapter.initial_values": "olora", "hardware.kernels": True}
    assert taken(**start) == number * (16 + 1)
    assert taken(**{**start, "optimizer.weight_decay": 0.1}) == number * (16 + 5)
    assert taken(**{**start, "hardware.kernels": False}) == number * (18 + 1)


def test_fused_memory_follows_layers_and_ranks() -> None:
    def taken(**changes: Any) -> int:
        return fused_memory.weight_bytes(make({"quantization.kind": "nf4", **changes}), CARD, 2, False)

    assert taken(**{"adapter.layers": ["0"]}) < taken() < taken(**{"adapter.rank_pattern": ["up_proj = 512"]})


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_are_planned_plain_and_have_settings_of_their_own(kind: str) -> None:
    spec = make({"adapter.kind": kind, "adapter.rank": 8})
    parts = planner.plan(spec, gpu(80), card=CARD).parts
    assert parts["adapter"] == planner.num_adapter_parameters(spec, CARD) * (4 + 4 + 2 + 8)
    plain = planner.plan(make({"adapter.kind": "lora", "hardware.kernels": False}), gpu(80), card=CARD).parts
    more = parts["activations"] - plain["activations"]
    assert (more > CARD.num_linear_parameters) == (KINDS[kind].kept_bytes > 0)
    assert not any(has_effect(spec, path) for path in OF_LORA - {"quantization.kind"})
    assert has_effect(spec, "quantization.kind") == KINDS[kind].takes_quantized
    assert has_effect(with_changes(spec, {"quantization.kind": "nf4"}), "quantization.kind")
    assert has_effect(spec, "adapter.rank") == ("rank" in KINDS[kind].settings)
    assert has_effect(spec, "adapter.target_modules")
    assert not has_effect(spec, "adapter.dora")
    assert not has_effect(spec, "adapter.parts")
    assert has_effect(spec, "optimizer.weight_decay")
    names = {step.name for step in steps_left(spec)}
    assert ("rank" in names) == ("rank" in KINDS[kind].settings)
    assert ("four-bit" in names) == KINDS[kind].takes_quantized
    assert papers(spec) == [str(KINDS[kind])]
    assert "arXiv:" in KINDS[kind].paper


def test_blocks_of_oft_divide_the_inputs() -> None:
    assert [block_size(64, wanted) for wanted in (16, 6, 5, 24, 25, 64, 100)] == [16, 4, 4, 16, 32, 64, 64]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"adapter.kind": "vera", "objective.kind": "reward"}, "adapter.kind must be LoRA for the objective"),
        ({"adapter.kind": "loha", "objective.kind": "grpo"}, "adapter.kind must be LoRA for the objective"),
        ({"adapter.kind": "loha", "quantization.kind": "nf4"}, "quantization.kind must be none for LoHa"),
        ({"adapter.kind": "oft", "adapter.rank": 1}, "adapter.rank must be at least 2 for OFT"),
        ({"adapter.kind": "ia3", "optimizer.name": "muon"}, "optimizer.name Muon is for full fine-tuning"),
        (
            {"adapter.initial_values": "orthogonal", "adapter.rank_pattern": ["q = 3"]},
            "adapter.rank_pattern must be even",
        ),
        ({"adapter.initial_values": "pissa", "adapter.dropout": 0.1}, "adapter.dropout must be 0 for PiSSA"),
        ({"adapter.initial_values": "eva", "objective.kind": "grpo"}, "adapter.initial_values can't be EVA"),
        ({"adapter.kind": "ia3", "adapter.start_from": "/a"}, "adapter.start_from can't be continued"),
        ({"adapter.initial_values": "pissa", "adapter.start_from": "/a"}, "adapter.initial_values has no effect where"),
        (
            {"adapter.kind": "vera", "objective.kind": "dpo", "objective.reference_adapter": "/a"},
            "objective.reference_adapter is for LoRA only",
        ),
    ],
)
def test_what_does_not_go_together(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        RunSpec.from_dict(make(changes).to_dict())


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter.kind": "vera", "quantization.kind": "int8", "adapter.dropout": 0.1},
        {"adapter.initial_values": "eva", "adapter.dropout": 0.1},
        {"adapter.initial_values": "pissa", "quantization.kind": "nf4", "adapter.dora": True},
    ],
)
def test_what_goes_together(changes: dict[str, Any]) -> None:
    paths = {"model.path": "/m", "data.sources[0].path": "/d"}
    RunSpec.from_dict(make({**paths, **changes}).to_dict())


def test_papers_of_what_is_in_use() -> None:
    changes = {
        "adapter.dora": True,
        "adapter.rslora": True,
        "adapter.initial_values": "olora",
        "optimizer.lora_plus_ratio": 4.0,
        "optimizer.neftune_alpha": 5.0,
    }
    spec = make(changes)
    names = [each.partition(",")[0] for each in papers(spec)]
    assert names == ["DoRA", "rsLoRA", "OLoRA", "LoRA+", "NEFTune"]
    assert papers(make({"objective.kind": "dpo", "optimizer.neftune_alpha": 5.0})) == []
    assert papers(make({"adapter.kind": "full"})) == []
    assert not has_effect(make({"objective.kind": "kto"}), "optimizer.neftune_alpha")


def test_only_plain_lora_adapts_experts() -> None:
    def can(**changes: Any) -> bool:
        return adapts_experts(make(changes).adapter)

    assert can()
    assert can(**{"adapter.initial_values": "gaussian"})
    for changes in ({"adapter.dora": True}, {"adapter.layers": ["1"]}, {"adapter.kind": "miss"}):
        assert not can(**changes)
    assert not can(**{"adapter.initial_values": "eva"})


def test_empty_lists_are_not_told() -> None:
    told = {setting.path for setting in told_settings(RunSpec())}
    assert "adapter.layers" not in told
    some = with_changes(RunSpec(), {"adapter.layers": ["1"]})
    assert "adapter.layers" in {setting.path for setting in told_settings(some)}
    assert matters("lora", "adapter.layers")


def test_what_has_to_be_taken_back_is_shown() -> None:
    begun = make({"adapter.start_from": "/a", "adapter.initial_values": "olora"})
    assert has_effect(begun, "adapter.initial_values")
    assert not has_effect(with_changes(begun, {"adapter.initial_values": "default"}), "adapter.initial_values")
    of_base = make({"adapter.kind": "ia3", "objective.kind": "dpo"})
    path = "objective.reference_adapter"
    assert not has_effect(of_base, path)
    assert has_effect(with_changes(of_base, {path: "/a"}), path)
    assert has_effect(make({"objective.kind": "dpo"}), path)


def test_biases_of_lora_alone_change_the_base() -> None:
    biases = {"adapter.bias": "all"}
    assert make({"adapter.kind": "ia3", **biases}).adapter.keeps_base
    assert not make(biases).adapter.keeps_base
