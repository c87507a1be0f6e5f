"""The kernels of mixers beside attention, as cases of the proof: packed documents, forwards and backwards."""

from __future__ import annotations

import itertools

import torch

from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.proof.inputs import NUM_ROWS, Inputs, Results, Sizes

LENGTHS = (5, 70, 1, 61)
"""Of documents: inside a chunk of the delta rule, over its boundary, and over two at once."""


def delta_rule(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the gated delta rule's outputs and gradients."""
    from tunesmith_engine.kernels.delta_rule import backward, forward

    num_key_heads, num_heads, key_dim, value_dim = sizes.delta_heads
    num_rows = sum(LENGTHS)
    q, k = (
        inputs.rows(num_key_heads * key_dim, num_rows).unflatten(1, (num_key_heads, key_dim)) for _ in range(2)
    )
    v, slope = (inputs.rows(num_heads * value_dim, num_rows).unflatten(1, (num_heads, value_dim)) for _ in range(2))
    beta = inputs.random(num_rows, num_heads).sigmoid()
    wide = torch.promote_types(inputs.dtype, torch.float32)
    gates = -inputs.random(num_rows, num_heads).to(wide).square()
    bounds = _bounds(inputs)
    out = torch.empty_like(v)
    outs = tuple(torch.empty_like(x) for x in (q, k, v, gates, beta))
    forward(q, k, v, gates, beta, bounds, out)
    backward(slope, q, k, v, gates, beta, bounds, outs)
    names = ("query gradient", "key gradient", "value gradient", "gate gradient", "beta gradient")
    return {"out": out, **dict(zip(names, outs, strict=True))}


def channel_delta(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the channel-wise delta rule's outputs and gradients."""
    from tunesmith_engine.kernels.channel_delta import backward, forward
    from tunesmith_engine.kernels.channel_delta_twin import Gates

    num_heads, key_dim, value_dim, has_floor = sizes.channel_delta
    num_rows = sum(LENGTHS)
    q, k, raw = (inputs.rows(num_heads * key_dim, num_rows).unflatten(1, (num_heads, key_dim)) for _ in range(3))
    v, slope = (inputs.rows(num_heads * value_dim, num_rows).unflatten(1, (num_heads, value_dim)) for _ in range(2))
    beta = inputs.random(num_rows, num_heads).sigmoid()
    bias, rate = inputs.random(num_heads, key_dim).float(), inputs.random(num_heads).float().exp()
    gates, bounds = Gates(raw, bias, rate, -5.0 if has_floor else None), _bounds(inputs)
    out, outs = torch.empty_like(v), tuple(torch.empty_like(x) for x in (q, k, v, raw, beta))
    forward(q, k, v, gates, beta, bounds, out)
    backward(slope, q, k, v, gates, beta, bounds, outs)
    names = ("query gradient", "key gradient", "value gradient", "gate gradient", "beta gradient")
    return {"out": out, **dict(zip(names, outs, strict=True))}


def state_space(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the state-space scan's outputs and gradients."""
    from tunesmith_engine.kernels.state_space import Steps, backward, forward

    num_groups, num_heads, state, head, *_ = sizes.scan
    num_rows = sum(LENGTHS)
    b, c = (inputs.rows(num_groups * state, num_rows).unflatten(1, (num_groups, state)) for _ in range(2))
    x, slope = (inputs.rows(num_heads * head, num_rows).unflatten(1, (num_heads, head)) for _ in range(2))
    bias, log_rate, skip = (inputs.random(num_heads) for _ in range(3))
    steps = Steps(inputs.rows(num_heads, num_rows), bias, log_rate, (0.001, 2.0))
    out, bounds = torch.empty_like(x), _bounds(inputs)
    outs = torch.empty_like(x), torch.empty_like(b), torch.empty_like(c), torch.empty_like(steps.raw)
    forward(x, b, c, steps, skip, bounds, out)
    backward(slope, x, b, c, steps, skip, bounds, outs)
    names = ("x gradient", "b gradient", "c gradient", "step gradient")
    return {"out": out, **dict(zip(names, outs, strict=True))}


def state_step(sizes: Sizes, inputs: Inputs) -> Results:
    """Return states behind a prompt and behind one token more, and what is read from these."""
    from tunesmith_engine.kernels.state_step import Tokens, advance

    key_heads, heads, key, value = _state_heads(sizes)
    corrects, by_channel = not sizes.scan, bool(sizes.channel_delta)
    states = inputs.empty(len(LENGTHS), heads, key, value, dtype=torch.promote_types(inputs.dtype, torch.float32))
    states.zero_()
    found: Results = {}
    for label, lengths in (("prompt", LENGTHS), ("token", (1,) * len(LENGTHS))):
        num_rows = sum(lengths)
        q, k = (inputs.random(num_rows, key_heads, key) * key**-0.5 for _ in range(2))
        decay = -inputs.random(num_rows, heads, key if by_channel else 1).to(states.dtype).square()
        strength = inputs.random(num_rows, heads).sigmoid()
        v, out = inputs.random(num_rows, heads, value), inputs.empty(num_rows, heads, value)
        tokens = Tokens(q, k, v, decay.expand(-1, -1, key), strength)
        bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=inputs.device)
        advance(tokens, bounds, corrects, states, out if label == "token" else None)
        found[f"states behind the {label}"] = states.clone()
    return found | {"out": out}


def has_states(sizes: Sizes) -> bool:
    """Return whether a model's heads have states."""
    return bool(sizes.delta_heads or sizes.channel_delta or sizes.scan)


def _state_heads(sizes: Sizes) -> tuple[int, ...]:
    """Return heads of keys and of values, and the sizes of a key and of a value."""
    if sizes.channel_delta:
        heads, key, value, _ = sizes.channel_delta
        return heads, heads, key, value
    return sizes.delta_heads or sizes.scan[:4]


def short_convolution(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the short convolution's outputs and gradients, with what a model of these sizes has around it."""
    from tunesmith_engine.kernels.short_convolution import (
        convolution_gradients,
        convolve,
        convolve_backward,
        first_tokens,
    )

    channels, width = sizes.convolution
    num_rows = sum(LENGTHS)
    x, slope = inputs.rows(channels, num_rows), inputs.rows(channels, num_rows)
    weight, bias = inputs.random(channels, width), inputs.random(channels)
    begins = first_tokens(_bounds(inputs), num_rows)
    found: Results = {}
    for label, form in {"bias and SiLU": (bias, True), "SiLU": (None, True), "nothing": (None, False)}.items():
        out, out_slope = inputs.empty(num_rows, channels), inputs.empty(num_rows, channels)
        convolve(x, weight, *form, begins, out)
        convolve_backward(slope, x, weight, *form, begins, out_slope)
        of_weight, of_bias = convolution_gradients(slope, x, weight, *form, begins)
        found |= {f"out ({label})": out, f"gradient ({label})": out_slope}
        found |= {f"weight gradient ({label})": of_weight, f"bias gradient ({label})": of_bias}
    return found


def gated_convolution(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the outputs and gradients of a convolution between gates."""
    from tunesmith_engine.kernels.gated_convolution import NUM_PARTS, gated_convolve, gated_convolve_backward
    from tunesmith_engine.kernels.short_convolution import first_tokens

    channels, width = sizes.gated_convolution
    num_rows = sum(LENGTHS)
    rows, slope = inputs.rows(NUM_PARTS * channels, num_rows), inputs.rows(channels, num_rows)
    weight, bias = inputs.random(channels, width), inputs.random(channels)
    begins = first_tokens(_bounds(inputs), num_rows)
    found: Results = {}
    for label, there in {"bias": bias, "no bias": None}.items():
        out, out_slope = inputs.empty(num_rows, channels), inputs.empty(num_rows, NUM_PARTS * channels)
        gated_convolve(rows, weight, there, begins, out)
        gated_convolve_backward(slope, rows, weight, there, begins, out_slope)
        found |= {f"out ({label})": out, f"gradient ({label})": out_slope}
    return found


def gated_norms(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the gated norm of the delta rule's heads, or of a scan's groups, and its gradients."""
    from tunesmith_engine.kernels.gated_norm import HEADS, SIGMOID_HEADS, Form, gated_norm, gated_norm_backward

    if sizes.channel_delta:
        num_heads, _, width, _ = sizes.channel_delta
        norm, form, columns = Norm(inputs.random(width), 1e-6), SIGMOID_HEADS, num_heads * width
    elif sizes.delta_heads:
        _, num_heads, _, width = sizes.delta_heads
        norm, form, columns = Norm(inputs.random(width), 1e-6), HEADS, num_heads * width
    else:
        _, num_heads, _, head, width, gate_first = sizes.scan
        columns, form = num_heads * head, Form(width, bool(gate_first))
        norm = Norm(inputs.random(columns), 1e-6)
    x, gate, slope = (inputs.rows(columns) for _ in range(3))
    out, gate_slope = (inputs.empty(NUM_ROWS, columns) for _ in range(2))
    gated_norm(x, gate, norm, out, form)
    gated_norm_backward(slope, x, gate, norm, slope, gate_slope, form)
    return {"out": out, "gradient": slope, "gate gradient": gate_slope}


def has_gated_norm(sizes: Sizes) -> bool:
    """Return whether a model has a gated norm behind its rule or its scan."""
    return bool(sizes.delta_heads or sizes.channel_delta or (sizes.scan and sizes.scan[4]))


def latent_heads(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the heads of latent attention and the gradients of what they are made from."""
    from tunesmith_engine.kernels.latent_heads import Form, gather, spread

    num_heads, plain, turning, value, interleaved = sizes.latent
    form = Form(num_heads, plain, turning, value, plain + turning, bool(interleaved))
    query, expanded, values = form.widths
    widths = {"query": query, "expanded": expanded, "shared": turning}
    outs = {"queries": query, "keys": query, "values": values}
    angle = inputs.random(NUM_ROWS, turning // 2)
    angle = angle.repeat_interleave(2, 1) if interleaved else angle.repeat(1, 2)
    table = angle.cos(), angle.sin()
    found = {name: inputs.empty(NUM_ROWS, width) for name, width in outs.items()}
    slopes = {f"{name} gradient": inputs.empty(NUM_ROWS, width) for name, width in widths.items()}
    q, kv, shared = (inputs.rows(width) for width in widths.values())
    spread(form, q, kv, shared, table, tuple(found.values()))
    dq, dk, dv = (inputs.rows(width) for width in outs.values())
    gather(form, (dq, dk, dv), table, *slopes.values())
    return found | slopes


def _bounds(inputs: Inputs) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32, device=inputs.device)
