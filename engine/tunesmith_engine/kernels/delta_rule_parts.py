"""What the Triton programs of the gated delta rule share: tiles, what a token sees of its chunk."""

from __future__ import annotations

from tunesmith_engine.kernels.triton_import import jit, tl

UNSPECIALISED = ["num_tokens", "num_documents", "num_chunks", "search_steps", "group"]
"""Their values change with each batch or model and would each compile the programs again."""

NOBODY = 1 << 30
"""Stands for the first token of a document behind the last one: later than any token."""


@jit
def own_rows_of(pointer, stride, tokens, dims, inside, DIM: tl.constexpr):
    """Load rows [tokens, dims] of one head, zeros outside."""
    places = tokens.to(tl.int64)[:, None] * stride + dims[None, :]
    return tl.load(pointer + places, mask=inside[:, None] & (dims < DIM)[None, :], other=0.0)


@jit
def rows_of(pointer, stride, tokens, dims, inside, DIM: tl.constexpr):
    """Load rows [tokens, dims] of one head as float32, zeros outside."""
    return own_rows_of(pointer, stride, tokens, dims, inside, DIM).to(tl.float32)


@jit
def put_rows(pointer, stride, tokens, dims, inside, values, DIM: tl.constexpr):
    """Store rows [tokens, dims] of one head in the tensor's own number format."""
    places = tokens.to(tl.int64)[:, None] * stride + dims[None, :]
    mask = inside[:, None] & (dims < DIM)[None, :]
    tl.store(pointer + places, values.to(pointer.dtype.element_ty), mask=mask)


@jit
def scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside):
    """Return the factors of queries and of keys, and the log decay since the chunk or the document began.

    The decay comes in two parts, of which the second is what the first has lost by rounding: where gates are strong,
    the difference of two large decays decides.
    """
    size = num_heads.to(tl.int64) * num_tokens
    place = scales_ptr + head * num_tokens + tokens
    of_query = tl.load(place, mask=inside, other=0.0)
    of_key = tl.load(place + size, mask=inside, other=0.0)
    decay = tl.load(place + 2 * size, mask=inside, other=0.0)
    return of_query, of_key, decay, tl.load(place + 3 * size, mask=inside, other=0.0)


@jit
def begins_of(begins_ptr, tokens, inside, LATE: tl.constexpr):
    """Return the first token of each token's document."""
    return tl.load(begins_ptr + tokens, mask=inside, other=LATE)


@jit
def decays_of(tokens, begins, decay, lost):
    """Return exp(decay of i since j) where token i sees token j of its chunk, else 0, [i, j]."""
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    since = (decay[:, None] - decay[None, :]) + (lost[:, None] - lost[None, :])
    return tl.exp(tl.where(seen, since, float("-inf")))


@jit
def reach_of(begins, inside, chunk, decay, CHUNK: tl.constexpr):
    """Return by what factor each token sees the state before its chunk: 0 for a document that begins inside."""
    return tl.where(inside & (begins < chunk * CHUNK), tl.exp(decay), 0.0)


@jit
def rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost):
    """Return by what factor each token is in the state behind its chunk, and the first part of the chunk's log decay.

    Args:
        begin, end: tokens of the last document in the chunk; others aren't in the state.
    """
    place = scales_ptr + (2 * num_heads.to(tl.int64) + head) * num_tokens + end - 1
    total = tl.load(place)
    left = (total - decay) + (tl.load(place + num_heads.to(tl.int64) * num_tokens) - lost)
    return tl.exp(tl.where((tokens >= begin) & (tokens < end), left, float("-inf"))), total


@jit
def crosses(begins_ptr, token, num_tokens):
    """Return whether a document has tokens on both sides of a boundary before a token."""
    inside = token < num_tokens
    return inside & (tl.load(begins_ptr + token, mask=inside, other=0) < token)
