"""The memory plan: its parts, what each setting does to them, verdicts, fixes, steps and time."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_model_cards import write_model
from tunesmith_core import fused_memory, planner
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.objectives import PREFERENCES
from tunesmith_core.planner import Hardware, plan
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.spec_sections import SourceSpec

GIB = 1024**3
HIDDEN, WIDE, LAYERS, VOCAB = 4096, 14336, 32, 128_256
LAYER = {
    "q_proj": (4096, 4096),
    "k_proj": (1024, 4096),
    "v_proj": (1024, 4096),
    "o_proj": (4096, 4096),
    "gate_proj": (14336, 4096),
    "up_proj": (14336, 4096),
    "down_proj": (4096, 14336),
}


def eight_billion() -> ModelCard:
    """A model of the shape of Llama 3 8B."""
    shapes = {f"layers.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in LAYER.items()}
    return ModelCard(
        path=Path("m"),
        name="m",
        model_type="llama",
        num_parameters=8_030_261_248,
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        intermediate_size=WIDE,
        vocab_size=VOCAB,
        tied=False,
        dtype="bfloat16",
        has_chat_template=True,
        licence="",
        size_bytes=16 * GIB,
        linear_shapes=shapes,
    )


CARD = eight_billion()


def gpu(free_gib: float) -> Hardware:
    return Hardware("cuda", "GPU", round(free_gib * GIB), round(free_gib * GIB), 32 * GIB, 24 * GIB, 0, (8, 6))


CPU = Hardware("cpu", "CPU", 64 * GIB, 60 * GIB, 64 * GIB, 60 * GIB)


def make(changes: dict[str, Any] | None = None) -> RunSpec:
    """A spec that trains with plain PyTorch."""
    return with_changes(RunSpec(), {"hardware.kernels": False, **(changes or {})})


def fused(changes: dict[str, Any] | None = None) -> RunSpec:
    """A spec that trains by the fused model: an 8B QLoRA of 4 x 2048 tokens with 8-bit states."""
    basics = {
        "quantization.kind": "nf4",
        "optimizer.name": "adamw_8bit",
        "schedule.micro_batch_size": 4,
        "hardware.kernels": True,
    }
    return make({**basics, **(changes or {})})


def part(name: str, changes: dict[str, Any] | None = None, hardware: Hardware | None = None) -> int:
    return plan(make(changes), hardware or gpu(24), card=CARD).parts[name]


def test_weights_follow_the_number_format_and_the_method() -> None:
    assert part("weights") == CARD.num_parameters * 2
    assert part("weights", {"model.dtype": "float32"}) == CARD.num_parameters * 4
    assert part("weights", hardware=CPU) == CARD.num_parameters * 4
    # 3.6 GB of 4-bit layers, 2.1 GB of embedding and head, 0.12 GB for one matrix in 16 bits.
    assert part("weights", {"quantization.kind": "nf4"}) == pytest.approx(5.82e9, rel=0.01)


def test_the_adapter_counts_weights_gradients_and_optimizer() -> None:
    num = planner.num_adapter_parameters(make(), CARD)
    assert num == 41_943_040  # rank 16 on all linear layers of an 8B Llama
    assert part("adapter") == num * (4 + 4 + 8 + 2)
    assert part("adapter", {"optimizer.name": "adamw_8bit"}) == num * (4 + 4 + 2 + 2)
    assert part("adapter", {"model.dtype": "float32"}) == num * (4 + 4 + 8)


def test_an_adapter_that_the_names_of_tensors_do_not_tell_is_not_called_exact() -> None:
    assert plan(make(), gpu(24), card=CARD).adapter_is_exact
    assert not plan(make(), gpu(24), card=replace(CARD, model_type="rwkv")).adapter_is_exact


def test_named_target_modules_count_alone() -> None:
    spec = make({"adapter.target_modules": ["q_proj", "v_proj"]})
    assert planner.num_adapter_parameters(spec, CARD) == 16 * LAYERS * (4096 + 4096 + 1024 + 4096)


def test_checkpointing_keeps_little_and_the_cpu_gives_little_back() -> None:
    checkpointing = {"hardware.activation_checkpointing": True}
    assert part("activations", checkpointing) < part("activations") / 8
    wide = {"model.dtype": "float32"}
    assert part("activations", hardware=CPU) > 1.3 * part("activations", wide)
    assert part("logits", hardware=CPU) < part("logits", wide)
    assert part("activations", checkpointing, CPU) < part("activations", hardware=CPU) / 3


def test_activations_and_logits_follow_the_tokens_of_a_batch() -> None:
    for name in ("activations", "logits"):
        assert part(name, {"data.context_length": 1024}) * 2 == part(name)
        assert part(name, {"schedule.micro_batch_size": 1}) * 2 == part(name)
    short = plan(make(), gpu(24), card=CARD, longest_tokens=512)
    assert short.parts["logits"] * 4 == part("logits")
    assert (short.certainty, plan(make(), gpu(24), card=CARD).certainty) == ("medium", "low")


def test_activations_are_counted_layer_by_layer() -> None:
    norms = 2 * 4 * HIDDEN
    # 16 bits: three casts of the input, then query, key, value and output, and the cast of the output.
    attention = 2 * (3 * HIDDEN + 4 * HIDDEN + HIDDEN)
    mlp = 2 * (2 * HIDDEN + 4 * WIDE)
    layer = norms + attention + mlp + 2 * 7 * 16
    assert planner.activation_bytes_per_token(make(), CARD, 2) == LAYERS * layer
    checkpointing = make({"hardware.activation_checkpointing": True})
    assert planner.activation_bytes_per_token(checkpointing, CARD, 2) == LAYERS * 2 * HIDDEN + layer
    # 32 bits: the adapters share their input.
    wide = norms + 4 * (HIDDEN + 4 * HIDDEN) + 4 * (HIDDEN + 4 * WIDE) + 4 * 7 * 16
    assert planner.activation_bytes_per_token(make(), CARD, 4) == LAYERS * wide


def test_what_autograd_keeps_beyond_the_count() -> None:
    tokens, counted = 4 * 2048, planner.activation_bytes_per_token(make(), CARD, 4) * 4 * 2048
    rows = {"schedule.micro_batch_size": 4}
    assert part("activations", {**rows, "model.dtype": "float32"}) == round(counted * 1.65)
    assert part("activations", rows, CPU) == round(counted * 2.2)
    narrow = planner.activation_bytes_per_token(make(), CARD, 2) * tokens
    assert part("activations", {**rows, "adapter.dora": True}) == round(narrow * 1.9)
    assert part("logits", rows) == tokens * VOCAB * (2 + 12)
    assert part("logits", {**rows, "model.dtype": "float32"}) == tokens * VOCAB * (4 + 12)
    assert part("logits", rows, CPU) == tokens * VOCAB * 12
    assert part("logits", {**rows, "model.dtype": "bfloat16"}, CPU) == tokens * VOCAB * 14
    assert (part("runtime"), part("runtime", hardware=CPU)) == (round(0.6 * GIB), round(0.6 * GIB))


def test_verdicts_go_by_the_share_of_free_memory() -> None:
    total = plan(make(), gpu(1), card=CARD).total_bytes
    for share, verdict in ((0.74, "fits"), (0.76, "tight"), (0.99, "tight"), (1.01, "exceeds")):
        planned = plan(make(), gpu(total / share / GIB), card=CARD, longest_tokens=make().data.context_length)
        assert planned.verdict == verdict
        assert planned.ratio == pytest.approx(share, rel=1e-3)
        assert bool(planned.fixes) == (verdict != "fits")
    assert sum(planned.parts.values()) == planned.total_bytes


def free(num_bytes: int) -> Hardware:
    return dataclasses.replace(gpu(1), free_bytes=num_bytes)


def test_verdicts_change_right_behind_their_limits() -> None:
    specs = (make({"data.context_length": length}) for length in range(512, 1024))
    spec = next(spec for spec in specs if plan(spec, gpu(1), card=CARD).least_bytes % 3 == 0)
    least = plan(spec, gpu(1), card=CARD).least_bytes

    def planned(num_bytes: int) -> planner.Plan:
        return plan(spec, free(num_bytes), card=CARD, longest_tokens=spec.data.context_length)

    assert [planned(least * 4 // 3 - less).verdict for less in (0, 1)] == ["fits", "tight"]
    assert [bool(planned(least * 4 // 3 - less).fixes) for less in (0, 1)] == [False, True]
    assert [planned(least - less).verdict for less in (0, 1)] == ["tight", "exceeds"]
    assert planned(0).ratio == planned(0).total_bytes
    # One token is the shortest row that there may be.
    shortest = plan(spec, gpu(1), card=CARD, longest_tokens=1).least_bytes
    verdicts = [plan(spec, free(shortest - less), card=CARD).verdict for less in (0, 1)]
    assert verdicts == ["unmeasured", "exceeds"]


def test_what_only_rows_of_the_whole_context_exceed_is_unmeasured() -> None:
    room = gpu(0.9 * plan(make(), gpu(1), card=CARD).total_bytes / GIB)
    assert plan(make(), room, card=CARD).verdict == "unmeasured"
    assert plan(make(), room, card=CARD, longest_tokens=16).verdict == "fits"


def test_no_micro_batch_has_more_rows_than_there_are() -> None:
    many = make({"schedule.micro_batch_size": 4096})
    planned = plan(many, gpu(24), card=CARD, num_rows=23)
    assert planned == plan(make({"schedule.micro_batch_size": 23}), gpu(24), card=CARD, num_rows=23)
    assert planned.parts["logits"] < plan(many, gpu(24), card=CARD).parts["logits"]


@pytest.mark.parametrize("kind", sorted(PREFERENCES))
@pytest.mark.parametrize("kernels", [False, True])
def test_a_pair_takes_the_memory_of_two_rows(kernels: bool, kind: str) -> None:
    """The answers of a pair pass together; the reference's pass before, without a backward pass, keeps nothing."""
    make_spec = fused if kernels else make
    pairs = make_spec({"schedule.micro_batch_size": 3, "objective.kind": kind})
    rows = make_spec({"schedule.micro_batch_size": 6})
    planned, as_rows = (plan(spec, gpu(80), card=CARD, longest_tokens=500) for spec in (pairs, rows))
    assert planned.parts == as_rows.parts
    # A pair can't be divided.
    two = plan(make_spec({"schedule.micro_batch_size": 1}), gpu(80), card=CARD, longest_tokens=1000)
    assert planned.least_bytes == (two if kernels else as_rows).least_bytes
    # A step of pairs has as many rows as any other.
    assert plan(pairs, gpu(80), card=CARD, num_rows=3000).total_steps == plan(
        make_spec({"schedule.micro_batch_size": 3}), gpu(80), card=CARD, num_rows=3000
    ).total_steps


