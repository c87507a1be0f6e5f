"""The channel-wise delta rule of a layer: read from the module's attributes, then held against its own code."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise.convolution import convolved, copied
from tunesmith_engine.fused.recognise.parts import linear_sizes
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Matrix,
    StandIns,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.fused.recognise.words import FORGET_GATE, check_words
from tunesmith_engine.kernels.channel_delta import LARGEST_HEAD_DIM
from tunesmith_engine.kernels.delta_rule_twin import EPS
from tunesmith_engine.kernels.short_convolution import LARGEST_WIDTH
from tunesmith_engine.mixer_shapes import ChannelDeltaShape, Norm
from tunesmith_engine.shapes import NotFusableError

ROLES = ("q_proj", "k_proj", "v_proj", "b_proj", "conv1d", "o_norm", "o_proj")
DECAY = "forget_gate"
GATES = (("g_a_proj", "g_b_proj"), ("g_proj",))
RAW = (("f_a_proj", "f_b_proj"), ("f_proj",))
"""What transformers calls the projections of the output's gates, and those of the decays in a part of their own:
through latents, as Kimi Linear has them, or not."""


def is_channel_delta(module: nn.Module) -> bool:
    """Whether each channel of a key may have a decay of its own."""
    return hasattr(module, DECAY) and all(hasattr(module, role) for role in ROLES)


def read_channel_delta(name: str, module: nn.Module) -> ChannelDeltaShape:
    """Return the shape of a module with the channel-wise delta rule.

    Args:
        name: for messages.
        module: one whose forward pass has only words that we know.

    Raises:
        NotFusableError: it is computed in a way that we don't know, or its sizes are beyond the kernels'.
    """
    decay, convolution, norm = module.forget_gate, module.conv1d, module.o_norm
    check_words(f"{name}.{DECAY}", decay, FORGET_GATE)
    of_gates, of_raw = _roles(module, GATES), _roles(decay, RAW)
    of_norm = [role for role, _ in norm.named_parameters()]
    if not of_gates or not of_raw or type(convolution) is not nn.Conv1d or of_norm != ["weight"]:
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    gate, raw = getattr(module, of_gates[0]), getattr(decay, of_raw[0])
    bias = convolution.bias
    shape = ChannelDeltaShape(
        inputs=(module.q_proj, module.k_proj, module.v_proj, gate, raw, module.b_proj),
        gate_expansion=getattr(module, of_gates[1]) if len(of_gates) > 1 else None,
        decay_expansion=getattr(decay, of_raw[1]) if len(of_raw) > 1 else None,
        gate_columns=linear_sizes(f"{name}.{of_gates[0]}", gate)[1],
        decay_columns=linear_sizes(f"{name}.{DECAY}.{of_raw[0]}", raw)[1],
        output=module.o_proj,
        num_heads=int(module.num_heads),
        key_dim=int(decay.head_dim),
        value_dim=int(module.head_dim),
        convolution=convolution.weight.detach().flatten(1),
        convolution_bias=None if bias is None else bias.detach(),
        decay_log=decay.A_log.detach().flatten(),
        decay_bias=decay.dt_bias.detach(),
        decay_floor=_floor(decay),
        norm=Norm(norm.weight.detach(), float(norm.variance_epsilon)),
    )
    _check_sizes(name, shape)
    _try(name, module, shape)
    return shape


def _roles(module: nn.Module, names: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Return the names of projections that a module has; none where it has others."""
    return next((roles for roles in names if all(hasattr(module, role) for role in roles)), ())


def _floor(decay: nn.Module) -> float | None:
    """Return the lowest logarithm of a decay, where there is one."""
    if hasattr(decay, "safe_gate"):
        return float(decay.lower_bound) if decay.safe_gate else None
    floor = getattr(decay, "safe_gate_lower_bound", None)
    return None if floor is None else float(floor)


def _check_sizes(name: str, shape: ChannelDeltaShape) -> None:
    """Refuse sizes that don't fit each other or the kernels.

    Raises:
        NotFusableError: it says which.
    """
    num_keys, num_values = shape.num_keys, shape.numbers_per_token
    found = [linear_sizes(f"{name}.inputs", part)[1] for part in shape.inputs]
    expected = [num_keys, num_keys, num_values, shape.gate_columns, shape.decay_columns, shape.num_heads]
    for part, columns, width in (
        (shape.gate_expansion, shape.gate_columns, num_values),
        (shape.decay_expansion, shape.decay_columns, num_keys),
    ):
        found += linear_sizes(f"{name}.expansion", part) if part is not None else [columns]
        expected += [columns, width] if part is not None else [width]
    channels, width = shape.convolution.shape
    found += [channels, shape.decay_log.numel(), shape.decay_bias.numel()]
    found.append(linear_sizes(f"{name}.o_proj", shape.output)[0])
    expected += [shape.num_channels, shape.num_heads, num_keys, num_values]
    if found != expected:
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    if max(shape.key_dim, shape.value_dim) > LARGEST_HEAD_DIM or width > LARGEST_WIDTH:
        raise NotFusableError(
            "{name} has heads of {key_dim} and {value_dim} and a convolution of {width}; at most {largest} and "
            "{widest} are supported.",
            name=name,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            width=width,
            largest=LARGEST_HEAD_DIM,
            widest=LARGEST_WIDTH,
        )


