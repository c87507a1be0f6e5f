"""What layers with shared keys, per-layer inputs or latents take, by the shapes of a model's tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.test_planner import CARD, fused
from tunesmith_core import fused_memory
from tunesmith_core.mixer_memory import lent_numbers, mixers
from tunesmith_core.model_cards import ModelCard

TOKENS = 1000


def _card(layers: list[dict[str, tuple[int, ...]]], whole: dict[str, tuple[int, ...]] | None = None) -> ModelCard:
    """Return a card whose layers have tensors of these shapes."""
    shapes = {f"model.layers.{n}.{name}": shape for n, layer in enumerate(layers) for name, shape in layer.items()}
    shapes |= {f"model.{name}": shape for name, shape in (whole or {}).items()}
    linear = {name: (shape[0], shape[1]) for name, shape in shapes.items() if len(shape) == 2}
    sizes = {"hidden_size": 64, "num_layers": len(layers), "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    return replace(CARD, **sizes, intermediate_size=96, shapes=shapes, linear_shapes=linear)


def _layer(query: int, key: int = 0, value: int = 0) -> dict[str, tuple[int, ...]]:
    projections = {"q_proj": query, "k_proj": key, "v_proj": value}
    found = {f"self_attn.{name}.weight": (rows, 64) for name, rows in projections.items() if rows}
    return {**found, "layer_scalar": (1,), "mlp.up_proj.weight": (96, 64), "mlp.gate_proj.weight": (96, 64)}


GEMMA = _card([_layer(64, 32, 32), _layer(128, 64), _layer(64, 32, 32), _layer(64), _layer(128)])


def test_layers_with_keys_of_others_keep_queries_alone() -> None:
    found = {(kind.width, kind.kept): kind for kind in mixers(GEMMA, False)}
    assert {key: kind.num_layers for key, kind in found.items()} == {
        (64, 64 + 64 + 64): 2, (128, 128 + 128 + 128): 1, (64, 128): 1, (128, 256): 1
    }  # fmt: skip
    own, read = found[64, 192], found[64, 128]
    assert own.block - read.block == own.kept - read.kept == 64
    assert {own.num_groups, read.num_groups} == {2}
    # Gradients of all heads, of the inputs (queries alone where keys are read), and finished queries, keys and values.
    assert (own.block, read.block) == (64 + 128 + 64 + 32 + 32, 64 + 64 + 64 + 32 + 32)
    # Keys that are the values as well come in two columns from one.
    assert (found[128, 384].beside, own.beside) == (256, 0)


@pytest.mark.parametrize(("size", "factor"), [(2, 3), (4, 2)])
def test_what_is_lent_lies_with_its_gradients_in_32_bits(size: int, factor: int) -> None:
    assert lent_numbers(GEMMA, size) == factor * 2 * (32 + 64)
    assert lent_numbers(_card([_layer(64, 32, 32)]), size) == 0
    assert lent_numbers(CARD, size) == 0


def test_own_inputs_of_layers_and_norms_behind_blocks_take_memory() -> None:
    def taken(card: ModelCard) -> int:
        return fused_memory.activation_bytes(fused({}), card, 2, TOKENS, "none")

    layers = [_layer(64, 32, 32)] * 2
    plain = taken(_card(layers))
    own = taken(_card(layers, {"per_layer_model_projection.weight": (40, 64)}))
    assert own - plain >= 2 * TOKENS * (40 + 64)
    norms = {f"{place}_feedforward_layernorm.weight": (64,) for place in ("pre", "post")}
    normed = taken(_card([{**layer, **norms} for layer in layers]))
    # The outputs of both blocks of both layers.
    assert normed - plain == 2 * TOKENS * 64 * 4


LATENT = {
    "self_attn.kv_a_proj_with_mqa.weight": (40 + 8, 64),
    "self_attn.kv_a_layernorm.weight": (40,),
    "self_attn.kv_b_proj.weight": (4 * (16 + 12), 40),
    "self_attn.o_proj.weight": (64, 4 * 12),
}
WITH_LATENTS = {"self_attn.q_a_proj.weight": (20, 64), "self_attn.q_b_proj.weight": (96, 20)}


def test_latents_and_what_they_are_expanded_to_are_kept() -> None:
    (plain,) = mixers(_card([{**LATENT, "self_attn.q_proj.weight": (96, 64)}]), False)
    assert plain.kept == 96 + 48 + 112 + 48
    assert (plain.beside, plain.width, plain.num_groups, plain.block_columns) == (40, 96, 4, 2)
    (latent,) = mixers(_card([{**LATENT, **WITH_LATENTS}]), False)
    assert latent.kept == 20 + 48 + 96 + 112 + 48
    assert latent.block_columns == 3