def test_no_free_memory_exceeds() -> None:
    assert plan(make(), gpu(0), card=CARD).verdict == "exceeds"


def test_without_a_number_of_steps_nothing_is_said_of_the_warm_up() -> None:
    assert planner.warmup_note(make({"schedule.warmup_steps": 5}), None) is None


def test_fixes_come_in_the_order_of_least_harm_and_say_what_they_save() -> None:
    spec = make()
    planned = plan(spec, gpu(8), card=CARD)
    assert [next(iter(fix.changes)) for fix in planned.fixes] == [
        "schedule.micro_batch_size",
        "hardware.activation_checkpointing",
        "data.context_length",
        "quantization.kind",
        "adapter.rank",
    ]
    for fix in planned.fixes:
        changed = plan(with_changes(spec, fix.changes), gpu(8), card=CARD)
        assert planned.total_bytes - changed.total_bytes == fix.saved_bytes > 0
        assert not with_changes(spec, fix.changes).problems() or not spec.model.path
    assert planned.fixes[0].changes == {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 8}


def test_what_is_done_already_is_no_fix() -> None:
    smallest = {
        "data.context_length": 256,
        "schedule.micro_batch_size": 1,
        "hardware.activation_checkpointing": True,
        "quantization.kind": "nf4",
        "adapter.rank": 4,
    }
    assert plan(make(smallest), gpu(1), card=CARD).fixes == ()


