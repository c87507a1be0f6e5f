"""Rotary position embedding of queries and keys in one launch, with the norm of each head before it.

The rotation is that of RoFormer (Su et al. 2021, arXiv 2104.09864), in the two layouts of transformers: pairs are the
halves of a head's rotated part (modeling_llama.apply_rotary_pos_emb) or neighbours (modeling_cohere). Its transpose is
the rotation by the opposite angle, which the backward pass uses. The norm is RMS norm over the head (modeling_qwen3).
All is computed in float32 and rounded once, where transformers rounds the norm and every product.
"""

from __future__ import annotations

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import Norm

NAME = "rope"
NUMBERS_OF_PROGRAM = 2048
"""Several heads of one token."""
NUMBERS_OF_WARP = 512
"""A thread holds 8 pairs: two loads of 16 bytes in the 16-bit formats."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""The same of queries and keys."""


def rotate(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    head_dim: int,
    interleaved: bool,
    query_norm: Norm | None,
    key_norm: Norm | None,
    out_q: torch.Tensor,
    out_k: torch.Tensor,
) -> None:
    """Write the rotated queries and keys, each head normalised first where there are norms.

    Args:
        q, k: [T, num_heads * head_dim] each, with any stride between rows, as all below.
        cos, sin: [T, rotary_dim] as transformers makes them, with every angle twice: in both halves, or in
            neighbours; only one of the two is read. What is behind rotary_dim in a head passes. None: no rotation.
        head_dim: numbers of a head.
        interleaved: pairs are neighbours instead of halves.
        query_norm, key_norm: norms over head_dim that are alike but for their weights, or both None.
        out_q, out_k: the results; may be q and k.

    Raises:
        BugError: One norm without the other, or of another kind, or norms that subtract the mean.
    """
    _check(query_norm, key_norm)
    if registry.runs(NAME, q.device):
        _launch((q, k), None, (out_q, out_k), cos, sin, head_dim, interleaved, query_norm, key_norm)
        return
    for x, norm, out in ((q, query_norm, out_q), (k, key_norm, out_k)):
        heads = _heads(x, head_dim)
        if norm is not None:
            heads = heads * _root(heads, norm) * _factor(heads, norm)
        out.copy_(_turn_twin(heads, cos, sin, interleaved).flatten(1))


def rotate_backward(
    dq: torch.Tensor,
    dk: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    head_dim: int,
    interleaved: bool,
    query_norm: Norm | None,
    key_norm: Norm | None,
    out_dq: torch.Tensor,
    out_dk: torch.Tensor,
) -> None:
    """Write the gradients of what `rotate` was given.

    Args:
        dq, dk: gradients of the results, [T, num_heads * head_dim] each, with any stride between rows.
        q, k: what `rotate` was given; not read where there are no norms.
        cos, sin, head_dim, interleaved, query_norm, key_norm: as in `rotate`.
        out_dq, out_dk: the results; may be dq and dk, or q and k.

    Raises:
        BugError: As `rotate`.
    """
    _check(query_norm, key_norm)
    if registry.runs(NAME, dq.device):
        _launch((dq, dk), (q, k), (out_dq, out_dk), cos, sin, head_dim, interleaved, query_norm, key_norm)
        return
    for gradient, x, norm, out in ((dq, q, query_norm, out_dq), (dk, k, key_norm, out_dk)):
        slope = _turn_twin(_heads(gradient, head_dim), cos, None if sin is None else -sin, interleaved)
        if norm is not None:
            heads = _heads(x, head_dim)
            root = _root(heads, norm)
            slope, normal = slope * _factor(heads, norm), heads * root
            slope = (slope - normal * (slope * normal).mean(-1, keepdim=True)) * root
        out.copy_(slope.flatten(1))


def _check(query_norm: Norm | None, key_norm: Norm | None) -> None:
    kinds = {None if n is None else (n.eps, n.plus_one, n.centred, n.weight is None) for n in (query_norm, key_norm)}
    if len(kinds) > 1 or (query_norm is not None and query_norm.centred):
        raise TunesmithError(
            "bug",
            "Norms of queries and keys that can't run together: {query_norm}, {key_norm}.",
            query_norm=query_norm,
            key_norm=key_norm,
        )


