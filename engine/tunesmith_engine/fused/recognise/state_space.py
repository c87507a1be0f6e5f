"""The state-space scan of a layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.convolution import convolved, copied
from tunesmith_engine.fused.recognise.parts import linear_sizes
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, replaced, result_of
from tunesmith_engine.kernels import gated_norm
from tunesmith_engine.kernels.short_convolution import LARGEST_WIDTH
from tunesmith_engine.kernels.state_space import LARGEST_HEAD, LARGEST_STATE
from tunesmith_engine.mixer_shapes import Norm, StateSpaceShape
from tunesmith_engine.shapes import NotFusableError


def read_state_space(name: str, module: nn.Module) -> StateSpaceShape:
    """Return the shape of a module with the state-space scan.

    Args:
        name: for messages.
        module: one whose forward pass has only words that we know.

    Raises:
        NotFusableError: it is computed in a way that we don't know, or its sizes are beyond the kernels'.
    """
    convolution, low_high = module.conv1d, module.time_step_limit
    if type(convolution) is not nn.Conv1d:
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    bias = convolution.bias
    norm, norm_width = _read_norm(name, module)
    shape = StateSpaceShape(
        inputs=(module.in_proj,),
        output=module.out_proj,
        num_groups=module.n_groups,
        num_heads=module.num_heads,
        state_dim=module.ssm_state_size,
        head_dim=module.head_dim,
        convolution=convolution.weight.detach().flatten(1),
        convolution_bias=None if bias is None else bias.detach(),
        step_bias=module.dt_bias.detach(),
        decay_log=module.A_log.detach(),
        skip=module.D.detach(),
        limits=(float(low_high[0]), float(low_high[1])),
        norm=norm,
        norm_width=norm_width,
        scales=_scales(name, module),
    )
    _check_sizes(name, shape)
    for gate_first in (True, False):
        guess = replace(shape, gate_first=gate_first)
        if _agrees(name, module, guess):
            return guess
    raise NotFusableError(
        "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
    )


def _read_norm(name: str, module: nn.Module) -> tuple[Norm | None, int]:
    """Return the gated norm and the width of its groups; None where there is a gate alone.

    Raises:
        NotFusableError: it is something else.
    """
    norm = module.norm
    if isinstance(norm, nn.Identity):
        return None, 0
    eps, roles = getattr(norm, "variance_epsilon", None), [role for role, _ in norm.named_parameters()]
    if roles != ["weight"] or not isinstance(eps, float):
        raise NotFusableError(
            "{name} ({kind}) is not a norm with a weight.", name=f"{name}.norm", kind=type(norm).__name__
        )
    weight = norm.weight.detach()
    own = getattr(norm, "n_groups", None)
    width = norm.group_size if own is None else weight.numel() // own
    return Norm(weight, eps), width


def _scales(name: str, module: nn.Module) -> torch.Tensor | None:
    """Return what the outputs of the input projection are multiplied by (Falcon H1), or None.

    Raises:
        NotFusableError: a factor of the input would have to leave the projection's bias alone.
    """
    used = words.words(module)
    factor = float(module.ssm_in_multiplier) if "ssm_in_multiplier" in used else 1.0
    if "mup_vector" not in used:
        if factor == 1.0:
            return None
        scales = torch.ones(linear_sizes(f"{name}.in_proj", module.in_proj)[1], device=module.D.device)
    else:
        scales = module.mup_vector.detach().flatten().float()
    if factor != 1.0 and getattr(module.in_proj, "bias", None) is not None:
        raise NotFusableError("{name} multiplies the input of a projection with a bias.", name=name)
    return scales * factor


def _check_sizes(name: str, shape: StateSpaceShape) -> None:
    """Refuse sizes that don't fit each other or the kernels.

    Raises:
        NotFusableError: it says which.
    """
    num_values, num_inputs = shape.numbers_per_token, linear_sizes(f"{name}.out_proj", shape.output)[0]
    num_outputs = linear_sizes(f"{name}.in_proj", shape.inputs[0])[1]
    channels, width = shape.convolution.shape
    of_norm = num_values if shape.norm is None or shape.norm.weight is None else shape.norm.weight.numel()
    fits = (num_outputs, num_inputs) == (num_values + shape.num_channels + shape.num_heads, num_values)
    fits &= channels == shape.num_channels and shape.num_heads % shape.num_groups == 0 and of_norm == num_values
    if not fits or (shape.norm_width and num_values % shape.norm_width):
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    largest = shape.state_dim <= LARGEST_STATE and shape.head_dim <= LARGEST_HEAD and width <= LARGEST_WIDTH
    if not largest or shape.norm_width > gated_norm.LARGEST_WIDTH:
        raise NotFusableError(
            "{name} has heads of {head_dim} with states of {state_dim} and a convolution of {width}; at most "
            "{largest}, {most} and {widest} are supported.",
            name=name,
            head_dim=shape.head_dim,
            state_dim=shape.state_dim,
            width=width,
            largest=LARGEST_HEAD,
            most=LARGEST_STATE,
            widest=LARGEST_WIDTH,
        )


def _agrees(name: str, module: nn.Module, shape: StateSpaceShape) -> bool:
    """Whether the module's own code, run on stand-ins, gives what a shape says."""
    make = StandIns()
    matrix = make.matrix(WIDTH, linear_sizes(name, module.in_proj)[1])
    convolution = copied(module.conv1d, make)
    # Decays of about a half, so that it shows what a token forgets.
    weights = {
        "A_log": nn.Parameter(make.numbers(shape.num_heads) * 0.5),
        "dt_bias": nn.Parameter(make.numbers(shape.num_heads)),
        "D": nn.Parameter(make.numbers(shape.num_heads)),
    }
    parts: dict[str, nn.Module] = {"in_proj": matrix, "conv1d": convolution, "out_proj": nn.Identity()}
    tried = replace(
        shape, step_bias=weights["dt_bias"].detach(), decay_log=weights["A_log"].detach(), skip=weights["D"].detach()
    )
    if shape.norm is not None:
        parts["norm"] = make.norm(module.norm, shape.numbers_per_token)
        tried = replace(tried, norm=replace(shape.norm, weight=parts["norm"].weight.detach()))
    twin = replaced(module, parts, weights)
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(hidden_states=x, cache_params=None, attention_mask=None))
    product = matrix(x)[0] if shape.scales is None else matrix(x)[0] * shape.scales.cpu()
    with torch.no_grad():
        return agrees(result[0], _plain_scan(tried, product, convolution))


