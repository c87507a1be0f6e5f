"""Attention with norms of values, or with keys and values that layers share: read, then held against its own code."""

from __future__ import annotations

import copy
import inspect
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise.attention import SPREAD, attended, turned_heads
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import Layout
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    StandIns,
    agrees,
    in_order,
    replaced,
    result_of,
)
from tunesmith_engine.mixer_shapes import AttentionShape, Norm, Piece
from tunesmith_engine.shapes import NotFusableError

SHARED = "shared_kv_states"
"""The keyword by which layers hand each other keys and values."""

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Lent:
    """Keys and values that a layer has put down: its index and the shape of its attention."""

    layer: int
    shape: AttentionShape


def shares(module: nn.Module) -> bool:
    """Whether attention takes a place for keys and values that layers share."""
    return SHARED in inspect.signature(inspect.unwrap(module.forward)).parameters


class _Store(UserDict[str, Pair]):
    """What layers put down and take, and the names of both."""

    def __init__(self, given: Pair | None) -> None:
        super().__init__()
        self.given, self.taken = given, ""

    def __getitem__(self, key: str) -> Pair:
        if self.given is not None:
            self.taken = key
            return self.given
        return super().__getitem__(key)


def read_sharing(
    name: str, module: nn.Module, window: int | None, layout: Layout | None, lent: dict[str, Lent], index: int
) -> AttentionShape:
    """Return the shape of an attention module that may share keys and values.

    Args:
        name, module, window, layout: as in `read_attention`.
        lent: what earlier layers put down, by name; this layer's is added.
        index: of the layer.

    Raises:
        NotFusableError: it is computed in a way that we don't know.
    """
    check_no_dropout(name, module)
    if layout is None:
        raise NotFusableError("{name} has no rotary table.", name=name)
    has_keys = getattr(module, "k_proj", None) is not None
    shape = _own(name, module, window) if has_keys else _reading(name, module, window, lent)
    twin, parts = _twin(module, shape)
    make = StandIns()
    x = make.numbers(1, NUM_TOKENS, WIDTH) * (SPREAD / (shape.scale * shape.head_dim**0.5)) ** 0.5
    angles = make.numbers(2, 1, NUM_TOKENS, layout.width // 2)
    cos, sin = layout.spread(angles)
    sizes = 1, shape.num_key_value_heads, NUM_TOKENS, shape.head_dim
    store = _Store(None if has_keys else (make.numbers(*sizes), make.numbers(*sizes)))
    mask = torch.full((1, 1, NUM_TOKENS, NUM_TOKENS), torch.finfo(torch.float32).min).triu(1)
    given = {"hidden_states": x, "position_embeddings": layout.handed(angles), "attention_mask": mask, SHARED: store}
    result = result_of(name, lambda: twin(**given))
    projected = torch.cat([parts[role](x) for role in _roles(module)], dim=-1)[0]
    tried = _tried(shape, parts)
    for interleaved in (False, True):
        guess = replace(tried, interleaved=interleaved)
        if not layout.halves and not interleaved:
            continue
        q, k, v = _plain(guess, projected, cos[0], sin[0], store.given)
        if not agrees(result[0], attended(guess, q, k, v)):
            continue
        found = replace(shape, interleaved=interleaved)
        if not has_keys:
            source = lent.get(store.taken)
            if source is None or _sizes_of_keys(source.shape) != _sizes_of_keys(shape):
                break
            return replace(found, source=source.layer)
        for key, pair in store.items():
            if not (agrees(pair[0][0], k) and agrees(pair[1][0], v)):
                break
            lent[key] = Lent(index, found)
        else:
            return found
    raise NotFusableError(
        "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
    )


def _sizes_of_keys(shape: AttentionShape) -> tuple[int, int]:
    return shape.num_key_value_heads, shape.head_dim


def _own(name: str, module: nn.Module, window: int | None) -> AttentionShape:
    """Return the shape of attention with keys of its own."""
    roles, head_dim = _roles(module), int(getattr(module, "head_dim"))  # noqa: B009 - a module's part has no type
    widths = {role: linear_sizes(f"{name}.{role}", getattr(module, role))[1] for role in roles}
    num_query, num_key = widths["q_proj"], widths["k_proj"]
    by_keys = "v_proj" not in roles
    if num_query % head_dim or num_key % head_dim or (not by_keys and widths["v_proj"] != num_key):
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    whole = Piece(0, 1, num_query, num_query), Piece(num_query, 1, num_key, num_key)
    return AttentionShape(
        inputs=tuple(getattr(module, role) for role in roles),
        output=module.o_proj,
        num_heads=num_query // head_dim,
        num_key_value_heads=num_key // head_dim,
        head_dim=head_dim,
        scale=float(module.scaling),
        window=window,
        query_norm=_norm(f"{name}.q_norm", module, "q_norm", head_dim),
        key_norm=_norm(f"{name}.k_norm", module, "k_norm", head_dim),
        value_norm=_norm(f"{name}.v_norm", module, "v_norm", head_dim),
        values_are_keys=by_keys,
        pieces=(*whole, whole[1]) if by_keys else None,
    )


def _reading(name: str, module: nn.Module, window: int | None, lent: Mapping[str, Lent]) -> AttentionShape:
    """Return the shape of attention that reads an earlier layer's keys and values."""
    head_dim = int(module.head_dim)
    _, num_query = linear_sizes(f"{name}.q_proj", module.q_proj)
    sources = [other.shape for other in lent.values() if other.shape.head_dim == head_dim]
    if not sources or num_query % head_dim:
        raise NotFusableError("{name} reads keys and values that no earlier layer has.", name=name)
    return AttentionShape(
        inputs=(module.q_proj,),
        output=module.o_proj,
        num_heads=num_query // head_dim,
        num_key_value_heads=num_query // head_dim // int(module.num_key_value_groups),
        head_dim=head_dim,
        scale=float(module.scaling),
        window=window,
        query_norm=_norm(f"{name}.q_norm", module, "q_norm", head_dim),
        # Which layer's shows when its code has run.
        source=-1,
    )


def _norm(name: str, module: nn.Module, role: str, head_dim: int) -> Norm | None:
    """Return the norm of each head of queries, keys or values."""
    part = getattr(module, role, None)
    if part is None:
        return None
    has_weight = any(True for _ in part.parameters())
    norm = read_norm(name, part) if has_weight else _norm_without_weight(name, part, head_dim)
    if norm.centred or norm.bias is not None or (norm.weight is not None and norm.weight.shape != (head_dim,)):
        raise NotFusableError("{name} is not a norm of each head.", name=name)
    return norm


def _norm_without_weight(name: str, module: nn.Module, width: int) -> Norm:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    x = StandIns().numbers(NUM_TOKENS, width)
    if isinstance(eps, float):
        norm = Norm(None, eps)
        # The variance is about eps in some rows, so that a wrong eps shows.
        some = torch.cat([x, x * eps**0.5])
        result = result_of(name, lambda: module(some))
        if all(agrees(part, normalise(row, norm)) for part, row in zip(result, some, strict=True)):
            return norm
    raise NotFusableError(
        "{name} ({kind}) is a norm with an unsupported formula.", name=name, kind=type(module).__name__
    )


def _roles(module: nn.Module) -> list[str]:
    return [role for role in ("q_proj", "k_proj", "v_proj") if getattr(module, role, None) is not None]


def _twin(module: nn.Module, shape: AttentionShape) -> tuple[nn.Module, dict[str, nn.Module]]:
    """Return the module on stand-ins, and these."""
    make = StandIns()
    parts: dict[str, nn.Module] = {"o_proj": nn.Identity()}
    for role in _roles(module):
        parts[role] = make.matrix(WIDTH, linear_sizes(role, getattr(module, role))[1])
    for role, norm in (("q_norm", shape.query_norm), ("k_norm", shape.key_norm)):
        if norm is not None:
            parts[role] = make.norm(getattr(module, role), shape.head_dim)
    twin = replaced(module, parts, {})
    twin.config = copy.copy(module.config)
    twin.config._attn_implementation = "eager"
    return twin, parts


def _tried(shape: AttentionShape, parts: Mapping[str, nn.Module]) -> AttentionShape:
    """Return a shape with the norms of the stand-ins."""
    query_norm, key_norm = (
        norm and replace(norm, weight=getattr(parts[role], "weight", None))
        for role, norm in (("q_norm", shape.query_norm), ("k_norm", shape.key_norm))
    )
    return replace(shape, query_norm=query_norm, key_norm=key_norm)


def _plain(
    shape: AttentionShape, projected: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, given: Pair | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, keys and values as the scores take them, [heads, T, head_dim]."""
    num_query, num_key = shape.numbers_per_token, shape.num_key_value_heads * shape.head_dim
    if given is not None:
        q = turned_heads(shape, projected, shape.query_norm, cos, sin)
        return q, given[0][0], given[1][0]
    q, k, v = in_order(projected, shape.pieces).split([num_query, num_key, num_key], dim=-1)
    values = v.unflatten(-1, (-1, shape.head_dim)).transpose(0, 1)
    if shape.value_norm is not None:
        values = normalise(values, shape.value_norm)
    turned = (turned_heads(shape, x, norm, cos, sin) for x, norm in ((q, shape.query_norm), (k, shape.key_norm)))
    return *turned, values