def _launch(
    sources: Pair,
    inputs: Pair | None,
    targets: Pair,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    head_dim: int,
    interleaved: bool,
    query_norm: Norm | None,
    key_norm: Norm | None,
) -> None:
    """Start a program for every token and group of heads; the keys' groups follow those of the queries."""
    num_tokens = sources[0].shape[0]
    if not num_tokens:
        return
    num_query, num_key = (source.shape[1] // head_dim for source in sources)
    pairs = (head_dim if cos is None else cos.shape[1]) // 2
    pair_block, rest = triton.next_power_of_2(pairs), head_dim - 2 * pairs
    head_block = max(2 * pair_block, triton.next_power_of_2(head_dim))
    heads = max(min(NUMBERS_OF_PROGRAM // head_block, triton.next_power_of_2(num_query)), 1)
    tensors = (*sources, *(inputs or sources), *targets)
    normed = query_norm is not None
    launch(
        _rotate,
        (num_tokens, triton.cdiv(num_query, heads) + triton.cdiv(num_key, heads), 1),
        (
            *tensors,
            None if query_norm is None else query_norm.weight,
            None if key_norm is None else key_norm.weight,
            cos,
            sin,
        ),
        (
            *[tensor.stride(0) for tensor in tensors],
            0 if cos is None else cos.stride(0),
            0 if sin is None else sin.stride(0),
            0.0 if query_norm is None else query_norm.eps,
        ),
        (
            num_query,
            num_key,
            heads,
            head_dim,
            pairs,
            pair_block,
            triton.next_power_of_2(rest) if rest else 0,
            interleaved,
            normed,
            query_norm is not None and query_norm.plus_one,
            inputs is not None,
        ),
        num_warps=max(heads * head_block // NUMBERS_OF_WARP, 1),
    )


# The Triton program


@jit
def _rotate(
    query_source,
    key_source,
    query_input,
    key_input,
    query_target,
    key_target,
    query_weight,
    key_weight,
    cos, sin,
    query_source_stride,
    key_source_stride,
    query_input_stride,
    key_input_stride,
    query_target_stride,
    key_target_stride,
    cos_stride,
    sin_stride,
    eps,
    NUM_QUERY: tl.constexpr,
    NUM_KEY: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAIRS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORMED: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    QUERY_GROUPS: tl.constexpr = (NUM_QUERY + HEADS - 1) // HEADS
    pair = tl.arange(0, PAIR_BLOCK)[None, :]
    if cos is not None:
        angle = pair * 2 if INTERLEAVED else pair
        cosine = tl.load(cos + token * cos_stride + angle, mask=pair < PAIRS, other=0.0).to(tl.float32)
        sine = tl.load(sin + token * sin_stride + angle, mask=pair < PAIRS, other=0.0).to(tl.float32)
    else:
        cosine = tl.full([1, PAIR_BLOCK], 1.0, tl.float32)
        sine = tl.full([1, PAIR_BLOCK], 0.0, tl.float32)
    if group < QUERY_GROUPS:
        head = group * HEADS + tl.arange(0, HEADS)[:, None]
        source = query_source + token * query_source_stride
        given = query_input + token * query_input_stride
        target = query_target + token * query_target_stride
        _rotate_heads(
            source, given, target, query_weight, cosine, sine, eps, head, head < NUM_QUERY,
            HEAD_DIM, PAIRS, PAIR_BLOCK, REST_BLOCK, INTERLEAVED, NORMED, PLUS_ONE, BACKWARD,
        )  # fmt: skip
    else:
        # Names of its own: gradients of shared keys are float32, and a name has one type behind both branches.
        key_head = (group - QUERY_GROUPS) * HEADS + tl.arange(0, HEADS)[:, None]
        from_keys = key_source + token * key_source_stride
        given_keys = key_input + token * key_input_stride
        to_keys = key_target + token * key_target_stride
        _rotate_heads(
            from_keys, given_keys, to_keys, key_weight, cosine, sine, eps, key_head, key_head < NUM_KEY,
            HEAD_DIM, PAIRS, PAIR_BLOCK, REST_BLOCK, INTERLEAVED, NORMED, PLUS_ONE, BACKWARD,
        )  # fmt: skip


@jit
def _rotate_heads(
    source,
    given,
    target,
    weight,
    cosine,
    sine,
    eps,
    head,
    head_exists,
    HEAD_DIM: tl.constexpr,
    PAIRS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORMED: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """Work on some heads of one token: a and b are the numbers of each pair, c is what no pair holds, if anything."""
    HAS_REST: tl.constexpr = REST_BLOCK > 0
    pair = tl.arange(0, PAIR_BLOCK)[None, :]
    in_pair = pair < PAIRS
    place_a = pair * 2 if INTERLEAVED else pair
    place_b = place_a + (1 if INTERLEAVED else PAIRS)
    place_c, in_rest = place_a, in_pair
    if HAS_REST:
        place_c = 2 * PAIRS + tl.arange(0, REST_BLOCK)[None, :]
        in_rest = place_c < HEAD_DIM
    inside, inside_c = head_exists & in_pair, head_exists & in_rest
    start = head * HEAD_DIM
    a, b, c = _read(source + start, place_a, place_b, place_c, inside, inside_c, HAS_REST)
    if BACKWARD:
        a, b = a * cosine + b * sine, b * cosine - a * sine
    if NORMED:
        x_a, x_b, x_c = a, b, c
        if BACKWARD:
            x_a, x_b, x_c = _read(given + start, place_a, place_b, place_c, inside, inside_c, HAS_REST)
        root = tl.rsqrt(_dot(x_a, x_b, x_c, x_a, x_b, x_c, HAS_REST) / HEAD_DIM + eps)
        if weight is not None:
            w_a, w_b, w_c = _read(weight, place_a, place_b, place_c, in_pair, in_rest, HAS_REST)
            if PLUS_ONE:
                w_a, w_b, w_c = w_a + 1.0, w_b + 1.0, w_c + 1.0
            a, b, c = a * w_a, b * w_b, c * w_c
        if BACKWARD:
            shared = _dot(a, b, c, x_a, x_b, x_c, HAS_REST) * root * root / HEAD_DIM
            a, b, c = a - x_a * shared, b - x_b * shared, c - x_c * shared
        a, b, c = a * root, b * root, c * root
    if not BACKWARD:
        a, b = a * cosine - b * sine, b * cosine + a * sine
    tl.store(target + start + place_a, a.to(target.dtype.element_ty), mask=inside)
    tl.store(target + start + place_b, b.to(target.dtype.element_ty), mask=inside)
    if HAS_REST:
        tl.store(target + start + place_c, c.to(target.dtype.element_ty), mask=inside_c)


@jit
def _read(start, place_a, place_b, place_c, inside, inside_c, HAS_REST: tl.constexpr):
    """Return the three parts of some heads; the third is the first again where there is none."""
    a = tl.load(start + place_a, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(start + place_b, mask=inside, other=0.0).to(tl.float32)
    c = a
    if HAS_REST:
        c = tl.load(start + place_c, mask=inside_c, other=0.0).to(tl.float32)
    return a, b, c


@jit
def _dot(a, b, c, x_a, x_b, x_c, HAS_REST: tl.constexpr):
    """Return the product of each head with another, [heads, 1]."""
    product = tl.sum(a * x_a + b * x_b, axis=1)
    if HAS_REST:
        product += tl.sum(c * x_c, axis=1)
    return product[:, None]


# The same in PyTorch; float64 stays float64


def _heads(x: torch.Tensor, head_dim: int) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (-1, head_dim))


def _root(heads: torch.Tensor, norm: Norm) -> torch.Tensor:
    return torch.rsqrt(heads.square().mean(-1, keepdim=True) + norm.eps)


def _factor(heads: torch.Tensor, norm: Norm) -> torch.Tensor | float:
    if norm.weight is None:
        return 1.0
    return norm.weight.detach().to(heads.dtype) + (1 if norm.plus_one else 0)


def _turn_twin(
    heads: torch.Tensor, cos: torch.Tensor | None, sin: torch.Tensor | None, interleaved: bool
) -> torch.Tensor:
    """Return heads, [T, heads, head_dim], with the pairs of the first rotary_dim numbers rotated."""
    if cos is None or sin is None:
        return heads
    rotary_dim = cos.shape[1]
    first, rest = heads[..., :rotary_dim], heads[..., rotary_dim:]
    cosine, sine = (table.to(heads.dtype).unsqueeze(1) for table in (cos, sin))
    if interleaved:
        a, b, cosine, sine = first[..., ::2], first[..., 1::2], cosine[..., ::2], sine[..., ::2]
        turned = torch.stack([a * cosine - b * sine, b * cosine + a * sine], dim=-1).flatten(-2)
    else:
        half = rotary_dim // 2
        a, b, cosine, sine = first[..., :half], first[..., half:], cosine[..., :half], sine[..., :half]
        turned = torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned
