"""Attention of one layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.biases import BIASES, alibi_of, takes_truth
from tunesmith_engine.fused.recognise.body import first_of
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import MODULE, TABLE, Layout, in_pairs
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Constant,
    NotTriedError,
    StandIns,
    accepted,
    agrees,
    in_order,
    replaced,
    result_of,
)
from tunesmith_engine.fused.recognise.steps import shown, with_steps
from tunesmith_engine.fused.recognise.wrapped import linear_inside, with_inside
from tunesmith_engine.mixer_shapes import AttentionShape, Norm, Piece
from tunesmith_engine.shapes import NotFusableError

SPREAD = 5.0
"""Standard deviation of the trial's scores: so large that a soft cap of 50 shows."""

MERGED = ("qkv_proj", "query_key_value", "c_attn", "Wqkv")
OUTPUT = ("o_proj", "out_proj", "dense", "c_proj")
NORMS = (
    ("q_norm", "k_norm"),
    ("q_layernorm", "k_layernorm"),
    ("query_layernorm", "key_layernorm"),
    ("qk_norm", "qk_norm"),
)
SCALES = ("scaling", "softmax_scale")
"""What transformers calls the factor of the scores."""
KEY_FACTOR = "key_multiplier"

GATES = ("gate_proj", "g_proj")
"""Projections of gates of the output: for each of its numbers (AFMoE), or for each head (LFM3, Laguna)."""
HEAD_GATES = {"sigmoid": torch.sigmoid, "softplus": nn.functional.softplus}
"""Functions of a head's gate."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a layer's tokens see of their document, beside a window.

    Attributes:
        chunk: of the layer's mask.
        slopes: what the decoder hands its layers of ALiBi, as in `AttentionShape`, before any factor.
    """

    chunk: int | None = None
    slopes: torch.Tensor | None = None


NOTHING_ELSE = Sight()


def read_attention(
    name: str, module: nn.Module, window: int | None, layout: Layout | None, sight: Sight = NOTHING_ELSE
) -> AttentionShape:
    """Return the shape of an attention module.

    Args:
        name: for messages.
        module: attention whose forward pass has only words that we know.
        window: of this layer's mask.
        layout: of the model's rotary table, if it has one.
        sight: what else the layer sees.

    Raises:
        NotFusableError: it is computed in a way that we don't know.
    """
    check_no_dropout(name, module)
    roles, output = _projections(name, module)
    head_dim = _head_dim(module, output)
    value_dim = module.v_head_dim if "v_head_dim" in words.words(module) else head_dim
    output_gate, head_gate = _gates(name, module, roles, output, value_dim)
    without = [role for role in roles if not (head_gate and role in GATES)]
    num_heads, num_key_value_heads = _num_heads(name, module, without, output, (head_dim, value_dim), output_gate)
    norms = next((pair for pair in NORMS if pair[0] in words.words(module)), NORMS[0])
    shape = AttentionShape(
        inputs=tuple(linear_inside(getattr(module, role))[1] for role in roles),
        output=linear_inside(getattr(module, output))[1],
        num_heads=num_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        scale=_scale(module, head_dim),
        softcap=module.attn_logit_softcapping if "softcap" in words.words(module) else None,
        window=_window(name, module, window),
        query_norm=_head_norm(name, module, norms[0], num_heads, head_dim),
        key_norm=_head_norm(name, module, norms[1], num_key_value_heads, head_dim),
        output_gate=output_gate,
        head_gate=head_gate,
        value_size=None if value_dim == head_dim else value_dim,
        chunk=sight.chunk,
        slopes=sight.slopes,
    )
    shape = with_steps(name, module, shape)
    return _with_rotation(name, module, (*roles, output), norms, shape, layout)


def _scale(module: nn.Module, head_dim: int) -> float:
    """Return the factor of the scores, with that of the keys (Falcon H1)."""
    scale = next((float(getattr(module, each)) for each in SCALES if hasattr(module, each)), head_dim**-0.5)
    return scale * float(module.key_multiplier) if KEY_FACTOR in words.words(module) else scale


def _projections(name: str, module: nn.Module) -> tuple[tuple[str, ...], str]:
    """Return the names of the input projections and of the output projection."""
    merged, output = first_of(module, MERGED), first_of(module, OUTPUT)
    roles = ("q_proj", "k_proj", "v_proj") if merged is None else (merged,)
    gate = first_of(module, GATES)
    if gate in words.words(module) and merged is None and words.words(module) & HEAD_GATES.keys():
        roles = (*roles, gate)
    if output is None or not all(hasattr(module, role) for role in roles):
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    return roles, output