def _plain_scan(shape: StateSpaceShape, product: torch.Tensor, convolution: nn.Module) -> torch.Tensor:
    """Return the input of the output projection for one document, [T, heads * head_dim], token by token.

    Args:
        shape: of the scan.
        product: output of the input projection times the scales, [T, N].
        convolution: in place of the shape's.
    """
    num_values, num_states = shape.numbers_per_token, shape.num_groups * shape.state_dim
    z, channels, raw = product.split([num_values, shape.num_channels, shape.num_heads], dim=1)
    mixed = functional.silu(convolved(channels, convolution))
    x, b, c = mixed.split([num_values, num_states, num_states], dim=1)
    x = x.unflatten(1, (shape.num_heads, shape.head_dim))
    repeat = shape.num_heads // shape.num_groups
    b, c = (part.unflatten(1, (shape.num_groups, -1)).repeat_interleave(repeat, 1) for part in (b, c))
    steps = functional.softplus(raw + shape.step_bias).clamp(*shape.limits)
    decays = torch.exp(-shape.decay_log.exp() * steps)
    state, outputs = torch.zeros(shape.num_heads, shape.state_dim, shape.head_dim), []
    for token in range(len(product)):
        written = b[token, :, :, None] * (x[token] * steps[token, :, None])[:, None, :]
        state = state * decays[token, :, None, None] + written
        outputs.append((state * c[token, :, :, None]).sum(1) + shape.skip[:, None] * x[token])
    heads = torch.stack(outputs).flatten(1)
    if shape.norm is None or shape.norm.weight is None:
        return heads * functional.silu(z)
    heads = heads * functional.silu(z) if shape.gate_first else heads
    groups = heads.unflatten(1, (-1, shape.norm_width))
    normal = groups * (groups.square().mean(-1, keepdim=True) + shape.norm.eps).rsqrt()
    weighted = normal.flatten(1) * shape.norm.weight
    return weighted if shape.gate_first else weighted * functional.silu(z)