def test_a_4_bit_base_is_suggested_where_there_is_a_gpu() -> None:
    cpu = Hardware("cpu", "x86", GIB, GIB, GIB, GIB)
    assert any("4-bit" in fix.label for fix in plan(make(), gpu(1), card=CARD).fixes)
    assert plan(make(), cpu, card=CARD).fixes
    assert not any("4-bit" in fix.label for fix in plan(make(), cpu, card=CARD).fixes)


def test_a_fix_that_saves_nothing_is_left_out() -> None:
    bare = dataclasses.replace(CARD, linear_shapes={})
    four_bits = make({"quantization.kind": "nf4"})
    assert plan(four_bits, gpu(24), card=bare).parts["weights"] == CARD.num_parameters * 2
    labels = [fix.label for fix in plan(make(), gpu(1), card=bare).fixes]
    assert not any("4-bit" in label for label in labels)


def test_steps_and_time_are_told_when_rows_and_speed_are_known() -> None:
    assert plan(make(), gpu(24), card=CARD).total_steps is None
    assert plan(make({"schedule.max_steps": 7}), gpu(24), card=CARD).total_steps == 7
    # 1240 rows, 62 held out, 148 steps an epoch of 8 rows a step.
    known = plan(make(), gpu(24), card=CARD, num_rows=1240, longest_tokens=1000, step_s=1.0)
    assert known.total_steps == 3 * 148
    assert known.seconds == (round(444 * 0.85), round(444 * 1.25))
    assert plan(make(), gpu(24), card=CARD, num_rows=1240).seconds is None
    slow = plan(make(), gpu(24), card=CARD, num_rows=1240, longest_tokens=1000, step_s=2.5)
    assert slow.seconds == (round(444 * 2.5 * 0.85), round(444 * 2.5 * 1.25))
    whole = plan(make(), gpu(24), card=CARD, num_rows=1240, longest_tokens=1000, step_s=1.0, other_s=100.0)
    assert whole.seconds == (round(544 * 0.85), round(544 * 1.25))
    own_file = plan(make({"evaluation.path": "e"}), gpu(24), card=CARD, num_rows=1241)
    assert own_file.total_steps == 3 * 156


