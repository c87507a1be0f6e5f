"""What a model remembers of a text, from its card."""

from __future__ import annotations

from dataclasses import replace

from tests.core.test_adapter_settings import CARD
from tests.core.test_shared_keys import LATENT
from tunesmith_core.remembered import remembered_bytes


def test_keys_and_values_of_all_layers_and_tokens() -> None:
    card = replace(CARD, num_layers=3, num_kv_heads=2, head_dim=16)
    assert remembered_bytes(card, 10, 2) == 3 * 2 * 2 * 16 * 10 * 2


def test_latents_are_kept_expanded() -> None:
    layers = {f"model.layers.{number}.{name}": shape for number in range(2) for name, shape in LATENT.items()}
    linear = {name: shape for name, shape in layers.items() if len(shape) == 2}
    card = replace(CARD, num_layers=2, num_heads=4, num_kv_heads=4, head_dim=1, linear_shapes=linear)
    of_heads, width = LATENT["self_attn.kv_b_proj.weight"]
    turning = LATENT["self_attn.kv_a_proj_with_mqa.weight"][0] - width
    assert remembered_bytes(card, 10, 2) == 2 * (of_heads + 4 * turning) * 10 * 2
