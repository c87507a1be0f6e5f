"""Kinds of layers and what each takes, counted from the shapes of a model's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.core.test_adapter_settings import CARD
from tests.core.test_model_cards import SHAPES, write_model
from tunesmith_core.mixer_memory import Mixer, mixers
from tunesmith_core.model_cards import ModelCard, read_model_card

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
    # States of 32 and 16 numbers once filled up, twice for each 64 tokens; four scales; four heads' gradients added up.
    assert scan.bytes_at_once == 8 * (2 * 4 * 32 * 16 // 64 + 16) + (8 * 2 + 4 * 2) * 32 + 28
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


def test_delta_rules_keep_their_inputs_and_heads() -> None:
    prefix = "model.layers.1.linear_attn."
    shapes = {f"{prefix}conv1d.weight": (96, 1, 4), f"{prefix}A_log": (4,), f"{prefix}norm.weight": (8,)}
    attention, rule = kinds(shapes)
    assert (attention.num_layers, rule.num_layers, rule.num_groups) == (2, 1, 4)
    assert (rule.kept, rule.beside) == (96 + 32 + 8 + 32, 32)
    _, merged = kinds({**shapes, f"{prefix}in_proj_qkvz.weight": (128, 32)})
    assert merged.beside == 32 + 96 + 32 + 8