def _try(name: str, module: nn.Module, shape: ChannelDeltaShape) -> None:
    """Hold the formula against the module's own code on stand-ins.

    Raises:
        NotFusableError: it gives something else.
    """
    make, decay = StandIns(), module.forget_gate
    widths = shape.num_keys, shape.num_keys, shape.numbers_per_token, shape.gate_columns, shape.decay_columns
    inputs = tuple(make.matrix(WIDTH, width) for width in (*widths, shape.num_heads))
    expansions = [
        make.matrix(columns, width) if part is not None else None
        for part, columns, width in (
            (shape.gate_expansion, shape.gate_columns, shape.numbers_per_token),
            (shape.decay_expansion, shape.decay_columns, shape.num_keys),
        )
    ]
    convolution, norm = copied(module.conv1d, make), make.norm(module.o_norm, shape.value_dim)
    # Decays of about a half, so that it shows what a token forgets.
    weights = {
        "A_log": nn.Parameter(make.numbers(*decay.A_log.shape) * 0.5),
        "dt_bias": nn.Parameter(make.numbers(*decay.dt_bias.shape)),
    }
    gate = replaced(decay, _named(_roles(decay, RAW), inputs[4], expansions[1]), weights)
    parts = dict(zip(ROLES[:3], inputs, strict=False))
    parts |= {"b_proj": inputs[5], "conv1d": convolution, "o_norm": norm, "o_proj": nn.Identity(), DECAY: gate}
    parts |= _named(_roles(module, GATES), inputs[3], expansions[0])
    twin = replaced(module, parts, {})
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(hidden_states=x, cache_params=None, attention_mask=None))
    tried = replace(
        shape,
        inputs=inputs,
        gate_expansion=expansions[0],
        decay_expansion=expansions[1],
        decay_log=weights["A_log"].detach().flatten(),
        decay_bias=weights["dt_bias"].detach(),
        norm=replace(shape.norm, weight=norm.weight.detach()),
    )
    if not agrees(result[0], _plain_rule(tried, convolution, x[0])):
        raise NotFusableError(
            "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
        )


def _named(roles: tuple[str, ...], first: Matrix, expansion: Matrix | None) -> dict[str, nn.Module]:
    """Return a projection, and what stands behind it, by their names."""
    return {roles[0]: first, **({} if expansion is None else {roles[1]: expansion})}


def _plain_rule(shape: ChannelDeltaShape, convolution: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the input of the output projection for one document, [T, heads * value_dim], token by token.

    Args:
        shape: with the stand-ins of all linear layers and the norm.
        convolution: the stand-in.
        x: what the rule reads, [T, WIDTH].
    """
    q, k, v, z, a, b = (part(x) for part in shape.inputs)
    z = z if shape.gate_expansion is None else shape.gate_expansion(z)
    a = a if shape.decay_expansion is None else shape.decay_expansion(a)
    widths = shape.num_keys, shape.num_keys, shape.numbers_per_token
    mixed = functional.silu(convolved(torch.cat([q, k, v], 1), convolution)).split(widths, 1)
    q, k, v = (part.unflatten(1, (shape.num_heads, -1)) for part in mixed)
    q, k = (part * (part.square().sum(-1, keepdim=True) + EPS).rsqrt() for part in (q, k))
    raw, rate = (a + shape.decay_bias).unflatten(1, (shape.num_heads, -1)), shape.decay_log.exp()[:, None]
    floor = shape.decay_floor
    logarithms = -rate * functional.softplus(raw) if floor is None else floor * torch.sigmoid(rate * raw)
    state, outputs = torch.zeros(shape.num_heads, shape.key_dim, shape.value_dim), []
    for token in range(len(x)):
        state = state * logarithms[token].exp()[:, :, None]
        wrong = v[token] - (state * k[token, :, :, None]).sum(1)
        state = state + k[token, :, :, None] * (b[token].sigmoid()[:, None] * wrong)[:, None, :]
        outputs.append((state * q[token, :, :, None]).sum(1) * shape.key_dim**-0.5)
    heads = torch.stack(outputs)
    weight = shape.norm.weight if shape.norm.weight is not None else 1.0
    normal = heads * (heads.square().mean(-1, keepdim=True) + shape.norm.eps).rsqrt() * weight
    return (normal * z.unflatten(1, (shape.num_heads, -1)).sigmoid()).flatten(1)