def _head_dim(module: nn.Module, output: str) -> int:
    """Return the width of a head."""
    width = getattr(module, "head_dim", None) or getattr(module, "head_size", None)
    if width is None:
        width = linear_sizes(output, linear_inside(getattr(module, output))[1])[0] // int(module.n_head)
    return int(width)


def _window(name: str, module: nn.Module, window: int | None) -> int | None:
    """Return the window of a layer's mask, or that of the mask which attention holds itself (GPT-Neo).

    Raises:
        NotFusableError: it holds another mask.
    """
    for held in module._buffers.values():
        if held is None or held.dim() != len(("texts", "heads", "queries", "keys")):
            continue
        age = torch.arange(held.shape[-1], device=held.device)
        age = age[:, None] - age
        width = int(held[0, 0, -1].count_nonzero())
        if held.shape[:2] != (1, 1) or not torch.equal(held[0, 0].bool(), (age >= 0) & (age < width)):
            raise NotFusableError("{name} holds a mask that is not supported.", name=name)
        if width < held.shape[-1]:
            window = width if window is None else min(width, window)
    return window


def _gates(
    name: str, module: nn.Module, roles: tuple[str, ...], output: str, value_dim: int
) -> tuple[bool, str]:
    """Return whether each number of the output has a gate, and the function of heads' gates where these have some."""
    used, gate = words.words(module), roles[-1] if roles[-1] in GATES else None
    if gate is None:
        # Projections that are not there may be named nevertheless.
        return "sigmoid" in used and GATES[1] not in used, ""
    width = linear_sizes(f"{name}.{output}", linear_inside(getattr(module, output))[1])[0]
    function = next(function for function in HEAD_GATES if function in used)
    is_of_heads = linear_sizes(f"{name}.{gate}", linear_inside(getattr(module, gate))[1])[1] * value_dim == width
    return not is_of_heads and function == "sigmoid", function if is_of_heads else ""


def _num_heads(
    name: str, module: nn.Module, roles: Sequence[str], output: str, sizes: tuple[int, int], output_gate: bool
) -> tuple[int, int]:
    """Return the number of heads, and that of key and value heads."""
    parts = {role: linear_inside(getattr(module, role))[1] for role in (*roles, output)}
    widths = [linear_sizes(f"{name}.{role}", parts[role])[1] for role in roles]
    num_out = linear_sizes(f"{name}.{output}", parts[output])[0]
    head_dim, value_dim = sizes
    num_heads = num_out // value_dim
    # Queries may have their gates behind them.
    num_first = num_heads * head_dim + (num_out if output_gate else 0)
    num_key_value_heads = (sum(widths) - num_first) // (head_dim + value_dim)
    divides = num_key_value_heads > 0 and num_heads % num_key_value_heads == 0
    if not divides or num_out % value_dim or sum(widths) != num_first + num_key_value_heads * (head_dim + value_dim):
        raise NotFusableError(
            "{name}: {width} outputs don't divide into heads of {head_dim}.",
            name=name,
            width=sum(widths),
            head_dim=head_dim,
        )
    return num_heads, num_key_value_heads


def _head_norm(name: str, module: nn.Module, role: str, num_heads: int, head_dim: int) -> Norm | None:
    """Return the norm of queries or keys, of one head's width or of all heads together."""
    if role not in words.words(module) or not hasattr(module, role):
        return None
    norm = read_norm(f"{name}.{role}", getattr(module, role))
    if norm.weight is not None and norm.weight.shape not in ((head_dim,), (num_heads * head_dim,)):
        raise NotFusableError("{name} fits neither one head nor all heads together.", name=f"{name}.{role}")
    return norm


def _with_rotation(
    name: str,
    module: nn.Module,
    roles: tuple[str, ...],
    norm_roles: tuple[str, str],
    shape: AttentionShape,
    layout: Layout | None,
) -> AttentionShape:
    """Run the module's own code on stand-ins; return the shape with the rotation and the pieces that give the same.

    Raises:
        NotFusableError: none does.
    """
    try:
        return _tried(name, module, roles, norm_roles, shape, layout, WIDTH)
    except NotTriedError as error:
        try:
            # It may want its output as wide as its input (TrOCR).
            return _tried(name, module, roles, norm_roles, shape, layout, shape.output_width)
        except NotFusableError:
            raise error from None


