"""Latent attention of a layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise import steps
from tunesmith_engine.fused.recognise.attention import SPREAD, attended, turned_heads
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import Layout, in_pairs
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Matrix,
    StandIns,
    accepted,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.mixer_shapes import LatentShape
from tunesmith_engine.shapes import NotFusableError

QUERIES, QUERY_LATENTS, QUERY_NORM, QUERY_EXPANSION = "q_proj", "q_a_proj", "q_a_layernorm", "q_b_proj"
LATENTS, NORM, EXPANSION, OUTPUT = "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"
OUTPUT_GATE = "g_proj"


def is_latent(module: nn.Module) -> bool:
    """Whether attention compresses keys and values."""
    return all(hasattr(module, role) for role in (LATENTS, NORM, EXPANSION))


def read_latent(name: str, module: nn.Module, layout: Layout | None) -> LatentShape:
    """Return the shape of latent attention.

    Args:
        name: for messages.
        module: attention whose forward pass has only words that we know.
        layout: of the model's rotary table, if it has one.

    Raises:
        NotFusableError: it is computed in a way that we don't know.
    """
    check_no_dropout(name, module)
    has_latents = getattr(module, QUERY_LATENTS, None) is not None
    first = getattr(module, QUERY_LATENTS if has_latents else QUERIES)
    gates = (getattr(module, OUTPUT_GATE),) if hasattr(module, OUTPUT_GATE) else ()
    shape = LatentShape(
        inputs=(first, getattr(module, LATENTS), *gates),
        query_norm=read_norm(f"{name}.{QUERY_NORM}", getattr(module, QUERY_NORM)) if has_latents else None,
        query_expansion=getattr(module, QUERY_EXPANSION) if has_latents else None,
        key_norm=read_norm(f"{name}.{NORM}", getattr(module, NORM)),
        expansion=getattr(module, EXPANSION),
        output=getattr(module, OUTPUT),
        num_heads=int(module.num_heads),
        plain_dim=int(module.qk_nope_head_dim),
        turning_dim=int(module.qk_rope_head_dim),
        value_dim=int(module.v_head_dim),
        latent_dim=int(module.kv_lora_rank),
        scale=float(module.scaling),
        output_gate=bool(gates),
        temperature=steps.temperature(module),
    )
    _check_sizes(name, shape)
    return _with_rotation(name, module, shape, layout)


def _check_sizes(name: str, shape: LatentShape) -> None:
    """Refuse sizes that don't fit each other.

    Raises:
        NotFusableError: it says which.
    """
    first, latents, *gates = (linear_sizes(f"{name}.inputs", part)[1] for part in shape.inputs)
    expected = [
        (first, shape.num_query_columns),
        (latents, shape.latent_dim + shape.turning_dim),
        (gates, [shape.num_heads] if shape.output_gate else []),
        (linear_sizes(f"{name}.{EXPANSION}", shape.expansion), (shape.latent_dim, shape.num_expanded)),
        (linear_sizes(f"{name}.{OUTPUT}", shape.output)[0], shape.num_heads * shape.value_dim),
    ]
    if shape.query_expansion is not None:
        sizes = linear_sizes(f"{name}.{QUERY_EXPANSION}", shape.query_expansion)
        expected.append((sizes, (shape.num_query_columns, shape.numbers_per_token)))
    if shape.key_norm.weight is None or shape.key_norm.weight.shape != (shape.latent_dim,) or shape.turning_dim % 2:
        expected.append((0, 1))
    if shape.value_dim > shape.inner.head_dim:
        raise NotFusableError("{name} has values that are wider than its keys.", name=name)
    if any(found != wanted for found, wanted in expected):
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)


class _Ends(Matrix):
    """A linear layer that reads only the first and the last numbers: real latents are too wide to be made up."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        half = self.weight.shape[1] // 2
        return functional.linear(torch.cat([hidden_states[..., :half], hidden_states[..., -half:]], -1), self.weight)


