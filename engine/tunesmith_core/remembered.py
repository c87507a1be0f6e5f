"""What a model remembers of a text while it writes an answer, counted from its card."""

from __future__ import annotations

from tunesmith_core.model_cards import ModelCard

_EXPANSION, _LATENTS = ".kv_b_proj.weight", ".kv_a_proj_with_mqa.weight"


def remembered_bytes(card: ModelCard, num_tokens: int, bytes_per_value: int) -> int:
    """Return the bytes of keys and values.

    Layers with a state in attention's place count as if they had attention: their states are smaller than that for any
    text that is worth planning for.

    Args:
        card: of the model.
        num_tokens: of prompt and answer.
        bytes_per_value: of the run's number format.
    """
    values = 2 * card.num_layers * card.num_kv_heads * card.head_dim
    return max(values, _expanded(card)) * num_tokens * bytes_per_value


def _expanded(card: ModelCard) -> int:
    """Return the numbers of a token's keys and values that come through latents, which are kept expanded."""
    expansions = [shape for name, shape in card.linear_shapes.items() if name.endswith(_EXPANSION)]
    latents = [shape for name, shape in card.linear_shapes.items() if name.endswith(_LATENTS)]
    # The heads share the part of their keys that turns, and each keeps it.
    pairs = zip(expansions, latents, strict=False)
    return sum(of_heads + card.num_heads * (columns - width) for (of_heads, width), (columns, _) in pairs)