def test_steps_count_the_share_of_files_that_are_mixed_in() -> None:
    one_by_one = {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 1, "schedule.epochs": 1.0}
    spec = make({**one_by_one, "evaluation.percent": 0.0})
    spec.data.sources = [SourceSpec(path="a"), SourceSpec(path="b", replay=10.0)]
    assert plan(spec, gpu(24), card=CARD, num_rows=1090, file_rows=[90, 1000]).total_steps == 100
    assert plan(spec, gpu(24), card=CARD, num_rows=1090).total_steps == 1090, "how many are in which is not known"
    spec.evaluation.percent = 50.0
    assert plan(spec, gpu(24), card=CARD, num_rows=1090, file_rows=[90, 1000]).total_steps == 50


def test_one_row_at_least_is_trained_on() -> None:
    one_by_one = {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 1, "schedule.epochs": 1.0}
    spec = make({**one_by_one, "evaluation.percent": 90.0})
    assert [plan(spec, gpu(24), card=CARD, num_rows=rows).total_steps for rows in (1, 2, 3, 20)] == [1, 1, 1, 2]


def test_disk_counts_checkpoints_and_the_adapter() -> None:
    num = planner.num_adapter_parameters(make(), CARD)
    assert plan(make(), gpu(24), card=CARD).disk_bytes == num * 12 * 3 + num * 4


