"""Kinds of layers and what each takes, counted from the shapes of a model's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.core.test_adapter_settings import CARD
from tests.core.test_model_cards import SHAPES, write_model
from tunesmith_core.fused_memory import LEVELS, activation_bytes
from tunesmith_core.mixer_memory import Mixer, mixers
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.spec import RunSpec

SCAN = {
    "model.layers.0.mamba.conv1d.weight": (64 + 2 * 2 * 24, 1, 4),
    "model.layers.0.mamba.A_log": (8,),
    "model.layers.0.mamba.out_proj.weight": (32, 64),
}
"""Eight heads of eight numbers, two groups of states of 24."""


def with_layers(shapes: dict[str, tuple[int, ...]], **changes: int) -> ModelCard:
    return replace(CARD, num_layers=3, shapes=shapes, **changes)


def kinds(shapes: dict[str, tuple[int, ...]], **changes: int) -> list[Mixer]:
    return mixers(with_layers(shapes, **changes), False)


def test_a_model_with_attention_alone_has_one_kind() -> None:
    (attention,) = kinds({})
    assert attention.num_layers == 3


def test_gated_convolutions_keep_their_inputs_and_result() -> None:
    attention, convolution = kinds({f"model.layers.{layer}.conv.conv.weight": (32, 1, 3) for layer in range(2)})
    assert (attention.num_layers, convolution.num_layers) == (1, 2)
    assert (convolution.kept, convolution.kept_columns, convolution.block) == (128, 1, 128)
    assert convolution.tokens_at_once(10**6, 2) == 10**6


def test_scans_keep_their_inputs_and_heads() -> None:
    attention, scan = kinds(SCAN, state_groups=2)
    assert (attention.num_layers, scan.num_layers, scan.num_groups) == (2, 1, 2)
    assert (scan.kept, scan.block, scan.beside) == (64 + 160 + 8 + 64, 2 * 160 + 64 + 64 + 160 + 8, 64)
    # States of 64 by 64 numbers once filled up, twice for each 64 tokens; four scales; four heads' gradients added up.
    assert scan.bytes_at_once == 8 * (2 * 4 * 64 * 64 // 64 + 16) + (8 * 2 + 4 * 2) * 64 + 28
    assert scan.tokens_at_once(1000, 32 * 1000) == 500


def test_the_width_of_mlps_is_that_of_their_weights(tmp_path: Path) -> None:
    usual = read_model_card(write_model(tmp_path / "usual")).intermediate_size
    names = {"feed_forward.w1.weight": [24, 8], "shared_mlp.output_linear.weight": [8, 24]}
    for number, (name, shape) in enumerate(names.items()):
        shapes = {**SHAPES, f"model.layers.0.{name}": shape}
        assert read_model_card(write_model(tmp_path / f"own{number}", shapes=shapes)).intermediate_size == 24
    shapes["model.layers.0.block_sparse_moe.router.weight"] = [4, 8]
    assert read_model_card(write_model(tmp_path / "experts", shapes=shapes)).intermediate_size == usual


def test_the_first_mamba_is_no_such_scan() -> None:
    (attention,) = kinds({**SCAN, "model.layers.0.mamba.A_log": (64, 16)})
    assert attention.num_layers == 3


def test_delta_rules_with_a_decay_for_each_channel_stand_beside_latent_attention() -> None:
    latent, rule = "model.layers.0.self_attn.", "model.layers.1.self_attn."
    shapes = {
        f"{latent}q_proj.weight": (80, 32),
        f"{latent}kv_a_proj_with_mqa.weight": (52, 32),
        f"{latent}kv_a_layernorm.weight": (40,),
        f"{latent}kv_b_proj.weight": (96, 40),
        f"{latent}o_proj.weight": (32, 64),
        f"{rule}q_proj.weight": (96, 32),
        f"{rule}o_proj.weight": (32, 96),
        f"{rule}conv1d.weight": (288, 1, 4),
        f"{rule}b_proj.weight": (4, 32),
        f"{rule}o_norm.weight": (24,),
    }
    through_latents = {f"{rule}g_a_proj.weight": (24, 32), f"{rule}forget_gate.f_a_proj.weight": (24, 32)}
    attention, channels = mixers_of({**shapes, **through_latents})
    assert (attention.num_layers, channels.num_layers, channels.num_groups) == (2, 1, 4)
    assert (attention.width, channels.width) == (80, 96)
    assert (channels.kept, channels.beside, channels.block_columns) == (288 + 4 + 2 * 24 + 3 * 96, 96 + 24, 3)
    gated, _ = mixers_of({**shapes, **through_latents, f"{latent}g_proj.weight": (4, 32)})
    assert (gated.kept - attention.kept, gated.beside - attention.beside, gated.beside_columns) == (4, 64, 2)
    _, direct = mixers_of(shapes)
    assert (direct.kept, direct.beside, direct.block_columns) == (288 + 4 + 3 * 96, 96, 1)


def mixers_of(shapes: dict[str, tuple[int, ...]]) -> list[Mixer]:
    """Return the kinds of a model whose linear layers are among its shapes."""
    linear = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    return mixers(replace(with_layers(shapes), linear_shapes=linear), False)


def test_delta_rules_keep_their_inputs_and_heads() -> None:
    prefix = "model.layers.1.linear_attn."
    shapes = {f"{prefix}conv1d.weight": (96, 1, 4), f"{prefix}A_log": (4,), f"{prefix}norm.weight": (8,)}
    attention, rule = kinds(shapes)
    assert (attention.num_layers, rule.num_layers, rule.num_groups) == (2, 1, 4)
    assert (rule.kept, rule.beside) == (96 + 32 + 8 + 32, 32)
    assert kinds({**shapes, f"{prefix}o_norm.weight": shapes.pop(f"{prefix}norm.weight")})[1] == rule
    shapes[f"{prefix}norm.weight"] = (8,)
    _, merged = kinds({**shapes, f"{prefix}in_proj_qkvz.weight": (128, 32)})
    assert merged.beside == 32 + 96 + 32 + 8


ALONE = {
    name.replace(".mamba.", ".mixer."): shape for name, shape in SCAN.items()
} | {"model.layers.0.norm.weight": (32,)}
"""A layer that is a scan alone."""


def test_layers_of_one_block_are_counted_by_what_they_are() -> None:
    mlp = {"model.layers.1.mixer.up_proj.weight": (64, 32), "model.layers.1.mixer.down_proj.weight": (32, 64)}
    attention, scan = kinds({**ALONE, **mlp}, state_groups=2)
    assert (attention.num_layers, scan.num_layers) == (1, 1)
    assert scan.kept == kinds(SCAN, state_groups=2)[1].kept
    assert [kind.num_layers for kind in kinds({**ALONE, "model.layers.2.mixer.experts.up_proj": (4, 8, 32)})] == [1, 1]
    (only,) = mixers(replace(with_layers(ALONE), num_layers=1), False)
    assert only.kept == scan.kept


def test_layers_of_one_block_leave_nothing_between_two() -> None:
    spec = RunSpec()
    up = {"model.layers.1.mixer.up_proj.weight": (64, 32), "model.layers.1.mixer.down_proj.weight": (32, 64)}
    scans, with_mlp, both = (
        replace(with_layers(shapes, hidden_size=32, intermediate_size=64), linear_shapes=linear)
        for shapes, linear in ((ALONE, {}), ({**ALONE, **up}, up), (SCAN, up))
    )
    cards = scans, with_mlp, both
    sizes = [{level: activation_bytes(spec, card, 4, 100, level) for level in LEVELS} for card in cards]
    # Gate and up: none in scans alone, one layer's in the second.
    assert sizes[0]["none"] == sizes[0]["mlp"]
    assert 0 < sizes[1]["none"] - sizes[1]["mlp"] < sizes[2]["none"] - sizes[2]["mlp"]
    assert all(sizes[0][level] < sizes[2][level] for level in LEVELS)


def test_branches_keep_what_both_keep() -> None:
    both = {f"{name[:15]}self_attn.q_proj.weight": (32, 32) for name in SCAN}
    (together,) = kinds({**SCAN, **both}, state_groups=2)
    attention, scan = kinds(SCAN, state_groups=2)
    assert together.num_layers == 1
    assert together.kept == attention.kept + scan.kept
    assert together.beside == attention.beside + scan.beside + 2 * CARD.hidden_size