def _with_rotation(name: str, module: nn.Module, shape: LatentShape, layout: Layout | None) -> LatentShape:
    """Run the module's own code on stand-ins; return the shape with the rotation that gives the same.

    Raises:
        NotFusableError: none does.
    """
    make = StandIns()
    parts, tried = _stand_ins(module, shape, make)
    twin = replaced(module, parts, {})
    twin.config = copy.copy(module.config)
    twin.config._attn_implementation = "eager"
    if tried.temperature is not None:
        for key, value in steps.positions_in_trial(module).items():
            setattr(twin.config, key, value)
        tried = replace(tried, temperature=steps.TEMPERATURE)
    # Each head has keys of its own, whatever a config says that was made for other attention.
    twin.num_key_value_groups = 1
    x = make.numbers(1, NUM_TOKENS, WIDTH) * (SPREAD / (shape.scale * shape.inner.head_dim**0.5)) ** 0.5
    layout = layout or Layout(shape.turning_dim, True)
    angles = make.numbers(2, 1, NUM_TOKENS, layout.width // 2)
    cos, sin = layout.spread(angles)
    mask = torch.full((1, 1, NUM_TOKENS, NUM_TOKENS), torch.finfo(torch.float32).min).triu(1)
    usual = {"hidden_states": x, "position_embeddings": layout.handed(angles), "attention_mask": mask}
    named = {"position_ids": torch.arange(NUM_TOKENS)[None], "past_key_values": None}
    result = result_of(name, lambda: twin(**accepted(module, usual, named)))
    if layout.width == shape.turning_dim:
        for rotary, interleaved in ((True, False), (True, True), (False, False)):
            guess = replace(tried, rotary=rotary, interleaved=interleaved)
            turned = [in_pairs(part[0]) if interleaved and layout.halves else part[0] for part in (cos, sin)]
            if agrees(result[0], _plain(guess, parts, x[0], *turned)):
                return replace(shape, rotary=rotary, interleaved=interleaved)
    raise NotFusableError(
        "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
    )


def _stand_ins(module: nn.Module, shape: LatentShape, make: StandIns) -> tuple[dict[str, nn.Module], LatentShape]:
    """Return stand-ins for the parts of a module, and the shape with their norms."""
    has_latents = shape.query_norm is not None
    parts: dict[str, nn.Module] = {OUTPUT: nn.Identity()}
    first = QUERY_LATENTS if has_latents else QUERIES
    parts[first] = make.matrix(WIDTH, shape.num_query_columns)
    parts[LATENTS] = make.matrix(WIDTH, shape.latent_dim + shape.turning_dim)
    parts[EXPANSION] = _Ends(make.matrix(WIDTH, shape.num_expanded).weight)
    parts[NORM] = make.norm(getattr(module, NORM), shape.latent_dim)
    if shape.output_gate:
        parts[OUTPUT_GATE] = make.matrix(WIDTH, shape.num_heads)
    tried = replace(shape, key_norm=replace(shape.key_norm, weight=parts[NORM].weight))
    if shape.query_norm is not None:
        parts[QUERY_EXPANSION] = _Ends(make.matrix(WIDTH, shape.numbers_per_token).weight)
        parts[QUERY_NORM] = make.norm(getattr(module, QUERY_NORM), shape.num_query_columns)
        tried = replace(tried, query_norm=replace(shape.query_norm, weight=parts[QUERY_NORM].weight))
    return parts, tried


def _plain(
    shape: LatentShape, parts: Mapping[str, nn.Module], x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return latent attention of one document before the output projection, [T, heads * value_dim].

    Args:
        shape: with the norms of the stand-ins.
        parts: these.
        x: what attention reads, [T, WIDTH].
        cos, sin: [T, turning_dim].
    """
    if shape.query_norm is None:
        queries = parts[QUERIES](x)
    else:
        queries = parts[QUERY_EXPANSION](normalise(parts[QUERY_LATENTS](x), shape.query_norm))
    latents, turning = parts[LATENTS](x).split([shape.latent_dim, shape.turning_dim], dim=-1)
    expanded = parts[EXPANSION](normalise(latents, shape.key_norm)).unflatten(-1, (shape.num_heads, -1))
    keys, values = expanded.transpose(0, 1).split([shape.plain_dim, shape.value_dim], dim=-1)
    plain, turning_queries = (
        part.flatten(1)
        for part in queries.unflatten(-1, (shape.num_heads, -1)).split([shape.plain_dim, shape.turning_dim], dim=-1)
    )
    turns = replace(
        shape.inner, head_dim=shape.turning_dim, rotary=shape.rotary, interleaved=shape.interleaved
    )
    turned_queries, turned = (turned_heads(turns, part, None, cos, sin) for part in (turning_queries, turning))
    q = torch.cat([plain.unflatten(-1, (shape.num_heads, -1)).transpose(0, 1), turned_queries], dim=-1)
    if shape.temperature is not None:
        q = q * shape.temperature.at(torch.arange(q.shape[1]))[:, None]
    k = torch.cat([keys, turned.expand(shape.num_heads, -1, -1)], dim=-1)
    result = attended(shape.inner, q, k, values)
    if not shape.output_gate:
        return result
    return (result.unflatten(-1, (shape.num_heads, -1)) * parts[OUTPUT_GATE](x).sigmoid()[..., None]).flatten(-2)