def test_the_card_is_read_from_the_models_folder(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    planned = plan(make({"model.path": str(folder)}), CPU)
    assert planned.parts["weights"] == 520 * 4


def one_billion() -> ModelCard:
    """The shape of Llama 3.2 1B with a vocabulary of 49152, as it was trained on an H200 for the figures below."""
    layer = {
        "q_proj": (2048, 2048),
        "k_proj": (512, 2048),
        "v_proj": (512, 2048),
        "o_proj": (2048, 2048),
        "gate_proj": (8192, 2048),
        "up_proj": (8192, 2048),
        "down_proj": (2048, 8192),
    }
    shapes = {f"layers.{index}.{name}.weight": shape for index in range(16) for name, shape in layer.items()}
    return dataclasses.replace(
        eight_billion(),
        num_parameters=1_073_809_408,
        hidden_size=2048,
        num_layers=16,
        head_dim=64,
        intermediate_size=8192,
        vocab_size=49152,
        tied=True,
        linear_shapes=shapes,
    )


@pytest.mark.parametrize(
    ("micro_batch_size", "tokens", "changes", "reserved_gib"),
    [
        (4, 2048, {}, 22.27),
        (4, 2048, {"hardware.activation_checkpointing": True}, 8.80),
        (4, 2048, {"quantization.kind": "nf4", "hardware.activation_checkpointing": True}, 7.30),
        (1, 1024, {"quantization.kind": "nf4"}, 3.09),
        (1, 512, {}, 3.45),
        (2, 4096, {"hardware.activation_checkpointing": True, "adapter.rank": 64}, 8.99),
        (4, 512, {"adapter.dora": True}, 10.47),
        (2, 1024, {"model.dtype": "float32"}, 15.41),
    ],
)
def test_plan_covers_what_a_gpu_really_took(
    micro_batch_size: int, tokens: int, changes: dict[str, Any], reserved_gib: float
) -> None:
    """Reserved by PyTorch on an H200 (torch 2.11, 2026-11-21): a plan may be a third above it, never below."""
    spec = make()
    spec.schedule.micro_batch_size, spec.data.context_length = micro_batch_size, tokens
    planned = plan(with_changes(spec, changes), gpu(139), card=one_billion()).total_bytes / GIB
    assert reserved_gib <= planned <= 1.33 * reserved_gib


def test_the_fused_model_keeps_what_there_is_room_for_and_fits_by_what_it_must() -> None:
    roomy, middling, scarce = (plan(fused(), gpu(gib), card=CARD) for gib in (80, 24, 7))
    assert roomy.least_bytes == middling.least_bytes == scarce.least_bytes
    assert roomy.total_bytes > middling.total_bytes > scarce.total_bytes == scarce.least_bytes
    assert [planned.verdict for planned in (roomy, middling, scarce)] == ["fits", "fits", "tight"]
    assert all(planned.total_bytes <= 0.94 * planned.available_bytes for planned in (roomy, middling, scarce))
    assert plan(fused(), gpu(6), card=CARD, longest_tokens=2048).verdict == "exceeds"
    assert (roomy.fixes, middling.fixes) == ((), ())
    assert "hardware.activation_checkpointing" not in [next(iter(fix.changes)) for fix in scarce.fixes]


def test_the_fused_model_takes_what_its_layers_and_a_chunk_of_the_head_take() -> None:
    roomy = plan(fused(), gpu(80), card=CARD).parts
    # 94 KB of each token and layer, and what all layers share.
    per_token = roomy["activations"] / 8192 / LAYERS
    assert 94_000 <= per_token <= 1.1 * 94_000
    assert roomy["logits"] == 1024 * (VOCAB + 4 * HIDDEN) * 2
    assert roomy["weights"] == pytest.approx(6.35e9, rel=0.01)
    # The embedding leaves the device where not everything fits.
    assert roomy["weights"] - plan(fused(), gpu(24), card=CARD).parts["weights"] == VOCAB * HIDDEN * 2
    tied = dataclasses.replace(CARD, tied=True)
    assert plan(fused(), gpu(24), card=tied).parts["weights"] == roomy["weights"]
    thrifty = plan(fused({"hardware.activation_checkpointing": True}), gpu(80), card=CARD)
    assert thrifty.parts["activations"] < roomy["activations"] / 5


def test_dense_weights_get_room_for_the_adapters() -> None:
    dense = plan(fused({"quantization.kind": "none"}), gpu(80), card=CARD).parts["weights"]
    bare = plan(make({"schedule.micro_batch_size": 4}), gpu(80), card=CARD).parts["weights"]
    # 64 columns and rows for each of four products a layer.
    beside = sum(64 * (n + k + 64) for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)))
    assert dense - bare == LAYERS * beside * 2
    few = {"quantization.kind": "none", "adapter.target_modules": ["down_proj"]}
    assert plan(fused(few), gpu(80), card=CARD).parts["weights"] - bare == LAYERS * 64 * (4096 + 14336 + 64) * 2


