"""What an expert does between its products and behind them: the gate with the router's weights, and the sum of a token.

The gate is activation(gate) * up as everywhere, or gpt-oss's; gate and up lie behind each other, or take turns: see
`Gate`. All is computed in float32 and rounded once, float64 in float64.

# M rows, T tokens, k experts of each, M = T k, F numbers of an expert's MLP, H hidden numbers
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.expert_order import Order
from tunesmith_engine.kernels.glu import _activate_twin, _slope_twin, activate
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.shapes import Gate

NAME = "expert_rows"
BLOCK = 1024
NUM_WARPS = 4

CLAMPED = "clamped"
"""The activation of gpt-oss, see `Gate`."""


def activate_rows(gate_up: torch.Tensor, gate: Gate, out: torch.Tensor) -> torch.Tensor:
    """Write the gated product.

    Args:
        gate_up: [M, 2 F], rows anywhere.
        gate: what is computed.
        out: [M, F], rows anywhere.
    """
    num_rows, width = out.shape
    if not registry.runs(NAME, out.device) or out.dtype == torch.float64:
        return _activate_rows_twin(gate_up, gate, out)
    if num_rows:
        launch(
            _activate_rows,
            (num_rows, triton.cdiv(width, BLOCK), 1),
            (gate_up, out),
            (gate_up.stride(0), out.stride(0), width, gate.limit, gate.alpha),
            (gate.activation, gate.in_turn, min(BLOCK, triton.next_power_of_2(width))),
            num_warps=NUM_WARPS,
        )
    return out


def activate_rows_backward(
    gradient: torch.Tensor, gate_up: torch.Tensor, gate: Gate, weights: torch.Tensor, dots: torch.Tensor
) -> None:
    """Turn gate and up into their gradients, and the product's gradient into the product, where they are.

    Args:
        gradient: of the product before it is weighted, [M, F], rows anywhere; becomes the product.
        gate_up: [M, 2 F], rows anywhere; becomes its gradient.
        gate: what is computed.
        weights: of the rows, float32 [M]; float64 beside float64.
        dots: the weights' gradients, as they, are written: the gradient times the product, summed.
    """
    num_rows, width = gradient.shape
    if not registry.runs(NAME, gradient.device) or gradient.dtype == torch.float64:
        product, to_gate, to_up = _gated_twin(gate_up, gate)
        slope = _wide(gradient)
        dots.copy_((slope * product).sum(1))
        slope = slope * weights[:, None]
        gates, ups = _halves(gate_up, gate)
        gates.copy_(slope * to_gate)
        ups.copy_(slope * to_up)
        gradient.copy_(product)
    elif num_rows:
        launch(
            _activate_rows_backward,
            (num_rows, 1, 1),
            (gradient, gate_up, weights, dots),
            (gradient.stride(0), gate_up.stride(0), width, gate.limit, gate.alpha),
            (gate.activation, gate.in_turn, min(BLOCK, triton.next_power_of_2(width))),
            num_warps=NUM_WARPS,
        )


def combine(
    rows: torch.Tensor,
    order: Order,
    weights: torch.Tensor | None,
    out: torch.Tensor,
    added: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write the sum of each token's rows, each times its weight, and of what is added.

    Args:
        rows: [M, H], rows anywhere.
        order: of the rows.
        weights: float32 [T, k], float64 beside float64, or None for ones.
        out: [T, H], rows anywhere.
        added: [T, H], rows anywhere; may be `out`.
    """
    num_tokens, width = out.shape
    per_token = order.num_rows // max(1, num_tokens)
    if not registry.runs(NAME, out.device) or out.dtype == torch.float64:
        found = _wide(rows[order.place.long()]).view(num_tokens, per_token, width)
        if weights is not None:
            found = found * weights[..., None]
        total = found.sum(1)
        return out.copy_(total if added is None else total + added)
    if num_tokens:
        launch(
            _combine,
            (num_tokens, triton.cdiv(width, BLOCK), 1),
            (rows, order.place, weights, out, added),
            (rows.stride(0), out.stride(0), 0 if added is None else added.stride(0), width),
            (per_token, min(BLOCK, triton.next_power_of_2(width))),
            num_warps=NUM_WARPS,
        )
    return out


# Triton programs


