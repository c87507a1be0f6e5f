"""The gated delta rule of a layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise.convolution import copied
from tunesmith_engine.fused.recognise.parts import linear_sizes
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    StandIns,
    agrees,
    in_order,
    replaced,
    result_of,
)
from tunesmith_engine.kernels.delta_rule import LARGEST_HEAD_DIM
from tunesmith_engine.kernels.delta_rule_twin import EPS
from tunesmith_engine.kernels.short_convolution import LARGEST_WIDTH
from tunesmith_engine.mixer_shapes import DeltaShape, Norm, Piece
from tunesmith_engine.shapes import NotFusableError


@dataclass(frozen=True, slots=True)
class Roles:
    """What transformers calls the parts of a rule.

    Attributes:
        inputs: modules that give q, k, v, z, b and a.
        in_two: these lie group by group in what two modules give (Qwen3-Next).
        norm: behind the rule.
        output: the output projection.
    """

    inputs: tuple[str, ...]
    in_two: bool = False
    norm: str = "norm"
    output: str = "out_proj"


ROLES = (
    Roles(("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")),
    Roles(("in_proj_qkvz", "in_proj_ba"), in_two=True),
    Roles(("q_proj", "k_proj", "v_proj", "g_proj", "b_proj", "a_proj"), norm="o_norm", output="o_proj"),
)
"""Of Qwen3.5, Qwen3-Next and OLMo Hybrid."""


def read_delta(name: str, module: nn.Module) -> DeltaShape:
    """Return the shape of a module with the gated delta rule.

    Args:
        name: for messages.
        module: one whose forward pass has only words that we know.

    Raises:
        NotFusableError: it is computed in a way that we don't know, or its sizes are beyond the kernels'.
    """
    roles = next((each for each in ROLES if all(hasattr(module, role) for role in each.inputs)), None)
    convolution = module.conv1d
    norm = getattr(module, roles.norm) if roles else None
    of_norm = [] if norm is None else [role for role, _ in norm.named_parameters()]
    if roles is None or norm is None or type(convolution) is not nn.Conv1d or of_norm != ["weight"]:
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    num_key_heads, key_dim = module.num_k_heads, module.head_k_dim
    num_heads, value_dim = module.num_v_heads, module.head_v_dim
    bias = convolution.bias
    shape = DeltaShape(
        inputs=tuple(getattr(module, role) for role in roles.inputs),
        pieces=_pieces(num_key_heads, key_dim, num_heads // num_key_heads, value_dim) if roles.in_two else None,
        output=getattr(module, roles.output),
        num_key_heads=num_key_heads,
        num_heads=num_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        convolution=convolution.weight.detach().flatten(1),
        convolution_bias=None if bias is None else bias.detach(),
        decay_log=module.A_log.detach(),
        decay_bias=module.dt_bias.detach(),
        norm=Norm(norm.weight.detach(), float(norm.variance_epsilon)),
        strength=2.0 if getattr(module, "allow_neg_eigval", False) else 1.0,
    )
    _check_sizes(name, roles, shape)
    _try(name, module, roles, shape)
    return shape


def _pieces(num_groups: int, key_dim: int, in_group: int, value_dim: int) -> tuple[Piece, ...]:
    """Return where q, k, v, z, b and a lie: those of a group's heads side by side, then b and a likewise."""
    widths = key_dim, key_dim, in_group * value_dim, in_group * value_dim
    both = sum(widths)
    starts = [sum(widths[:index]) for index in range(len(widths))]
    first = num_groups * both
    wide = [Piece(start, num_groups, both, width) for start, width in zip(starts, widths, strict=True)]
    return *wide, *(Piece(first + part * in_group, num_groups, 2 * in_group, in_group) for part in range(2))


def _check_sizes(name: str, roles: Roles, shape: DeltaShape) -> None:
    """Refuse sizes that don't fit each other or the kernels.

    Raises:
        NotFusableError: it says which.
    """
    num_outputs = shape.num_channels + shape.numbers_per_token + 2 * shape.num_heads
    found = sum(linear_sizes(f"{name}.{role}", part)[1] for role, part in zip(roles.inputs, shape.inputs, strict=True))
    channels, width = shape.convolution.shape
    fits = shape.num_heads % shape.num_key_heads == 0 and channels == shape.num_channels and found == num_outputs
    if not fits or linear_sizes(f"{name}.{roles.output}", shape.output)[0] != shape.numbers_per_token:
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