@pytest.mark.parametrize("changes", [{"adapter.dora": True, "adapter.dropout": 0.1}, {"hardware.kernels": False}])
def test_what_runs_unfused_is_planned_as_plain_pytorch(changes: dict[str, Any]) -> None:
    planned = plan(fused(changes), gpu(80), card=CARD)
    assert planned.parts == plan(fused({**changes, "hardware.kernels": False}), gpu(80), card=CARD).parts
    assert planned.least_bytes == planned.total_bytes


def test_dropout_is_planned_as_plain_pytorch_before_ampere() -> None:
    turing = replace(gpu(80), compute_capability=(7, 5))
    dropped = plan(fused({"adapter.dropout": 0.1}), turing, card=CARD)
    assert dropped.parts == plan(fused({"hardware.kernels": False}), turing, card=CARD).parts
    assert dropped.parts != plan(fused(), turing, card=CARD).parts


def test_dropout_takes_no_memory() -> None:
    assert plan(fused({"adapter.dropout": 0.1}), gpu(80), card=CARD).parts == plan(fused(), gpu(80), card=CARD).parts


@pytest.mark.parametrize("level", fused_memory.LEVELS)
def test_dora_keeps_the_outputs_of_blocks(level: str) -> None:
    def taken(**changes: Any) -> int:
        return fused_memory.activation_bytes(fused(changes), SMALL_VOCABULARY, 2, 8192, level)

    num_kept = {"none": 2, "mlp": 2, "smart": 2}.get(level, 1)
    num_layers = fused_memory.NUM_SLOTS if level == "saver" else LAYERS
    num_shared = 1 if level in ("full", "saver") else 0
    outputs = 2 * 8192 * HIDDEN * (num_layers * num_kept + num_shared)
    whole = taken(**{"adapter.dora": True})
    assert whole - taken() >= outputs
    of_mlp = {"adapter.dora": True, "adapter.target_modules": ["down_proj"]}
    assert taken(**of_mlp) - taken(**{**of_mlp, "adapter.dora": False}) == 2 * 8192 * HIDDEN * num_layers


def test_dora_scales_weights_where_there_is_room_for_two_products() -> None:
    some = {"quantization.kind": "none", "adapter.target_modules": ["down_proj"]}
    specs = (fused({**some, "adapter.dora": dora}) for dora in (False, True))
    plain, scaled = (fused_memory.weight_bytes(spec, CARD, 2, False) for spec in specs)
    buffer = (4096 + 64) * (14336 + 64)
    assert scaled - plain == 2 * (buffer - LAYERS * 64 * 64)
    packed = [fused_memory.weight_bytes(fused({"adapter.dora": dora}), CARD, 2, False) for dora in (False, True)]
    assert packed[0] == packed[1]
    num_outputs = LAYERS * sum(rows for rows, _ in LAYER.values())
    num = [planner.num_adapter_parameters(make({"adapter.dora": dora}), CARD) for dora in (False, True)]
    assert num[1] - num[0] == num_outputs