@jit
def _gated(gates, ups, limit, alpha, ACTIVATION: tl.constexpr):
    """Return the gated product and its derivatives."""
    if ACTIVATION == "clamped":
        g = tl.minimum(gates, limit)
        u = tl.minimum(tl.maximum(ups, -limit), limit) + 1.0
        share = tl.sigmoid(alpha * g)
        active = g * share
        derivative = share + alpha * g * share * (1.0 - share)
        to_gate = tl.where(gates <= limit, u * derivative, 0.0)
        to_up = tl.where((ups >= -limit) & (ups <= limit), active, 0.0)
        product = u * active
    else:
        active, derivative = activate(gates, ACTIVATION)
        product = active * ups
        to_gate = derivative * ups
        to_up = active
    return product, to_gate, to_up


@jit
def _activate_rows(
    gate_up,
    out,
    gate_up_stride,
    out_stride,
    width,
    limit,
    alpha,
    ACTIVATION: tl.constexpr,
    IN_TURN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    first = column * 2 if IN_TURN else column
    step = 1 if IN_TURN else width
    base = gate_up + row * gate_up_stride + first
    gates = tl.load(base, mask=inside, other=0.0).to(tl.float32)
    ups = tl.load(base + step, mask=inside, other=0.0).to(tl.float32)
    product, _, _ = _gated(gates, ups, limit, alpha, ACTIVATION)
    tl.store(out + row * out_stride + column, product.to(out.dtype.element_ty), mask=inside)


@jit
def _activate_rows_backward(
    gradient,
    gate_up,
    weights,
    dots,
    gradient_stride,
    gate_up_stride,
    width,
    limit,
    alpha,
    ACTIVATION: tl.constexpr,
    IN_TURN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Go through one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weights + row)
    step = 1 if IN_TURN else width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        base = gate_up + row * gate_up_stride + (column * 2 if IN_TURN else column)
        gates = tl.load(base, mask=inside, other=0.0).to(tl.float32)
        ups = tl.load(base + step, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(gradient + row * gradient_stride + column, mask=inside, other=0.0).to(tl.float32)
        product, to_gate, to_up = _gated(gates, ups, limit, alpha, ACTIVATION)
        total += slope * product
        slope = slope * weight
        tl.store(base, (slope * to_gate).to(gate_up.dtype.element_ty), mask=inside)
        tl.store(base + step, (slope * to_up).to(gate_up.dtype.element_ty), mask=inside)
        tl.store(gradient + row * gradient_stride + column, product.to(gradient.dtype.element_ty), mask=inside)
    tl.store(dots + row, tl.sum(total))


@jit
def _combine(
    rows,
    place,
    weights,
    out,
    added,
    rows_stride,
    out_stride,
    added_stride,
    width,
    PER_TOKEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum the rows of a token in the order of its choices."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total = tl.zeros((BLOCK,), tl.float32)
    for number in range(PER_TOKEN):
        row = tl.load(place + token * PER_TOKEN + number).to(tl.int64)
        some = tl.load(rows + row * rows_stride + column, mask=inside, other=0.0).to(tl.float32)
        if weights is not None:
            some = some * tl.load(weights + token * PER_TOKEN + number)
        total += some
    if added is not None:
        total += tl.load(added + token * added_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * out_stride + column, total.to(out.dtype.element_ty), mask=inside)


# The same in PyTorch; float64 stays float64


def _activate_rows_twin(gate_up: torch.Tensor, gate: Gate, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(_gated_twin(gate_up, gate)[0])


def _halves(gate_up: torch.Tensor, gate: Gate) -> tuple[torch.Tensor, torch.Tensor]:
    if gate.in_turn:
        return gate_up[:, ::2], gate_up[:, 1::2]
    first, second = gate_up.chunk(2, dim=1)
    return first, second


def _gated_twin(gate_up: torch.Tensor, gate: Gate) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gated product and its derivatives, in float32 at least."""
    gates, ups = (_wide(half) for half in _halves(gate_up, gate))
    if gate.activation != CLAMPED:
        active = _activate_twin(gates, gate.activation)
        return active * ups, _slope_twin(ups, gates, gate.activation), active
    g, u = gates.clamp(max=gate.limit), ups.clamp(-gate.limit, gate.limit) + 1
    share = torch.sigmoid(gate.alpha * g)
    active = g * share
    derivative = share + gate.alpha * active * (1 - share)
    return u * active, u * derivative * (gates <= gate.limit), active * (ups.abs() <= gate.limit)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