def _try(name: str, module: nn.Module, roles: Roles, shape: DeltaShape) -> None:
    """Hold the formula against the module's own code on stand-ins.

    Raises:
        NotFusableError: it gives something else.
    """
    make = StandIns()
    matrices = {role: make.matrix(WIDTH, linear_sizes(role, getattr(module, role))[1]) for role in roles.inputs}
    convolution = copied(module.conv1d, make)
    norm = make.norm(getattr(module, roles.norm), shape.value_dim)
    # Decays of about a half, so that it shows what a token forgets.
    weights = {
        "A_log": nn.Parameter(make.numbers(shape.num_heads) * 0.5),
        "dt_bias": nn.Parameter(make.numbers(shape.num_heads)),
    }
    parts: Mapping[str, nn.Module] = {**matrices, "conv1d": convolution, roles.norm: norm, roles.output: nn.Identity()}
    twin = replaced(module, dict(parts), weights)
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(hidden_states=x, cache_params=None, attention_mask=None))
    tried = replace(
        shape,
        convolution=convolution.weight.detach().flatten(1),
        convolution_bias=None if convolution.bias is None else convolution.bias.detach(),
        decay_log=weights["A_log"].detach(),
        decay_bias=weights["dt_bias"].detach(),
        norm=replace(shape.norm, weight=norm.weight.detach()),
    )
    product = torch.cat([matrices[role](x)[0] for role in roles.inputs], dim=1)
    if not agrees(result[0], _plain_rule(tried, product)):
        raise NotFusableError(
            "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
        )


def _plain_rule(shape: DeltaShape, product: torch.Tensor) -> torch.Tensor:
    """Return the input of the output projection for one document, [T, heads * value_dim], token by token.

    Args:
        shape: of the rule.
        product: outputs of the inputs side by side, [T, N].
    """
    sizes = [shape.num_channels, shape.numbers_per_token, shape.num_heads, shape.num_heads]
    channels, z, b, a = in_order(product, shape.pieces).split(sizes, dim=1)
    padded = functional.pad(channels, (0, 0, shape.convolution.shape[1] - 1, 0))
    windows = padded.unfold(0, shape.convolution.shape[1], 1)
    mixed = (windows * shape.convolution).sum(-1)
    mixed = functional.silu(mixed if shape.convolution_bias is None else mixed + shape.convolution_bias)
    num_keys = shape.num_key_heads * shape.key_dim
    q, k, v = mixed.split([num_keys, num_keys, shape.numbers_per_token], dim=1)
    repeat = shape.num_heads // shape.num_key_heads
    q, k = (
        (x * (x.square().sum(-1, keepdim=True) + EPS).rsqrt()).repeat_interleave(repeat, 1)
        for x in (part.unflatten(1, (-1, shape.key_dim)) for part in (q, k))
    )
    v = v.unflatten(1, (-1, shape.value_dim))
    decays = torch.exp(-shape.decay_log.exp() * functional.softplus(a + shape.decay_bias))
    state, outputs = torch.zeros(shape.num_heads, shape.key_dim, shape.value_dim), []
    for token in range(len(product)):
        state = state * decays[token, :, None, None]
        wrong = v[token] - (state * k[token, :, :, None]).sum(1)
        strengths = shape.strength * b[token].sigmoid()[:, None]
        state = state + k[token, :, :, None] * (strengths * wrong)[:, None, :]
        outputs.append((state * q[token, :, :, None]).sum(1) * shape.key_dim**-0.5)
    heads = torch.stack(outputs)
    weight = shape.norm.weight if shape.norm.weight is not None else 1.0
    normal = heads * (heads.square().mean(-1, keepdim=True) + shape.norm.eps).rsqrt() * weight
    return (normal * functional.silu(z.unflatten(1, (-1, shape.value_dim)))).flatten(1)