@pytest.mark.parametrize("hardware", [gpu(80), Hardware("cpu", "CPU", 64 * GIB, 48 * GIB, 64 * GIB, 48 * GIB)])
def test_a_head_runs_unfused_and_makes_no_logits(hardware: Hardware) -> None:
    planned = plan(fused({"objective.kind": "reward"}), hardware, card=CARD).parts
    plain = plan(fused({"objective.kind": "dpo", "hardware.kernels": False}), hardware, card=CARD).parts
    assert planned == plain | {"logits": 0}


SMALL_VOCABULARY = dataclasses.replace(CARD, vocab_size=1000)
"""With a large one the head takes more than a block of the layers, which then doesn't count."""


@pytest.mark.parametrize(
    ("level", "kept", "shared", "num_sums", "mlp"),
    [
        ("none", 2 * 4096 + 10304 + 28736, 0, 33, 14400),
        ("mlp", 2 * 4096 + 10304, 0, 33, 14400 + 28736),
        ("smart", 2 * 4096, 10304, 2, 14400 + 28736),
        ("full", 4096, 10304 + 4096, 2, 14400 + 28736),
    ],
)
def test_the_fused_model_keeps_less_from_level_to_level(
    level: str, kept: int, shared: int, num_sums: int, mlp: int
) -> None:
    """Of each token 10304 numbers are attention's (query, key, value, output, adapters), 28736 gate and up."""
    per_token = 2 * (LAYERS * kept + shared + 3 * (HIDDEN + 64)) + 4 * 32 * num_sums
    attention = 2 * (3 * 4096 + 2 * 1024) + 8 * 4096
    # The head works where the block of a layer does.
    block = 2 * 8192 * mlp - 2 * 1024 * (1000 + 4 * HIDDEN)
    taken = fused_memory.activation_bytes(fused(), SMALL_VOCABULARY, 2, 8192, level)
    assert taken == 8192 * (per_token + attention) + block


def test_a_long_batch_takes_the_mlp_by_tiles() -> None:
    per_token = 2 * (LAYERS * 4096 + 10304 + 4096 + 3 * (HIDDEN + 64)) + 4 * 32 * 2
    # 20,000 tokens take attention by 4 groups of heads.
    attention = 5000 * (2 * (3 * 4096 + 2 * 1024) + 8 * 4096)
    block = 2 * 16384 * (14400 + 28736) - 2 * 1024 * (1000 + 4 * HIDDEN)
    taken = fused_memory.activation_bytes(fused(), SMALL_VOCABULARY, 2, 20_000, "full")
    assert taken == 20_000 * per_token + attention + block


def test_the_most_sparing_level_keeps_two_layers_on_the_device() -> None:
    def taken(card: ModelCard) -> int:
        return fused_memory.activation_bytes(fused(), card, 2, 16384, "saver")

    per_token = 2 * (2 * HIDDEN + 10304 + HIDDEN + 3 * (HIDDEN + 64)) + 4 * 32 * 2
    inside = 2048 * (2 * (3 * 4096 + 2 * 1024) + 8 * 4096)
    logits = 2 * 512 * (1000 + 4 * HIDDEN)
    assert taken(SMALL_VOCABULARY) == 16384 * per_token + inside + 2 * 16384 * 10304 - logits
    assert fused_memory.logit_bytes(SMALL_VOCABULARY, 2, 16384, "saver") == logits
    few_layers = dataclasses.replace(SMALL_VOCABULARY, num_layers=1)
    assert taken(SMALL_VOCABULARY) - taken(few_layers) == 16384 * 2 * HIDDEN
    # Without adapters neither attention (twice: kept, and as the block) nor three buffers have columns of them.
    no_adapters = dataclasses.replace(SMALL_VOCABULARY, linear_shapes={})
    assert taken(SMALL_VOCABULARY) - taken(no_adapters) == 16384 * 2 * (64 + 64 + 3 * 64)


