"""What a layer's attention, or what is in its place, takes of memory: counted from the shapes of weights.

Symbols: q and k are the widths of queries and of keys, c, v and h of the delta rule are the channels of its short
convolution, the width of all its value heads and their number; see `tunesmith_engine.mixer_shapes.DeltaShape`.
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
_BEHIND_ROTATION = ".query_layernorm.weight"
_IN_STEPS = ("llama4", "llama4_text")
"""Types with norms behind the rotation that have no weights."""

_QUERY_NORMS = (".q_norm.weight", ".q_layernorm.weight", _BEHIND_ROTATION)
_OUTPUT_NORM = ".attn_sub_norm.weight"
_HEAD_GATES = "g_proj"

OF_RULE = ".linear_attn.conv1d.weight"
OF_CHANNELS = ".self_attn.conv1d.weight"
GATED = ".conv.conv.weight"
OF_SCAN = (".mamba.conv1d.weight", ".mixer.conv1d.weight")
"""Convolutions of the delta rule, of that with a decay for each channel, between gates, and of the state-space scan."""

_ALONE = re.compile(r"\.\d+\.mixer\.")
"""What is in a layer of one block."""
_MLP_ALONE = re.compile(r"\.(\d+)\.mixer\.(?:experts\..*|up_proj\.weight)$")

_OF_SCAN = re.compile(r".*\.(?:mamba|mixer)\.")

_RATES = (".mamba.A_log", ".mixer.A_log")

MOST_IN_PART = 16
"""Heads of a group whose gradients of b and c one program of a scan adds up."""

SMALLEST_SCAN = 64
"""To so many numbers a scan's states and heads are filled up; those of Mamba 2, Bamba, Granite and Falcon H1 are no
narrower. Gradients of heads of 16 with states of 24, compiled by Triton 3.6 for an H200, end in an illegal memory
access."""

FIRST_TOKEN_BYTES = 24
"""Of a token, while it is found where its document begins."""

_EXPANSION = ".kv_b_proj.weight"

OF_STREAMS = ".altup.modality_router.weight"
_SHARING = (".layer_scalar", OF_STREAMS)
"""In layers whose attention may share keys and values (Gemma 4, Gemma 3n)."""

CHUNK = 64
"""Tokens between two states, of the delta rule or a scan, that exist at once."""


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
        branch: the other one, where two read the same input one after the other.
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
    branch: Mixer | None = None

    def passing_bytes(self, size: int, num_tokens: int, attention_numbers: int) -> int:
        """Return what its own operations allocate and give back, for numbers of so many bytes."""
        beside = self.branch.passing_bytes(size, num_tokens, attention_numbers) if self.branch else 0
        at_once = self.tokens_at_once(num_tokens, attention_numbers)
        return max(beside, at_once * (size * self.numbers_at_once + self.bytes_at_once))

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
    of_channels = sum(name.endswith(OF_CHANNELS) for name in card.shapes)
    if any(name.endswith(_EXPANSION) for name in card.linear_shapes):
        latent = _latent(card, card.num_layers - of_channels)
        return [latent, _channel_delta(card, of_channels)] if of_channels else [latent]
    if any(name.endswith(_SHARING) for name in card.shapes):
        return _sharing(card)
    of_rules, gated, of_scans = (
        [shape[0] for name, shape in card.shapes.items() if name.endswith(ending)]
        for ending in (OF_RULE, GATED, OF_SCAN)
    )
    # The first Mamba has a rate for each number of a state, and is never fused.
    of_scans = of_scans if all(len(s) == 1 for n, s in card.shapes.items() if n.endswith(_RATES)) else []
    if of_scans and _has_branches(card):
        return [_together(card, _attention(card, len(of_scans), has_raw), _scan(card, len(of_scans), of_scans[0]))]
    others = len(of_rules) + len(gated) + len(of_scans) + num_mlps_alone(card)
    found = [_attention(card, card.num_layers - others, has_raw)] if others < card.num_layers else []
    if of_rules:
        found.append(_delta(card, len(of_rules), of_rules[0]))
    if gated:
        found.append(_convolution(len(gated), gated[0]))
    if of_scans:
        found.append(_scan(card, len(of_scans), of_scans[0]))
    return found


def has_layers_of_one_block(card: ModelCard) -> bool:
    """Return whether a layer is attention, a scan or an MLP, but not two of them (Mamba 2, Nemotron H)."""
    return any(map(_ALONE.search, card.shapes))


def num_mlps_alone(card: ModelCard) -> int:
    """Return how many of such layers are MLPs."""
    return len({match[1] for match in map(_MLP_ALONE.search, card.shapes) if match})


def _has_branches(card: ModelCard) -> bool:
    """Return whether layers have attention and a scan beside each other (Falcon H1)."""
    parts = [
        {name.removesuffix(ending) for name in card.shapes if name.endswith(ending)}
        for ending in (OF_SCAN[0], ".self_attn.q_proj.weight")
    ]
    return bool(parts[0] & parts[1])


def _together(card: ModelCard, attention: Mixer, scan: Mixer) -> Mixer:
    """Return both as one kind: buffers side by side, and room for the result of one and for its gradient."""
    return replace(
        attention,
        kept=attention.kept + scan.kept,
        kept_columns=attention.kept_columns + scan.kept_columns,
        block=max(attention.block, scan.block),
        beside=attention.beside + scan.beside + 2 * card.hidden_size,
        beside_columns=attention.beside_columns + scan.beside_columns + 1,
        branch=scan,
    )


def _attention(card: ModelCard, num_layers: int, has_raw: bool) -> Mixer:
    q, k = card.num_heads * card.head_dim, card.num_kv_heads * card.head_dim
    gates = max(_of_layers(card, _HEAD_GATES).values(), default=0)
    if gates:
        # Layers may have more heads than the config's (Laguna).
        q = max(q, *_of_layers(card, "q_proj").values())
    v, o = _value_widths(card, q, k)
    in_turn = card.num_kv_heads > 1 and any(name.endswith(_IN_TURN) for name in card.linear_shapes)
    has_norms = any(name.endswith(_QUERY_NORMS) for name in card.shapes)
    in_steps = card.model_type in _IN_STEPS or any(name.endswith(_BEHIND_ROTATION) for name in card.shapes)
    apart = bool(gates) or any(name.endswith(_OUTPUT_NORM) for name in card.shapes)
    beside = (q + k + v if in_turn else 0) + (o if apart else 0) + (4 * q + 2 * k + v if in_steps else 0)
    plain = Mixer(
        num_layers=num_layers,
        kept=q + k + v + o + gates,
        kept_columns=0 if apart else 1,
        block=q + k + v + o + gates + (q + k if has_raw or has_norms else 0),
        beside=beside,
        beside_columns=int(in_turn) + int(apart),
        width=q,
        num_groups=card.num_kv_heads,
        num_sums=card.num_heads,
        numbers_at_once=q + 2 * o + k + v,
        bytes_at_once=ATTENTION_BYTES_PER_NUMBER * q,
    )
    of_queries = [shape for name, shape in card.linear_shapes.items() if name.endswith(".self_attn.q_proj.weight")]
    if not of_queries or of_queries[0][0] != 2 * q:
        return plain
    # A gate for each query; queries and keys have norms, so that both are needed raw.
    return replace(
        plain, kept=3 * q + 2 * k, kept_columns=0, block=4 * q + 3 * k, beside=3 * q + 2 * k, beside_columns=2
    )


def _value_widths(card: ModelCard, q: int, k: int) -> tuple[int, int]:
    """Return the widths of all values and of all heads' outputs, where those of queries and keys are q and k."""
    widths = {name.rpartition(".self_attn.")[2]: shape for name, shape in card.linear_shapes.items()}
    values, output = widths.get("v_proj.weight"), widths.get("o_proj.weight")
    queries = widths.get("q_proj.weight")
    if values is None or output is None or queries is None or queries[0] != q:
        return k, q
    return values[0], output[1]


