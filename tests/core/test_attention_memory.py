"""What attention of other forms takes of memory, by the shapes of its weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.test_planner import CARD
from tunesmith_core.fused_memory import activation_bytes
from tunesmith_core.mixer_memory import mixers
from tunesmith_core.spec import RunSpec

Q, K = 32 * 128, 8 * 128
ATTENTION = {"q_proj": (Q, 4096), "k_proj": (K, 4096), "v_proj": (512, 4096), "o_proj": (4096, 2048)}


def test_values_of_another_size_take_what_they_are() -> None:
    narrow = replace(
        CARD, linear_shapes={f"layers.0.self_attn.{name}.weight": shape for name, shape in ATTENTION.items()}
    )
    (found,), (usual,) = mixers(narrow, False), mixers(CARD, False)
    assert usual.kept == 2 * Q + 2 * K
    assert (found.kept, found.block) == (Q + K + 512 + 2048,) * 2
    assert found.numbers_at_once == Q + 2 * 2048 + K + 512


@pytest.mark.parametrize(
    ("norm", "beside", "columns"),
    [("self_attn.query_layernorm", 4 * Q + 2 * K + K, 1), ("self_attn.attn_sub_norm", Q, 0)],
)
def test_norms_elsewhere_take_room_of_their_own(norm: str, beside: int, columns: int) -> None:
    (found,) = mixers(replace(CARD, shapes={f"layers.0.{norm}.weight": (128,)}), False)
    assert (found.beside, found.kept_columns) == (beside, columns)


def test_a_norm_of_what_the_output_reads_takes_two_tiles() -> None:
    normed = replace(CARD, shapes={"layers.0.mlp.ffn_sub_norm.weight": (CARD.intermediate_size,)})
    with_norm, without = (activation_bytes(RunSpec(), card, 2, 4096, "none") for card in (normed, CARD))
    assert with_norm > without


def test_gates_of_heads_take_room_and_layers_may_have_more_heads() -> None:
    weights = {"q_proj": (2 * Q, 4096), "k_proj": (K, 4096), "v_proj": (K, 4096), "o_proj": (4096, 2 * Q)}
    linear = {f"layers.1.self_attn.{name}.weight": shape for name, shape in weights.items()}
    gated = replace(CARD, linear_shapes={**linear, "layers.1.self_attn.g_proj.weight": (64, 4096)})
    (found,) = mixers(gated, False)
    assert (found.kept, found.kept_columns) == (2 * Q + 2 * K + 2 * Q + 64, 0)
    assert (found.block, found.beside, found.beside_columns) == (found.kept, 2 * Q, 1)


def test_norms_without_weights_behind_the_rotation_are_known_by_type() -> None:
    (found,) = mixers(replace(CARD, model_type="llama4_text"), False)
    assert found.beside == 4 * Q + 2 * K + K


def test_a_gate_for_each_query_takes_its_room() -> None:
    weights = {**ATTENTION, "q_proj": (2 * Q, 4096)}
    gated = replace(CARD, linear_shapes={f"layers.0.self_attn.{name}.weight": shape for name, shape in weights.items()})
    (found,), (plain,) = mixers(gated, False), mixers(CARD, False)
    assert found.kept == 3 * Q + 2 * K > plain.kept
    assert (found.block, found.beside, found.beside_columns) == (4 * Q + 3 * K, 3 * Q + 2 * K, 2)


def test_a_bias_stands_beside_the_adapters_columns() -> None:
    spec = RunSpec()
    spec.adapter.rank = 64
    biases = {name.removesuffix("weight") + "bias": shape[:1] for name, shape in CARD.linear_shapes.items()}
    biased = replace(CARD, shapes={**CARD.shapes, **biases})
    with_bias, without = (activation_bytes(spec, card, 2, 4096, "none") for card in (biased, CARD))
    assert with_bias > without
