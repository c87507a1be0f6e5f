"""The kernels of mixtures of experts, as cases of the proof: few tokens and experts, one of which gets none."""

from __future__ import annotations

import torch

from tunesmith_engine.proof.inputs import NUM_ROWS, Inputs, Results, Sizes
from tunesmith_engine.shapes import Gate

NUM_EXPERTS, PER_TOKEN, RANKS = 3, 2, 16
MANY_ROWS = 200
"""Tokens enough for the largest tiles."""

WHOLE_TILES = 256
"""Columns of a weight: whole tiles of every launch, and several steps of its sums."""


def grouped_product(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the experts' products, forwards and backwards, with and without adapters, and the sums of these."""
    return {**_products(sizes, inputs, NUM_ROWS), **_products(sizes, inputs, MANY_ROWS)}


def _products(sizes: Sizes, inputs: Inputs, num_tokens: int) -> Results:
    from tunesmith_engine.kernels.expert_order import order_of
    from tunesmith_engine.kernels.grouped_product import multiply, sum_products

    order = order_of(_chosen(inputs, num_tokens), NUM_EXPERTS)
    width, hidden = _cut(sizes.expert_width), _cut(sizes.hidden)
    shape = (hidden, 2 * width) if sizes.clamped else (2 * width, hidden)
    weight = inputs.random(NUM_EXPERTS, *shape) * hidden**-0.5
    weight = weight.transpose(1, 2) if sizes.clamped else weight
    bias = inputs.random(NUM_EXPERTS, 2 * width) if sizes.clamped else None
    x, shrunk = inputs.rows(hidden, num_tokens), inputs.random(order.num_rows, RANKS)
    beside, below = inputs.random(NUM_EXPERTS, 2 * width, RANKS), inputs.random(NUM_EXPERTS, RANKS, hidden)
    wide, narrow, slope = (inputs.empty(order.num_rows, columns) for columns in (2 * width, RANKS, hidden))
    plain = torch.empty_like(wide)
    multiply(x, below * hidden**-0.5, order, narrow, gathered=True)
    multiply(x, weight, order, plain, gathered=True, bias=bias)
    multiply(x, weight, order, wide, True, shrunk, beside, bias)
    gradient = inputs.random(order.num_rows, 2 * width)
    multiply(gradient, weight.transpose(1, 2), order, slope, False, shrunk, below.transpose(1, 2))
    return {
        f"shrunk, {num_tokens}": narrow,
        f"plain, {num_tokens}": plain,
        f"adapted, {num_tokens}": wide,
        f"input gradient, {num_tokens}": slope,
        f"sum of rows, {num_tokens}": sum_products(gradient, shrunk, order),
        f"sum of tokens, {num_tokens}": sum_products(x, shrunk, order, gathered=True),
    }


def expert_rows(sizes: Sizes, inputs: Inputs) -> Results:
    """Return gated products with their gradients, and the sums of tokens."""
    from tunesmith_engine.kernels.expert_order import order_of
    from tunesmith_engine.kernels.expert_rows import CLAMPED, activate_rows, activate_rows_backward, combine

    order, width = order_of(_chosen(inputs, NUM_ROWS), NUM_EXPERTS), sizes.expert_width
    gate = Gate(CLAMPED, in_turn=True, limit=1.5, alpha=1.702) if sizes.clamped else Gate(sizes.activation)
    gate_up, slope = inputs.rows(2 * width, order.num_rows), inputs.rows(width, order.num_rows)
    weights = inputs.random(NUM_ROWS, PER_TOKEN).to(torch.promote_types(inputs.dtype, torch.float32))
    product, dots = inputs.empty(order.num_rows, width), torch.empty_like(weights.flatten())
    activate_rows(gate_up, gate, product)
    activate_rows_backward(slope, gate_up, gate, weights.flatten()[order.choice], dots)
    rows, added = inputs.rows(sizes.hidden, order.num_rows), inputs.rows(sizes.hidden)
    weighted, plain = (inputs.empty(NUM_ROWS, sizes.hidden) for _ in range(2))
    combine(rows, order, weights, weighted, added)
    combine(rows, order, None, plain)
    return {
        "product": product,
        "again": slope,
        "slopes": gate_up,
        "weights": dots,
        "weighted sum": weighted,
        "sum": plain,
    }


def _cut(size: int) -> int:
    """Return a size that ends in its last tile as the whole one does: three experts of gpt-oss would take 400 MB."""
    return size if size < 2 * WHOLE_TILES else WHOLE_TILES + size % WHOLE_TILES


def _chosen(inputs: Inputs, num_tokens: int) -> torch.Tensor:
    """Return experts of each token, none of them the second."""
    first = inputs.integers(0, 2, num_tokens) * 2
    return torch.stack([first, 2 - first], dim=1)
