"""Whether a model of a hub would fit on this computer, told by its size: its shapes are known once it is here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from tunesmith_core import model_library
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import ModelCard

VOCABULARY = 128_000
HEAD_DIM = 128
FEWEST_LAYERS = 24
"""Small decoders are narrow rather than flat, and each layer keeps activations."""

WIDTH_PER_LAYER = 96
"""Decoders of all sizes have about so many columns for each of their layers."""


def likely_fits(num_parameters: int, hardware: Hardware) -> Mapping[str, str]:
    """Return the planner's verdict by method for a usual decoder of a size; nothing for an unknown size."""
    return model_library.fits(usual_card(num_parameters), hardware) if num_parameters > 0 else {}


def usual_card(num_parameters: int) -> ModelCard:
    """Return the card of a decoder with the shapes that are usual for its size, in 16 bits."""
    layers = max(FEWEST_LAYERS, round((num_parameters / (12 * WIDTH_PER_LAYER**2)) ** (1 / 3)))
    # The embedding takes its share of the size; half of a small model is enough of it.
    vocabulary = min(VOCABULARY, max(1, num_parameters // (2 * layers * WIDTH_PER_LAYER)))
    width = _width(num_parameters, layers, vocabulary)
    wide = 8 * width // 3
    shapes = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width, width)}
    shapes |= {"self_attn.v_proj": (width, width), "self_attn.o_proj": (width, width)}
    shapes |= {"mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width), "mlp.down_proj": (width, wide)}
    heads = max(1, width // HEAD_DIM)
    return ModelCard(
        path=Path("usual"),
        name="usual",
        model_type="llama",
        num_parameters=num_parameters,
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=HEAD_DIM,
        intermediate_size=wide,
        vocab_size=vocabulary,
        tied=True,
        dtype="bfloat16",
        has_chat_template=True,
        licence="",
        size_bytes=2 * num_parameters,
        linear_shapes={
            f"model.layers.{layer}.{name}.weight": shape for layer in range(layers) for name, shape in shapes.items()
        },
    )


def _width(num_parameters: int, layers: int, vocabulary: int) -> int:
    """Return the number of columns with which 12 matrices of a layer and the embedding come to a size."""
    per_layer = 12 * layers
    root = math.sqrt(vocabulary**2 + 4 * per_layer * num_parameters)
    return max(HEAD_DIM, round((root - vocabulary) / (2 * per_layer)))