def _tried(
    name: str,
    module: nn.Module,
    roles: tuple[str, ...],
    norm_roles: tuple[str, str],
    shape: AttentionShape,
    layout: Layout | None,
    hidden: int,
) -> AttentionShape:
    """Do what `_with_rotation` says with an input of a width."""
    make = StandIns()
    *inputs, output = roles
    widths = [linear_sizes(role, part)[1] for role, part in zip(inputs, shape.inputs, strict=True)]
    matrices = [make.matrix(hidden, width) for width in widths]
    parts = {role: with_inside(getattr(module, role), part) for role, part in zip(inputs, matrices, strict=True)}
    parts[output] = with_inside(getattr(module, output), nn.Identity())
    norms = dict(zip(norm_roles, (shape.query_norm, shape.key_norm), strict=True))
    for role, norm in norms.items():
        if norm is not None and norm.weight is not None:
            parts[role] = make.norm(getattr(module, role), norm.weight.shape[0])
            norms[role] = replace(norm, weight=parts[role].weight, bias=getattr(parts[role], "bias", None))
    tried = replace(shape, query_norm=norms[norm_roles[0]], key_norm=norms[norm_roles[1]])
    steps, tried = shown(module, tried, make)
    twin = replaced(module, parts | steps.parts, steps.parameters)
    steps.put_into(twin)
    x = make.numbers(1, NUM_TOKENS, hidden) * (SPREAD / (shape.scale * shape.head_dim**0.5)) ** 0.5
    has_table = layout is not None or TABLE in module._buffers
    layout = layout or Layout(2, True)
    angles = make.numbers(2, 1, NUM_TOKENS, layout.width // 2)
    cos, sin = layout.spread(angles)
    residual = make.numbers(1, NUM_TOKENS, linear_sizes(output, shape.output)[0])
    if TABLE in module._buffers:
        twin._buffers[TABLE] = torch.cat((angles[1, 0], angles[0, 0]), dim=-1)
    table = layout.handed(angles) if has_table else None
    if isinstance(getattr(module, MODULE, None), nn.Module):
        twin._modules[MODULE] = Constant(table)
    biases = dict.fromkeys(BIASES, alibi_of(shape.slopes))
    given = _accepted(module, {"hidden_states": x, "position_embeddings": table}, {"residual": residual, **biases})
    first = () if "hidden_states" in given else (x,)
    result = result_of(name, lambda: twin(*first, **given))[0]
    if "residual" in given:
        # It adds what its layer hands it (BLOOM).
        result = result - residual[0]
    projected = torch.cat([matrix(x) for matrix in matrices], dim=-1)[0]
    for guess in _guesses(tried, len(inputs), _scales(module, tried)):
        turns = [in_pairs(part[0]) if guess.interleaved and layout.halves else part[0] for part in (cos, sin)]
        if agrees(result, _plain_attention(guess, projected, *turns)):
            read = ("rotary", "interleaved", "backwards", "pieces", "norms_last", "slopes", "scale")
            return replace(shape, **{name: getattr(guess, name) for name in read})
    raise NotFusableError(
        "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
    )


def _accepted(module: nn.Module, usual: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a module takes of these, of a causal mask and of the tokens' positions."""
    mask = torch.full((1, 1, NUM_TOKENS, NUM_TOKENS), torch.finfo(torch.float32).min).triu(1)
    usual = {**usual, "attention_mask": mask < 0 if takes_truth(module) else mask}
    return accepted(module, usual, {**named, "position_ids": torch.arange(NUM_TOKENS)[None]})


ROTATIONS = ((True, False, False), (True, True, False), (False, False, False), (True, False, True))
"""Whether there is one, whether it turns neighbours, and whether it turns backwards."""


def _scales(module: nn.Module, shape: AttentionShape) -> tuple[float, ...]:
    """Return what the factor of the scores may be: where no attribute says it, there may be none (GPT-Neo)."""
    says = any(hasattr(module, name) for name in SCALES)
    return (shape.scale,) if says else (shape.scale, 1.0)


def _guesses(shape: AttentionShape, num_inputs: int, scales: tuple[float, ...]) -> Iterator[AttentionShape]:
    """Yield how a module may take its steps, where its attributes don't say."""
    has_norms = shape.query_norm is not None and shape.whole_width_norms is None
    factors = (None,) if shape.slopes is None else (1.0, shape.scale)
    for pieces, factor, scale in product(_pieces(shape, num_inputs), factors, scales):
        slopes = None if shape.slopes is None or factor is None else shape.slopes * factor
        for rotary, interleaved, backwards in ROTATIONS:
            for last in (False, True) if has_norms and rotary else (False,):
                yield replace(
                    shape,
                    scale=scale,
                    pieces=pieces,
                    slopes=slopes,
                    rotary=rotary,
                    interleaved=interleaved,
                    backwards=backwards,
                    norms_last=last,
                )


CODEGEN_PARTS = 4
"""Into which CodeGen's merged projection is divided, each with its queries, values and keys."""


def _pieces(shape: AttentionShape, num_inputs: int) -> Iterator[tuple[Piece, ...] | None]:
    """Yield where q, k, v and gates may lie in the output of the input projections; see `AttentionShape`."""
    heads, groups, width = shape.num_heads, shape.num_key_value_heads, shape.head_dim
    if shape.num_gates and num_inputs == 1 + len(("q", "k", "v")):
        yield None
        return
    if shape.output_gate:
        num_query, num_rest = heads * width, 2 * groups * width
        queries, gates = (Piece(start, heads, 2 * width, width) for start in (0, width))
        yield queries, Piece(2 * num_query, 1, num_rest, num_rest), gates
        return
    yield None
    if num_inputs > 1:
        return
    if groups > 1:
        # Each key head behind its queries, and its value head behind it.
        num_query = heads // groups * width
        stride = num_query + 2 * width
        keys, values = (Piece(start, groups, stride, width) for start in (num_query, num_query + width))
        yield Piece(0, groups, stride, num_query), keys, values
    if heads == groups and heads % CODEGEN_PARTS == 0:
        size = heads // CODEGEN_PARTS * width
        queries, values, keys = (Piece(start, CODEGEN_PARTS, 3 * size, size) for start in (0, size, 2 * size))
        yield queries, keys, values


def _plain_attention(
    shape: AttentionShape, projected: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return attention of one document before the output projection, [T, heads * head_dim].

    Args:
        shape: of attention; the window is not looked at, for it lies in the mask.
        projected: what the inputs give, queries, keys, values and gates by the shape's pieces, [T, N].
        cos, sin: [T, rotary width].
    """
    num_query, num_key = shape.numbers_per_token, shape.num_key_value_heads * shape.head_dim
    num_value = shape.num_key_value_heads * shape.value_dim
    q, k, v, gate = in_order(projected, shape.pieces).tensor_split(
        [num_query, num_query + num_key, num_query + num_key + num_value], dim=-1
    )
    q, k = (turned_heads(shape, x, norm, cos, sin) for x, norm in ((q, shape.query_norm), (k, shape.key_norm)))
    if shape.temperature is not None:
        q = q * shape.temperature.at(torch.arange(q.shape[1]))[:, None]
    v = (v if shape.clip is None else v.clamp(-shape.clip, shape.clip)) * shape.value_scale
    result = attended(shape, q, k, v.unflatten(-1, (-1, shape.value_dim)).transpose(0, 1))
    if shape.output_norm is not None:
        result = normalise(result, shape.output_norm)
    if shape.head_gate:
        return result * HEAD_GATES[shape.head_gate](gate).repeat_interleave(shape.value_dim, dim=-1)
    return result * gate.sigmoid() if shape.output_gate else result


def turned_heads(
    shape: AttentionShape, numbers: torch.Tensor, norm: Norm | None, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return queries or keys, [T, heads * head_dim], normalised and rotated, [heads, T, head_dim]."""
    if norm is not None and norm.weight is not None and norm.weight.shape[0] == numbers.shape[-1]:
        numbers, norm = normalise(numbers, norm), None
    heads = numbers.unflatten(-1, (-1, shape.head_dim)).transpose(0, 1)
    if norm is not None and not shape.norms_last:
        heads = normalise(heads, norm)
    heads = heads if shape.clip is None else heads.clamp(-shape.clip, shape.clip)
    sin = -sin if shape.backwards else sin
    heads = _rotate(heads, cos, sin, shape.interleaved) if shape.rotary else heads
    return normalise(heads, norm) if norm is not None and shape.norms_last else heads


def attended(shape: AttentionShape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return attention of one document, [T, heads * value width], from its [heads, T, width]."""
    repeat = shape.num_heads // shape.num_key_value_heads
    keys, values = (part.repeat_interleave(repeat, 0) for part in (k, v))
    scores = q @ keys.transpose(1, 2) * shape.scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    age = torch.arange(scores.shape[-1])[:, None] - torch.arange(scores.shape[-1])
    if shape.slopes is not None:
        scores = scores - shape.slopes.cpu()[:, None, None] * age
    scores = scores.masked_fill(age < 0, -torch.inf)
    if shape.sinks is not None:
        scores = torch.cat((scores, shape.sinks[:, None, None].expand(-1, len(age), 1)), -1)
    shares = scores.softmax(-1)[..., : len(age)]
    return (shares @ values).transpose(0, 1).flatten(1)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Turn the first numbers of each head, as many as the table has: [heads, T, head_dim]."""
    turned, rest = heads[..., : cos.shape[-1]], heads[..., cos.shape[-1] :]
    if interleaved:
        crossed = torch.stack((-turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    else:
        first, second = turned.chunk(2, dim=-1)
        crossed = torch.cat((-second, first), dim=-1)
    return torch.cat((turned * cos + crossed * sin, rest), dim=-1)