def test_long_batches_go_by_as_many_groups_of_heads_as_there_are() -> None:
    # 4096 numbers a token: 8192 tokens at once, and 8 heads of keys can't be cut into more than 8 groups.
    tokens = (8192, 8193, 16384, 16385, 65536, 10**6)
    at_once = [fused_memory.tokens_at_once(CARD, each, "full") for each in tokens]
    assert at_once == [8192, 4097, 8192, 4097, 8192, 125_000]


def test_a_fused_run_comes_to_one_row_with_the_least_kept() -> None:
    spec, planned = fused(), plan(fused(), gpu(24), card=CARD, longest_tokens=700)
    num = planner.num_adapter_parameters(spec, CARD)
    runtime = round(0.6 * GIB) + 96 * 2**20
    assert (planned.parts["adapter"], planned.parts["runtime"]) == (num * (4 + 4 + 2), runtime)
    least = planned.parts["adapter"] + runtime
    least += fused_memory.weight_bytes(spec, CARD, 2, embedding_on_host=True)
    least += fused_memory.activation_bytes(spec, CARD, 2, 700, "saver")
    least += fused_memory.logit_bytes(CARD, 2, 700, "saver")
    assert planned.least_bytes == least


def test_rows_without_a_token_to_learn_are_no_fit() -> None:
    spec = RunSpec()
    assert plan(spec, gpu(80), card=CARD).verdict == "fits"
    assert plan(spec, gpu(80), card=CARD, learns_nothing=True).verdict == "nothing"


@pytest.mark.parametrize(("free_gib", "rows"), [(80.0, 128), (16.0, 64)])
def test_answers_of_a_round_have_room_beside_the_training(free_gib: float, rows: int) -> None:
    """A token of this model has 32 layers of 8 heads of 128 keys and values each."""
    spec = RunSpec.from_dict(
        {
            "version": 2,
            "model": {"path": "m"},
            "data": {"sources": [{"path": "d"}], "context_length": 256},
            "quantization": {"kind": "nf4"},
            "objective": {"kind": "grpo"},
            "rollouts": {"max_tokens": 256},
        }
    )
    found = plan(spec, gpu(free_gib), card=CARD, longest_tokens=200)
    row_bytes = 2 * 32 * 8 * 128 * (200 + 256) * 2 + VOCAB * 16
    assert found.parts["answers"] == rows * row_bytes
    assert found.total_bytes <= found.available_bytes
    spec.objective.kind = "sft"
    assert "answers" not in plan(spec, gpu(free_gib), card=CARD, longest_tokens=200).parts


def test_eight_bits_take_a_byte_for_each_number_and_run_plain() -> None:
    def parts(device: Hardware, **changes: Any) -> dict[str, int]:
        return dict(plan(with_changes(RunSpec(), changes), device, card=CARD).parts)

    card, eight = gpu(80), {"quantization.kind": "int8"}
    linear, largest = CARD.num_linear_parameters, max(a * b for a, b in CARD.linear_shapes.values())
    dense = 2 * (CARD.num_parameters - linear)
    found = parts(card, **eight)
    assert found["weights"] == pytest.approx(dense + linear + 4 * largest, rel=0.003)
    plain = parts(card, **eight, **{"hardware.kernels": False})
    assert found == plain, "no fused kernel reads 8-bit weights"


def test_fp8_products_are_refused_with_eight_bit_weights() -> None:
    spec = with_changes(RunSpec(), {"hardware.fp8_weights": True})
    before = [problem.path for problem in spec.problems()]
    spec.quantization.kind = "int8"
    assert [problem.path for problem in spec.problems() if problem.path not in before] == ["hardware.fp8_weights"]
