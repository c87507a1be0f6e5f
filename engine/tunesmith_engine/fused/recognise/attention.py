"""Attention of one layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import Layout, in_pairs
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, replaced, result_of
from tunesmith_engine.shapes import AttentionShape, Norm, NotFusableError

SPREAD = 5.0
"""Standard deviation of the trial's scores: so large that a soft cap of 50 shows."""


def read_attention(name: str, module: nn.Module, window: int | None, layout: Layout | None) -> AttentionShape:
    """Return the shape of an attention module.

    Args:
        name: for messages.
        module: attention whose forward pass has only words that we know.
        window: of this layer's mask.
        layout: of the model's rotary table, if it has one.

    Raises:
        NotFusableError: it is computed in a way that we don't know.
    """
    check_no_dropout(name, module)
    gated = "sigmoid" in words.words(module)
    roles, num_heads, num_key_value_heads = _inputs(name, module, gated)
    shape = AttentionShape(
        inputs=tuple(getattr(module, role) for role in roles),
        output=module.o_proj,
        num_heads=num_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=module.head_dim,
        scale=float(module.scaling),
        softcap=module.attn_logit_softcapping if "softcap" in words.words(module) else None,
        window=window,
        query_norm=_head_norm(name, module, "q_norm", num_heads),
        key_norm=_head_norm(name, module, "k_norm", num_key_value_heads),
        gated=gated,
    )
    return _with_rotation(name, module, roles, shape, layout)


def _inputs(name: str, module: nn.Module, gated: bool) -> tuple[tuple[str, ...], int, int]:
    """Return the names of the input projections, the number of heads, and that of key and value heads."""
    roles = ("qkv_proj",) if hasattr(module, "qkv_proj") else ("q_proj", "k_proj", "v_proj")
    head_dim, groups = getattr(module, "head_dim", 0), getattr(module, "num_key_value_groups", 0)
    if not (head_dim and groups and all(hasattr(module, role) for role in (*roles, "o_proj", "scaling"))):
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    width = sum(linear_sizes(f"{name}.{role}", getattr(module, role))[1] for role in roles)
    in_group = (groups * 2 if gated else groups) + 2
    num_key_value_heads = width // (in_group * head_dim)
    if width != num_key_value_heads * in_group * head_dim:
        raise NotFusableError(
            "{name}: {width} outputs don't divide into heads of {head_dim} in groups of {groups}.",
            name=name,
            width=width,
            head_dim=head_dim,
            groups=groups,
        )
    return roles, num_key_value_heads * groups, num_key_value_heads


def _head_norm(name: str, module: nn.Module, role: str, num_heads: int) -> Norm | None:
    """Return the norm of queries or keys, of one head's width or of all heads together."""
    if role not in words.words(module) or not hasattr(module, role):
        return None
    norm = read_norm(f"{name}.{role}", getattr(module, role))
    if norm.weight is None or norm.weight.shape not in ((module.head_dim,), (num_heads * module.head_dim,)):
        raise NotFusableError("{name} fits neither one head nor all heads together.", name=f"{name}.{role}")
    return norm


def _with_rotation(
    name: str, module: nn.Module, roles: tuple[str, ...], shape: AttentionShape, layout: Layout | None
) -> AttentionShape:
    """Run the module's own code on stand-ins; return the shape with the kind of rotation that gives the same.

    Raises:
        NotFusableError: none does.
    """
    make = StandIns()
    parts: dict[str, nn.Module] = {}
    for role in roles:
        parts[role] = make.matrix(WIDTH, linear_sizes(role, getattr(module, role))[1])
    parts["o_proj"] = nn.Identity()
    norms = {"q_norm": shape.query_norm, "k_norm": shape.key_norm}
    for role, norm in norms.items():
        if norm is not None and norm.weight is not None:
            parts[role] = make.norm(getattr(module, role), norm.weight.shape[0])
            norms[role] = replace(norm, weight=parts[role].weight)
    tried = replace(shape, query_norm=norms["q_norm"], key_norm=norms["k_norm"])
    twin = replaced(module, parts, {})
    twin.config = copy.copy(module.config)
    twin.config._attn_implementation = "eager"
    x = make.numbers(1, NUM_TOKENS, WIDTH) * (SPREAD / (shape.scale * shape.head_dim**0.5)) ** 0.5
    layout = layout or Layout(2, True)
    cos, sin = layout.spread(make.numbers(2, 1, NUM_TOKENS, layout.width // 2))
    mask = torch.full((1, 1, NUM_TOKENS, NUM_TOKENS), torch.finfo(torch.float32).min).triu(1)
    result = result_of(name, lambda: twin(hidden_states=x, position_embeddings=(cos, sin), attention_mask=mask))
    projected = torch.cat([parts[role](x) for role in roles], dim=-1)[0]
    for rotary, interleaved in ((True, False), (True, True), (False, False)):
        guess = replace(tried, rotary=rotary, interleaved=interleaved)
        table = [in_pairs(part[0]) if interleaved and layout.halves else part[0] for part in (cos, sin)]
        if agrees(result[0], _plain_attention(guess, projected, *table)):
            return replace(shape, rotary=rotary, interleaved=interleaved)
    raise NotFusableError(
        "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
    )


def _plain_attention(
    shape: AttentionShape, projected: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return attention of one document before the output projection, [T, heads * head_dim].

    Args:
        shape: of attention; the window is not looked at, for it lies in the mask.
        projected: queries, keys and values side by side, [T, (H + 2 K) head_dim].
        cos, sin: [T, rotary width].
    """
    num_query, num_key = shape.numbers_per_token, shape.num_key_value_heads * shape.head_dim
    q, k, v = projected.split([num_query * (2 if shape.gated else 1), num_key, num_key], dim=-1)
    gate = q.unflatten(-1, (shape.num_heads, -1))[..., shape.head_dim :].flatten(1)
    q = q.unflatten(-1, (shape.num_heads, -1))[..., : shape.head_dim].flatten(1)
    turned = []
    for numbers, norm in ((q, shape.query_norm), (k, shape.key_norm)):
        heads = numbers
        if norm is not None and norm.weight is not None and norm.weight.shape[0] == numbers.shape[-1]:
            heads, norm = normalise(numbers, norm), None
        heads = heads.unflatten(-1, (-1, shape.head_dim)).transpose(0, 1)
        heads = heads if norm is None else normalise(heads, norm)
        turned.append(_rotate(heads, cos, sin, shape.interleaved) if shape.rotary else heads)
    repeat = shape.num_heads // shape.num_key_value_heads
    keys, values = (
        h.repeat_interleave(repeat, 0) for h in (turned[1], v.unflatten(-1, (-1, shape.head_dim)).transpose(0, 1))
    )
    scores = turned[0] @ keys.transpose(1, 2) * shape.scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    result = (shares @ values).transpose(0, 1).flatten(1)
    return result * gate.sigmoid() if shape.gated else result


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Turn the first numbers of each head, as many as the table has: [heads, T, head_dim]."""
    turned, rest = heads[..., : cos.shape[-1]], heads[..., cos.shape[-1] :]
    if interleaved:
        crossed = torch.stack((-turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    else:
        first, second = turned.chunk(2, dim=-1)
        crossed = torch.cat((-second, first), dim=-1)
    return torch.cat((turned * cos + crossed * sin, rest), dim=-1)