def _of_layers(card: ModelCard, leaf: str) -> dict[int, int]:
    """Return the outputs of a linear layer by the number of the decoder's layer."""
    found = {}
    for name, (rows, _) in card.linear_shapes.items():
        match = re.search(rf"\.(\d+)\.(?:self_attn|mlp)\.{leaf}\.weight$", name)
        if match:
            found[int(match[1])] = rows
    return found


def _sharing(card: ModelCard) -> list[Mixer]:
    """Return the kinds of Gemma's layers: heads of two sizes, and keys and values of earlier layers."""
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


def _of_one(card: ModelCard, ending: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a mixer's weights by their names in it: of the first that has such a weight."""
    prefix = next(name for name in card.shapes if name.endswith(ending)).rpartition(".self_attn.")[0] + ".self_attn."
    found = {name.removeprefix(prefix): shape for name, shape in card.shapes.items() if name.startswith(prefix)}
    return {name.removesuffix(".weight"): tuple(shape) for name, shape in found.items()}


def _latent(card: ModelCard, num_layers: int) -> Mixer:
    """Return latent attention: what inputs and expansions give is kept, heads are made again from it."""
    shapes = _of_one(card, _EXPANSION)
    c, heads = shapes["kv_a_layernorm"][0], card.num_heads
    columns, expanded, values = shapes["kv_a_proj_with_mqa"][0], shapes["kv_b_proj"][0], shapes["o_proj"][1]
    has_latents = "q_b_proj" in shapes
    q = shapes["q_b_proj" if has_latents else "q_proj"][0]
    of_queries = shapes["q_a_proj"][0] if has_latents else q
    gates = shapes["g_proj"][0] if "g_proj" in shapes else 0
    columns += of_queries + gates
    return Mixer(
        num_layers=num_layers,
        kept=columns + q * has_latents + expanded + values,
        kept_columns=1,
        # A room holds the padded output or the gradient of the queries, the other that or what is expanded.
        block=3 * q + q + max(q, expanded) + values + columns,
        beside=max(c, of_queries * has_latents) + (values if gates else 0),
        beside_columns=2 if gates else 1,
        width=q,
        num_groups=heads,
        num_sums=heads,
        numbers_at_once=5 * q,
        bytes_at_once=ATTENTION_BYTES_PER_NUMBER * q,
        block_columns=1 + has_latents + (expanded >= q),
    )


def _delta(card: ModelCard, num_layers: int, c: int) -> Mixer:
    shapes = {name.rpartition(".linear_attn.")[2]: shape for name, shape in card.shapes.items()}
    h, head_width = shapes["A_log"][0], shapes["norm.weight" if "norm.weight" in shapes else "o_norm.weight"][0]
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


def _channel_delta(card: ModelCard, num_layers: int) -> Mixer:
    shapes = _of_one(card, OF_CHANNELS)
    c, h, head_width = shapes["conv1d"][0], shapes["b_proj"][0], shapes["o_norm"][0]
    v = h * head_width
    both = ("g_a_proj", "g_b_proj", "g_proj"), ("forget_gate.f_a_proj", "forget_gate.f_b_proj", "forget_gate.f_proj")
    latents = [shapes[first][0] for first, _, _ in both if first in shapes]
    inputs = c + h + sum(latents) + v * (len(both) - len(latents))
    padded = _padded(head_width)
    return Mixer(
        num_layers=num_layers,
        kept=inputs + v * len(latents) + v,
        kept_columns=0,
        block=2 * c + v + inputs + v * len(latents),
        beside=v + max(latents, default=0),
        beside_columns=1 + bool(latents),
        width=v,
        num_groups=h,
        num_sums=0,
        numbers_at_once=0,
        bytes_at_once=h * (24 * padded + 8 * CHUNK + 8 * padded**2 // CHUNK + 44) + FIRST_TOKEN_BYTES,
        block_columns=1 + len(latents),
    )


def _convolution(num_layers: int, channels: int) -> Mixer:
    return Mixer(
        num_layers=num_layers,
        kept=4 * channels,
        kept_columns=1,
        block=4 * channels,
        beside=0,
        beside_columns=0,
        width=channels,
        num_groups=1,
        num_sums=0,
        numbers_at_once=0,
        bytes_at_once=FIRST_TOKEN_BYTES,
    )


def _scan(card: ModelCard, num_layers: int, c: int) -> Mixer:
    shapes = {_OF_SCAN.sub("", name): shape for name, shape in card.shapes.items() if _OF_SCAN.match(name)}
    h, v, groups = shapes["A_log"][0], shapes["out_proj.weight"][1], card.state_groups
    keys, values = (_padded(width, SMALLEST_SCAN) for width in ((c - v) // (2 * groups), v // h))
    in_part = max(number for number in range(1, MOST_IN_PART + 1) if h // groups % number == 0)
    return Mixer(
        num_layers=num_layers,
        kept=2 * v + c + h,
        kept_columns=0,
        block=3 * c + 2 * v + h,
        beside=v,
        beside_columns=1,
        width=v,
        num_groups=groups,
        num_sums=0,
        numbers_at_once=0,
        bytes_at_once=h * (8 * keys * values // CHUNK + 16) + (8 * h // in_part + 4 * groups) * keys + 28,
    )


def _padded(width: int, smallest: int = 16) -> int:
    return max(smallest, 1 << max(0, width - 1).bit_length())
