"""What a layer's attention, or the gated delta rule in its place, takes of memory: counted from the shapes of weights.

Symbols: q and k are the widths of queries and of keys, c, v and h of the delta rule are the channels of its short
convolution, the width of all its value heads and their number; see `tunesmith_engine.shapes.DeltaShape`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace

from tunesmith_core.model_cards import ModelCard

ATTENTION_BYTES_PER_NUMBER = 8
"""As in `tunesmith_engine.fused`: of each query, beside."""

INTERLEAVED = "query_key_value"
"""A merged projection whose heads are put in order behind the product."""

_IN_TURN = (f".{INTERLEAVED}.weight", ".attn.qkv_proj.weight")
_QUERY_NORMS = (".q_norm.weight", ".q_layernorm.weight")

_EXPANSION = ".kv_b_proj.weight"

CHUNK = 64
"""Tokens between two states of the delta rule that exist at once."""


@dataclass(frozen=True, slots=True)
class Mixer:
    """Numbers of a token in layers of one kind.

    Attributes:
        num_layers: that are of this kind.
        kept: that the forward pass leaves and the memory policy may keep, without the adapters' columns.
        kept_columns: how often these stand among them.
        block: of intermediate results in the place that the MLP uses as well; columns stand there once.
        beside: of further ones.
        beside_columns: how often the adapters' columns stand among them.
        width: of all heads, and groups into which these can be divided.
        num_sums: of weights, in 32 bits, that stay until the backward pass.
        numbers_at_once: of which its own operations make copies.
        bytes_at_once: that they take beside.
        block_columns: how often the adapters' columns stand in the block.
    """

    num_layers: int
    kept: int
    kept_columns: int
    block: int
    beside: int
    beside_columns: int
    width: int
    num_groups: int
    num_sums: int
    numbers_at_once: int
    bytes_at_once: int
    block_columns: int = 1

    def tokens_at_once(self, num_tokens: int, numbers_at_once: int) -> int:
        """Return of how many tokens with all heads it takes the memory: long batches go by groups of heads."""
        parts = 1
        while num_tokens * self.width > numbers_at_once * parts and self.num_groups % (2 * parts) == 0:
            parts *= 2
        return math.ceil(num_tokens / parts)


def mixers(card: ModelCard, has_raw: bool) -> list[Mixer]:
    """Return the kinds of a model's layers, attention first.

    Args:
        card: of the model.
        has_raw: DoRA's magnitudes need queries and keys as they were before they were rotated.
    """
    if any(name.endswith(_EXPANSION) for name in card.linear_shapes):
        return [_latent(card)]
    if any(name.endswith(".layer_scalar") for name in card.shapes):
        return _sharing(card)
    convolutions = [shape for name, shape in card.shapes.items() if name.endswith(".linear_attn.conv1d.weight")]
    attention = _attention(card, card.num_layers - len(convolutions), has_raw)
    if not convolutions:
        return [attention]
    return [attention, _delta(card, len(convolutions), convolutions[0][0])]


def _attention(card: ModelCard, num_layers: int, has_raw: bool) -> Mixer:
    q, k = card.num_heads * card.head_dim, card.num_kv_heads * card.head_dim
    in_turn = card.num_kv_heads > 1 and any(name.endswith(_IN_TURN) for name in card.linear_shapes)
    has_norms = any(name.endswith(_QUERY_NORMS) for name in card.shapes)
    plain = Mixer(
        num_layers=num_layers,
        kept=2 * q + 2 * k,
        kept_columns=1,
        block=2 * q + 2 * k + (q + k if has_raw or has_norms else 0),
        beside=q + 2 * k if in_turn else 0,
        beside_columns=int(in_turn),
        width=q,
        num_groups=card.num_kv_heads,
        num_sums=card.num_heads,
        numbers_at_once=3 * q + 2 * k,
        bytes_at_once=ATTENTION_BYTES_PER_NUMBER * q,
    )
    of_queries = [shape for name, shape in card.linear_shapes.items() if name.endswith(".self_attn.q_proj.weight")]
    if not of_queries or of_queries[0][0] != 2 * q:
        return plain
    # A gate for each query; queries and keys have norms, so that both are needed raw.
    return replace(
        plain, kept=3 * q + 2 * k, kept_columns=0, block=4 * q + 3 * k, beside=3 * q + 2 * k, beside_columns=2
    )


def _of_layers(card: ModelCard, leaf: str) -> dict[int, int]:
    """Return the outputs of a linear layer by the number of the decoder's layer."""
    found = {}
    for name, (rows, _) in card.linear_shapes.items():
        match = re.search(rf"\.(\d+)\.(?:self_attn|mlp)\.{leaf}\.weight$", name)
        if match:
            found[int(match[1])] = rows
    return found


