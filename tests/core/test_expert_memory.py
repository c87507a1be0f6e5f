"""What mixtures of experts take, counted from the shapes in a model's files."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.core.test_planner import CARD, CPU, GIB, gpu
from tunesmith_core import expert_memory, fused_memory, planner
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec

D, F, NUM_EXPERTS, PER_TOKEN, SHARED = 64, 24, 8, 3, 40
TOKENS = 1000


def sparse_card(stacked: bool, num_sparse: int = 2, shared: bool = False, model_type: str = "qwen3_moe") -> ModelCard:
    """A small model, the last layers of which have experts."""
    shapes: dict[str, tuple[int, ...]] = {}
    linear: dict[str, tuple[int, int]] = {}
    for layer in range(2):
        linear |= {f"model.layers.{layer}.self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
        mlp = f"model.layers.{layer}.mlp"
        if layer < 2 - num_sparse:
            linear |= {f"{mlp}.{name}_proj.weight": (96, D) for name in ("gate", "up")}
            linear[f"{mlp}.down_proj.weight"] = (D, 96)
        elif stacked:
            shapes[f"{mlp}.experts.gate_up_proj"] = (NUM_EXPERTS, 2 * F, D)
            shapes[f"{mlp}.experts.down_proj"] = (NUM_EXPERTS, D, F)
        else:
            for expert in range(NUM_EXPERTS):
                shapes |= {f"{mlp}.experts.{expert}.{name}_proj.weight": (F, D) for name in ("gate", "up")}
                shapes[f"{mlp}.experts.{expert}.down_proj.weight"] = (D, F)
        if shared:
            linear |= {f"{mlp}.shared_expert.{name}_proj.weight": (SHARED, D) for name in ("gate", "up")}
            linear |= {f"{mlp}.shared_expert.down_proj.weight": (D, SHARED), f"{mlp}.shared_expert_gate.weight": (1, D)}
    return replace(
        CARD,
        model_type=model_type,
        hidden_size=D,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        head_dim=16,
        intermediate_size=96,
        vocab_size=160,
        linear_shapes=linear,
        expert_shapes=shapes,
        shapes={**linear, **shapes},
        experts_per_token=PER_TOKEN,
    )


@pytest.mark.parametrize("stacked", [False, True])
def test_experts_are_read_from_either_way_of_storing_them(stacked: bool) -> None:
    experts = expert_memory.sparse_mlp(sparse_card(stacked, shared=True))
    assert experts == expert_memory.SparseMlp(2, NUM_EXPERTS, PER_TOKEN, F, SHARED, True)
    assert experts.kept == 2 * PER_TOKEN * F
    assert experts.block(D, 32, 64) == PER_TOKEN * (F + D + 64) + D + D + 64
    assert expert_memory.sparse_mlp(CARD) is None


def test_biases_of_stacked_experts_are_no_weights() -> None:
    """Those of gpt-oss have two sides, experts and outputs."""
    card = sparse_card(True)
    experts = "model.layers.0.mlp.experts"
    biases = {f"{experts}.gate_up_proj_bias": (NUM_EXPERTS, 2 * F), f"{experts}.down_proj_bias": (NUM_EXPERTS, D)}
    assert expert_memory.sparse_mlp(replace(card, shapes={**card.shapes, **biases})) == expert_memory.sparse_mlp(card)


def test_experts_are_told_by_the_names_of_their_weights() -> None:
    names = ("model.layers.3.mlp.experts.gate_up_proj", "layers.0.mlp.experts.7.up_proj.weight")
    assert all(expert_memory.is_of_experts(name) for name in names)
    others = ("model.layers.1.mamba.A_log", "layers.1.mlp.shared_experts.up_proj.weight", "model.layers.0.mlp.gate")
    assert not any(expert_memory.is_of_experts(name) for name in others)


def test_experts_kept_in_mxfp4_take_a_scale_for_32_numbers() -> None:
    card = sparse_card(True)
    assert fused_memory.stacked_bytes(card) == fused_memory.NF4_BYTES
    assert fused_memory.stacked_bytes(replace(card, packed_format="mxfp4")) == (32 / 2 + 1) / 32
    assert fused_memory.stacked_bytes(replace(card, packed_format="gptq")) == fused_memory.NF4_BYTES


@pytest.mark.parametrize(("changes", "expected"), [({}, 32), ({"rank": 20}, 64), ({"dora": True}, 0)])
def test_ranks_are_filled_up(changes: dict[str, int], expected: int) -> None:
    spec = RunSpec()
    for name, value in changes.items():
        setattr(spec.adapter, name, value)
    assert expert_memory.num_ranks(spec, sparse_card(True)) == expected
    assert expert_memory.num_ranks(spec, sparse_card(True, model_type="unknown")) == 0


@pytest.mark.parametrize("stacked", [False, True])
def test_experts_in_4_bits_take_a_quarter_and_room_for_a_layer(stacked: bool) -> None:
    whole, packed = RunSpec(), RunSpec()
    whole.hardware.activation_checkpointing = packed.hardware.activation_checkpointing = True
    packed.quantization.kind = "nf4"
    card = sparse_card(stacked)
    none = replace(card, shapes=card.linear_shapes)
    numbers = 3 * NUM_EXPERTS * F * D
    expected = 2 * numbers * (fused_memory.NF4_BYTES - 2) + numbers * 2
    assert expert_memory.stacked_numbers(card) == (2 * numbers, numbers)

    def taken(spec: RunSpec, card: ModelCard) -> int:
        return fused_memory.weight_bytes(spec, card, 2, False)

    beside = taken(whole, card) - taken(whole, none)
    assert taken(packed, card) - taken(packed, none) - beside == pytest.approx(expected, abs=2)
    plain = planner._plain_parts(packed, CPU, card, TOKENS)["weights"]
    # One more where an adapter is added to what was unpacked.
    more = planner._plain_parts(packed, CPU, none, TOKENS)["weights"] + numbers * 2
    assert plain - more == pytest.approx(expected, abs=2)


def test_codes_of_experts_may_lie_in_the_computers_memory() -> None:
    spec, card = RunSpec(), sparse_card(True)
    numbers = 3 * NUM_EXPERTS * F * D
    assert [expert_memory.code_bytes(card, number) for number in range(3)] == [0, numbers // 2, numbers]
    assert expert_memory.code_bytes(CARD, 3) == 0
    whole = fused_memory.weight_bytes(spec, card, 2, False)
    assert fused_memory.weight_bytes(spec, card, 2, False, 2) == whole, "experts in 16 bits stay"
    spec.quantization.kind = "nf4"
    packed = fused_memory.weight_bytes(spec, card, 2, False)
    assert packed - fused_memory.weight_bytes(spec, card, 2, False, 2) == numbers


def test_experts_leave_by_quarters_of_the_layers() -> None:
    assert expert_memory.host_steps(48) == [0, 12, 24, 36, 48]
    assert expert_memory.host_steps(2) == [0, 1, 2]
    assert expert_memory.host_steps(0) == [0]


def test_half_of_the_computers_memory_may_be_pinned() -> None:
    spec, card, of_layer = RunSpec(), sparse_card(True), 3 * NUM_EXPERTS * F * D // 2
    spec.quantization.kind = "nf4"
    assert expert_memory.steps_of(spec, gpu(8), card) == [0, 1, 2]
    assert expert_memory.steps_of(spec, replace(gpu(8), host_free_bytes=3 * of_layer), card) == [0, 1]
    assert expert_memory.steps_of(spec, gpu(8), CARD) == [0]
    assert expert_memory.steps_of(spec, CPU, card) == [0]
    assert expert_memory.steps_of(RunSpec(), gpu(8), card) == [0]


def thirty_billion(num_layers: int = 48) -> ModelCard:
    """Qwen3-30B-A3B by its shapes."""
    linear: dict[str, tuple[int, int]] = {}
    experts: dict[str, tuple[int, ...]] = {}
    for layer in range(num_layers):
        attention = f"model.layers.{layer}.self_attn"
        linear |= {f"{attention}.q_proj.weight": (4096, 2048), f"{attention}.o_proj.weight": (2048, 4096)}
        linear |= {f"{attention}.{name}_proj.weight": (512, 2048) for name in "kv"}
        experts[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = (128, 1536, 2048)
        experts[f"model.layers.{layer}.mlp.experts.down_proj"] = (128, 2048, 768)
    num_linear = sum(map(math.prod, linear.values()))
    embeddings = 2 * 151_936 * 2048
    return replace(
        sparse_card(True),
        hidden_size=2048,
        num_layers=num_layers,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        intermediate_size=6144,
        vocab_size=151_936,
        linear_shapes=linear,
        expert_shapes=experts,
        shapes={**linear, **experts},
        experts_per_token=8,
        num_parameters=num_linear + sum(map(math.prod, experts.values())) + embeddings,
        tied=False,
    )


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
def test_a_card_with_little_memory_trains_what_has_room_beside_the_experts(kernels: bool) -> None:
    spec, card = RunSpec(), thirty_billion()
    spec.quantization.kind, spec.data.context_length, spec.schedule.micro_batch_size = "nf4", 512, 1
    spec.adapter.target_modules, spec.hardware.kernels = ["q_proj", "o_proj"], kernels
    spec.hardware.activation_checkpointing = not kernels
    codes = expert_memory.code_bytes(card, 48)
    assert codes == pytest.approx(13.5 * GIB, rel=0.01)
    roomy, tight = (planner.plan(spec, gpu(free), card=card, longest_tokens=512) for free in (40, 12))
    assert (roomy.verdict, tight.verdict) == ("fits", "fits")
    assert tight.total_bytes <= tight.available_bytes < codes < roomy.total_bytes
    assert tight.fixes == ()
    assert roomy.least_bytes == tight.least_bytes
    # How much of the computer's memory a run takes is known before its model is read: here half of 24 GiB is less.
    assert planner.room_for_experts(spec, gpu(40), card) == 0
    assert planner.room_for_experts(spec, gpu(12), card) == 3 * codes // 4
    assert planner.room_for_experts(spec, replace(gpu(12), host_free_bytes=60 * GIB), card) == codes
    small = replace(gpu(12), host_free_bytes=2 * GIB)
    assert planner.plan(spec, small, card=card, longest_tokens=512).verdict == "exceeds"
    assert planner.room_for_experts(spec, small, card) == 0


def test_no_more_experts_leave_than_have_to() -> None:
    spec, card = RunSpec(), thirty_billion()
    spec.quantization.kind, spec.data.context_length, spec.schedule.micro_batch_size = "nf4", 512, 1
    spec.adapter.target_modules = ["q_proj", "o_proj"]
    of_step, weights = expert_memory.code_bytes(card, 12), []
    for free in (24, 20, 16, 14, 11):
        plan = planner.plan(spec, gpu(free), card=card, longest_tokens=512)
        assert plan.total_bytes <= fused_memory.USABLE_SHARE * plan.available_bytes
        weights.append(plan.parts["weights"])
    left = [round((weights[0] - each) / of_step) for each in weights]
    assert left[0] == 0 < left[-1]
    assert left == sorted(left)


def test_kept_numbers_are_those_of_each_kind_of_layer() -> None:
    """From "mlp" to "none" gate and up of every layer are kept, and no longer computed again for a tile."""
    taken = {}
    for num_sparse in (1, 2):
        card = sparse_card(True, num_sparse)
        levels = ("none", "mlp")
        none, mlp = (fused_memory.activation_bytes(RunSpec(), card, 2, TOKENS, level) for level in levels)
        taken[num_sparse] = none - mlp
    experts = 2 * PER_TOKEN * F
    assert taken[2] == 2 * TOKENS * (2 * experts - experts)
    assert taken[1] < taken[2] + 2 * TOKENS * (2 * 96 + 64)


def test_what_experts_take_grows_with_the_experts_of_a_token() -> None:
    cards = (replace(sparse_card(True), experts_per_token=number) for number in (2, 4))
    few, many = (fused_memory.activation_bytes(RunSpec(), card, 2, TOKENS, "full") for card in cards)
    ranks = 2 * 32
    of_each = 2 * (F + D + ranks + 2 * F) + 2 * expert_memory.CHOICE_BYTES
    assert many - few == 2 * TOKENS * of_each


def test_adapters_of_experts_lie_beside_the_weights() -> None:
    spec, plain = RunSpec(), RunSpec()
    plain.adapter.dora = True
    card = sparse_card(True)
    difference = fused_memory.weight_bytes(spec, card, 2, False)
    without = fused_memory.weight_bytes(spec, replace(card, model_type="unknown"), 2, False)
    assert difference - without == 2 * 2 * NUM_EXPERTS * 16 * (3 * F + 2 * D)


def test_an_mlp_that_the_layer_has_beside_its_experts_counts() -> None:
    card = sparse_card(True)
    shared = {f"model.layers.{layer}.shared_mlp.output_linear.weight": (D, SHARED) for layer in range(2)}
    experts = expert_memory.sparse_mlp(replace(card, linear_shapes={**card.linear_shapes, **shared}))
    assert experts == expert_memory.SparseMlp(2, NUM_EXPERTS, PER_TOKEN, F, SHARED, False)
