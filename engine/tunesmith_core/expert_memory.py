"""What mixtures of experts take of a layer's memory: counted from the shapes of weights.

Symbols: d is the hidden size, k the experts of each token, f the width of an expert's MLP, r the ranks of its adapters.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tunesmith_core import adapter_shapes
from tunesmith_core.adapter_ranks import adapts_experts
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_LINEAR

LEAST_RANKS = 16
"""Columns of an expert's adapter are filled up to this and to powers of two."""

ROUTER_BYTES = 64
"""Of a token and expert: scores, masks, probabilities whose balance is counted, and their gradients, in 32 bits."""
ROUTER_NORM_BYTES = 20
"""Of a number of a token where a router has a norm of its own, which computes in 32 bits: measured in both formats."""
CHOICE_BYTES = 96
"""Of a token and one of its experts: numbers of 64 bits that are sorted, and weights."""

CODE_BYTES = 0.5
"""Of a number in 4 bits without its scale: what may lie in the computer's memory while a GPU trains."""
HOST_PORTIONS = 4
"""Layers whose experts leave a GPU do so in so many steps."""

_OWN_MLP = ".mlp.down_proj.weight"
"""Of a layer whose experts are not in it."""

_EXPERT = re.compile(r"\.(\d+)(?:\..*)?\.(?:experts\.(\d+)?|block_sparse_moe\.\w+_linear\.)")


@dataclass(frozen=True, slots=True)
class SparseMlp:
    """The mixtures of experts of a model.

    Attributes:
        num_layers: that have one.
        num_experts: in each.
        per_token: k.
        width: f.
        shared_width: of the MLP beside them that all tokens go through, or 0.
        has_shared_gate: its output is multiplied by a factor.
        has_branches: it is the layer's own MLP, and both have norms of their own (Gemma 4).
    """

    num_layers: int
    num_experts: int
    per_token: int
    width: int
    shared_width: int
    has_shared_gate: bool
    has_branches: bool = False

    @property
    def kept(self) -> int:
        """Numbers of a token's gate and up in its experts."""
        return 2 * self.per_token * self.width

    def block(self, hidden_size: int, num_ranks: int, extra: int) -> int:
        """Return the numbers of a token's intermediate results, without gate and up.

        Args:
            hidden_size: d.
            num_ranks: columns of both adapters of an expert.
            extra: columns of the adapters of the MLP beside them.
        """
        num_beside = 2 if self.has_branches else int(self.has_shared_gate)
        beside = num_beside * (hidden_size + extra)
        return self.per_token * (self.width + hidden_size + 2 * num_ranks) + hidden_size + beside


def passing_bytes(
    num_tokens: int,
    tile_tokens: int,
    num_experts: int,
    per_token: int,
    hidden_size: int,
    size: int,
    has_norm: bool = False,
) -> int:
    """Return what the router and the order of rows take while a layer runs.

    Args:
        num_tokens: of a micro-batch.
        tile_tokens: whose experts are computed together.
        num_experts: of a layer.
        per_token: k.
        hidden_size: d.
        size: bytes per number.
        has_norm: the router has a norm of its own.
    """
    router = num_tokens * (ROUTER_BYTES * num_experts + (2 * size + ROUTER_NORM_BYTES * has_norm) * hidden_size)
    return router + CHOICE_BYTES * per_token * (num_tokens + min(num_tokens, tile_tokens))


def padded_ranks(rank: int) -> int:
    """Return the columns that an expert's adapter of a rank has; those behind its own are zero."""
    return max(LEAST_RANKS, 1 << (rank - 1).bit_length())


def is_of_experts(name: str) -> bool:
    """Return whether a tensor is of the experts of a layer; in a 4-bit base their matrices are packed."""
    return _EXPERT.search(name) is not None


def stacked_numbers(card: ModelCard) -> tuple[int, int]:
    """Return the weights of all experts of a model, and those of a layer's, which are packed and unpacked together."""
    of_layers: dict[str, int] = {}
    for match, shape in _expert_weights(card):
        of_layers[match[1]] = of_layers.get(match[1], 0) + math.prod(shape)
    return sum(of_layers.values()), max(of_layers.values(), default=0)


def code_bytes(card: ModelCard, num_layers: int) -> int:
    """Return the memory of the codes of the experts of so many layers in 4 bits."""
    experts = sparse_mlp(card) if num_layers else None
    return round(stacked_numbers(card)[0] * CODE_BYTES * num_layers / experts.num_layers) if experts else 0


def host_steps(num_layers: int) -> list[int]:
    """Return of how many layers experts may lie in the computer's memory, of so many that have some, fewest first."""
    return sorted({math.ceil(num_layers * portion / HOST_PORTIONS) for portion in range(HOST_PORTIONS + 1)})


def steps_of(spec: RunSpec, hardware: Hardware, card: ModelCard) -> list[int]:
    """Return the same of a run, of whose computer's memory half may be pinned."""
    may_leave = hardware.device == "cuda" and spec.quantization.kind == "nf4"
    experts = sparse_mlp(card) if may_leave else None
    if experts is None:
        return [0]
    of_layer = code_bytes(card, 1)
    return [number for number in host_steps(experts.num_layers) if number * of_layer <= hardware.host_free_bytes // 2]


def sparse_mlp(card: ModelCard) -> SparseMlp | None:
    """Return what a model's mixtures of experts look like; None where it has none."""
    found = _expert_weights(card)
    if not found:
        return None
    numbers = [shape[0] if len(shape) == 3 else int(match[2] or 0) + 1 for match, shape in found]
    # Gate and up may be one weight; down is the smallest.
    widths = [math.prod(shape[-2:]) // card.hidden_size for _, shape in found]
    outputs = [(name, columns) for name, (_, columns) in card.linear_shapes.items() if "shared" in name]
    shared = [columns for name, columns in outputs if "down" in name or "output" in name]
    own = _own_mlps(card)
    return SparseMlp(
        num_layers=len({match[1] for match, _ in found}),
        num_experts=max(numbers),
        per_token=card.experts_per_token,
        width=max(1, min(widths)),
        shared_width=max([*shared, *own], default=0),
        has_shared_gate=any("shared_expert_gate" in name for name in card.linear_shapes),
        has_branches=bool(own),
    )


def _own_mlps(card: ModelCard) -> list[int]:
    """Return the widths of the MLPs that layers have beside their experts."""
    layers = {match.string[: match.end(1)] for match, _ in _expert_weights(card)}
    found = (card.linear_shapes.get(f"{layer}{_OWN_MLP}") for layer in layers)
    return [shape[1] for shape in found if shape]


def _expert_weights(card: ModelCard) -> list[tuple[re.Match[str], tuple[int, ...]]]:
    """Return the names of the matrices of experts, as `_EXPERT` reads them, and their shapes."""
    # The biases of stacked experts have two sides, too.
    weights = ((name, shape) for name, shape in card.shapes.items() if not name.endswith("bias"))
    matches = ((_EXPERT.search(name), shape) for name, shape in weights if len(shape) in (2, 3))
    return [(match, shape) for match, shape in matches if match]


def num_ranks(spec: RunSpec, card: ModelCard) -> int:
    """Return the columns of both adapters of an expert, 0 without."""
    targets = None if spec.adapter.target_modules == ALL_LINEAR else spec.adapter.target_modules
    if not adapts_experts(spec.adapter):
        return 0
    experts = {name: shape for name, shape in card.expert_shapes.items() if ".experts." in name}
    adapted = adapter_shapes.adapted_experts(card.model_type, card.linear_shapes, experts, targets)
    return 2 * padded_ranks(spec.adapter.rank) if adapted else 0