def _sharing(card: ModelCard) -> list[Mixer]:
    """Return the kinds of Gemma 4's layers: heads of two sizes, and keys and values of earlier layers."""
    queries, keys, values = (_of_layers(card, leaf) for leaf in ("q_proj", "k_proj", "v_proj"))
    widths = {q: keys[number] for number, q in queries.items() if number in keys}
    kinds = Counter((q, number in keys, number in values) for number, q in queries.items())
    found = []
    for (q, has_keys, has_values), num_layers in kinds.items():
        k = widths.get(q, q)
        own = q + 2 * k if has_keys else q
        by_keys = has_keys and not has_values
        found.append(
            Mixer(
                num_layers=num_layers,
                kept=own + q,
                kept_columns=1,
                block=own + 2 * q + 2 * k,
                beside=own if by_keys else 0,
                beside_columns=int(by_keys),
                width=q,
                num_groups=max(1, k * card.num_heads // q),
                num_sums=card.num_heads,
                numbers_at_once=3 * q + 2 * k,
                bytes_at_once=ATTENTION_BYTES_PER_NUMBER * q,
            )
        )
    return found


def lent_numbers(card: ModelCard, size: int) -> int:
    """Return the numbers of a token that layers lend others: keys and values, and their gradients in 32 bits.

    Args:
        card: of the model.
        size: bytes per number.
    """
    queries, keys = _of_layers(card, "q_proj"), _of_layers(card, "k_proj")
    lent = {q for number, q in queries.items() if number not in keys}
    widths = {q: keys[number] for number, q in queries.items() if number in keys}
    return sum(2 * widths.get(q, 0) for q in lent) * (1 + 4 // size) if keys else 0


def _latent(card: ModelCard) -> Mixer:
    """Return latent attention: what inputs and expansions give is kept, heads are made again from it."""
    shapes = {name.rpartition(".self_attn.")[2].removesuffix(".weight"): shape for name, shape in card.shapes.items()}
    c, heads = shapes["kv_a_layernorm"][0], card.num_heads
    columns, expanded, values = shapes["kv_a_proj_with_mqa"][0], shapes["kv_b_proj"][0], shapes["o_proj"][1]
    has_latents = "q_b_proj" in shapes
    q = shapes["q_b_proj" if has_latents else "q_proj"][0]
    of_queries = shapes["q_a_proj"][0] if has_latents else q
    columns += of_queries
    return Mixer(
        num_layers=card.num_layers,
        kept=columns + q * has_latents + expanded + values,
        kept_columns=1,
        # A room holds the padded output or the gradient of the queries, the other that or what is expanded.
        block=3 * q + q + max(q, expanded) + values + columns,
        beside=max(c, of_queries * has_latents),
        beside_columns=1,
        width=q,
        num_groups=heads,
        num_sums=heads,
        numbers_at_once=5 * q,
        bytes_at_once=ATTENTION_BYTES_PER_NUMBER * q,
        block_columns=1 + has_latents + (expanded >= q),
    )


def _delta(card: ModelCard, num_layers: int, c: int) -> Mixer:
    shapes = {name.rpartition(".linear_attn.")[2]: shape for name, shape in card.shapes.items()}
    h, head_width = shapes["A_log"][0], shapes["norm.weight"][0]
    v = h * head_width
    inputs = c + v + 2 * h
    in_two = "in_proj_qkvz.weight" in shapes
    padded = 1 << (head_width - 1).bit_length()
    # Keys are counted as wide as values.
    return Mixer(
        num_layers=num_layers,
        kept=inputs + v,
        kept_columns=0,
        block=2 * c + v + inputs,
        beside=v + (inputs if in_two else 0),
        beside_columns=2 if in_two else 1,
        width=v,
        num_groups=max(1, (c - v) // (2 * head_width)),
        num_sums=0,
        numbers_at_once=0,
        bytes_at_once=h * (16 * padded + 8 * padded**2 // CHUNK + 52),
    )
