"""Triton programs of the channel-wise delta rule's forward pass; see channel_delta.py for the formulas and names."""

from __future__ import annotations

from tunesmith_engine.kernels.delta_rule_parts import (
    UNSPECIALISED,
    begins_of,
    crosses,
    own_rows_of,
    put_rows,
    rows_of,
)
from tunesmith_engine.kernels.tile_products import as_taken, product, product_by, product_in_full, thirds
from tunesmith_engine.kernels.triton_import import jit, tl


@jit
def gate_of(x, rate, floor, FLOOR: tl.constexpr):
    """Return the logarithm of a decay and its slope; FLOOR says which of two forms it has."""
    if FLOOR:
        share = 1.0 / (1.0 + tl.exp(-rate * x))
        gate, slope = floor * share, floor * rate * share * (1.0 - share)
    else:
        # softplus, whose exponential never overflows.
        gate = -rate * (tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x))))
        slope = -rate / (1.0 + tl.exp(-x))
    return gate, slope


@jit
def factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside):
    """Return the reciprocal lengths of queries, scaled, and of keys."""
    place = scales_ptr + head * num_tokens + tokens
    of_query = tl.load(place, mask=inside, other=0.0)
    return of_query, tl.load(place + num_heads.to(tl.int64) * num_tokens, mask=inside, other=0.0)


@jit
def normal_rows(pointer, stride, tokens, dims, inside, factors, DIM: tl.constexpr):
    """Load normal queries or keys of one head, [tokens, dims]."""
    return rows_of(pointer, stride, tokens, dims, inside, DIM) * factors[:, None]


@jit
def reach_of(begins, inside, chunk, decay, CHUNK: tl.constexpr):
    """Return by what factors each token sees the state before its chunk: 0 for a document that begins inside."""
    return tl.where((inside & (begins < chunk * CHUNK))[:, None], tl.exp(decay), 0.0)


@jit
def rest_of(tokens, begin, end, decay, at_end):
    """Return by what factors each token of the last document in a chunk, from begin to end, is in the state behind."""
    there = ((tokens >= begin) & (tokens < end))[:, None]
    return tl.exp(tl.where(there, at_end[None, :] - decay, float("-inf")))


@jit
def to_middle(decay_ptr, chunk, places, dims, decay, half, num_tokens, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """Return the decay of each token from or to the last token of the first half of its block, 1 at most.

    What other documents than the middle's have there meets nobody, but it must be finite.
    """
    middle = chunk * CHUNK + places // (2 * half) * (2 * half) + half - 1
    since = decay - rows_of(decay_ptr, WIDTH, middle, dims, middle < num_tokens, WIDTH)
    since = tl.where((places // half % 2 == 1)[:, None], since, -since)
    return tl.exp(tl.minimum(since, 0.0))


@jit
def meets(places, half):
    """Return whether tokens i and j are in the second and the first half of one block, [i, j]."""
    same = (places // (2 * half))[:, None] == (places // (2 * half))[None, :]
    return same & ((places // half)[:, None] > (places // half)[None, :])


@jit(do_not_specialize=UNSPECIALISED)
def decays_kernel(
    q_ptr, k_ptr, raw_ptr, bias_ptr, rate_ptr, begins_ptr, scales_ptr, decay_ptr, q_token, q_head, k_token, k_head,
    raw_token, raw_head, num_tokens, eps, scale, floor,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr, AT_ONCE: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """Write the factors of queries and keys, and each channel's log decay since the chunk or the document began."""
    head, num_heads = tl.program_id(1).to(tl.int64), tl.num_programs(1).to(tl.int64)
    dims = tl.arange(0, KEY_WIDTH)
    kept = dims < KEY_DIM
    rate = tl.load(rate_ptr + head)
    bias = tl.load(bias_ptr + head * KEY_DIM + dims, mask=kept, other=0.0)
    decay = tl.zeros([KEY_WIDTH], tl.float32)
    for start in range(0, CHUNK, AT_ONCE):
        tokens = tl.program_id(0) * CHUNK + start + tl.arange(0, AT_ONCE)
        there = tokens < num_tokens
        q = rows_of(q_ptr + head * q_head, q_token, tokens, dims, there, KEY_DIM)
        k = rows_of(k_ptr + head * k_head, k_token, tokens, dims, there, KEY_DIM)
        scales = scales_ptr + head * num_tokens + tokens
        tl.store(scales, tl.rsqrt(tl.sum(q * q, 1) + eps) * scale, mask=there)
        tl.store(scales + num_heads * num_tokens, tl.rsqrt(tl.sum(k * k, 1) + eps), mask=there)
        for place in tl.static_range(AT_ONCE):
            token = (tl.program_id(0) * CHUNK + start + place).to(tl.int64)
            inside = token < num_tokens
            mask = kept & inside
            # A document's first token has no state to let decay.
            follows = token > tl.load(begins_ptr + token, mask=inside, other=0)
            x = tl.load(raw_ptr + token * raw_token + head * raw_head + dims, mask=mask, other=0.0).to(tl.float32)
            gate, _slope = gate_of(x + bias, rate, floor, FLOOR)
            decay = tl.where(follows, decay + gate, 0.0)
            row = decay_ptr + (head * num_tokens + token) * KEY_WIDTH + dims
            tl.store(row, tl.where(kept, decay, 0.0), mask=inside & (dims < KEY_WIDTH))


@jit(do_not_specialize=UNSPECIALISED)
def systems_kernel(
    q_ptr, k_ptr, beta_ptr, begins_ptr, scales_ptr, decay_ptr, a_ptr, weights_ptr,
    q_token, q_head, k_token, k_head, beta_token, num_tokens,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write A and P of each chunk, zeros where they have nothing."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    of_query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    decay_ptr += head * num_tokens * KEY_WIDTH
    alike = tl.zeros([CHUNK, CHUNK], tl.float32)
    weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        q = normal_rows(q_ptr + head * q_head, q_token, tokens, dims, inside, of_query, KEY_DIM)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        weights += tl.where(places[:, None] == places[None, :], tl.sum(q * k, 1)[:, None], 0.0)
        half = CHUNK // 2
        while half > 0:
            factors = to_middle(decay_ptr, chunk, places, dims, decay, half, num_tokens, KEY_WIDTH, CHUNK)
            meet = meets(places, half)
            keys = tl.trans(k * factors)
            alike += tl.where(meet, product_in_full(k * factors, keys, k_ptr), 0.0)
            weights += tl.where(meet, product_in_full(q * factors, keys, k_ptr), 0.0)
            half = half // 2
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    weights = tl.where(seen, weights, 0.0)
    put_rows(weights_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, weights, CHUNK)
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    a = tl.where(seen, alike * beta[:, None], 0.0)
    put_rows(a_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, a, CHUNK)


@jit(do_not_specialize=UNSPECIALISED)
def prepare_kernel(
    k_ptr, v_ptr, beta_ptr, begins_ptr, scales_ptr, decay_ptr, solved_ptr, u_ptr, w_ptr,
    k_token, k_head, v_token, v_head, beta_token, num_tokens,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write T (beta v) and T (beta reach k)."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    _query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    solved = rows_of(solved_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK) * beta[None, :]
    large, middle, small = thirds(solved, v_ptr)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        v = own_rows_of(v_ptr + head * v_head, v_token, tokens, columns, inside, VALUE_DIM)
        u = product_by(large, middle, small, v)
        put_rows(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        decay = rows_of(decay_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        w = product_in_full(solved, k * reach_of(begins, inside, chunk, decay, CHUNK), k_ptr)
        put_rows(w_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, w, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def states_kernel(
    k_ptr, u_ptr, w_ptr, states_ptr, bounds_ptr, scales_ptr, decay_ptr, k_token, k_head, num_tokens, num_chunks,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write the state before each chunk that a document crosses into, and replace its U by U - W state."""
    head, num_heads = tl.program_id(2).to(tl.int64), tl.num_programs(2)
    begin, end = tl.load(bounds_ptr + tl.program_id(0)), tl.load(bounds_ptr + tl.program_id(0) + 1)
    first, last = begin // CHUNK, (end - 1) // CHUNK
    dims, columns = tl.arange(0, KEY_WIDTH), tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    u_ptr += head * num_tokens * VALUE_WIDTH
    w_ptr += head * num_tokens * KEY_WIDTH
    decay_ptr += head * num_tokens * KEY_WIDTH
    states_ptr += head * num_chunks * KEY_WIDTH * VALUE_WIDTH
    state = tl.zeros([KEY_WIDTH, VALUES], tl.float32)
    # A document inside one chunk has no state to hand on.
    for chunk in range(first, tl.where(last > first, last + 1, first)):
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = (tokens >= begin) & (tokens < end)
        w = rows_of(w_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        u = rows_of(u_ptr, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        # Where keys are alike, little is left of the difference.
        u -= product(as_taken(w, k_ptr), as_taken(state, k_ptr))
        put_rows(u_ptr, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
        _query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        stop = tl.minimum((chunk + 1) * CHUNK, end)
        at_end = tl.load(decay_ptr + (stop - 1).to(tl.int64) * KEY_WIDTH + dims)
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        k = k * rest_of(tokens, begin, stop, decay, at_end)
        state = state * tl.exp(at_end)[:, None] + product(tl.trans(k), u)
        place = states_ptr + (chunk + 1) * KEY_WIDTH * VALUE_WIDTH
        put_rows(place, VALUE_WIDTH, dims, columns, dims < tl.where(chunk < last, KEY_WIDTH, 0), state, VALUE_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def outputs_kernel(
    q_ptr, u_ptr, states_ptr, out_ptr, begins_ptr, scales_ptr, decay_ptr, weights_ptr,
    q_token, q_head, out_token, out_head, num_tokens, num_chunks,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write each token's query times the state behind it."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(2).to(tl.int64), tl.num_programs(2)
    places, dims = tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    tokens, columns = chunk * CHUNK + places, tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    inside = tokens < num_tokens
    weights = rows_of(weights_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK)
    u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
    out = product(weights, u)
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    of_query, _key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    q = normal_rows(q_ptr + head * q_head, q_token, tokens, dims, inside, of_query, KEY_DIM)
    decay = rows_of(decay_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
    before = dims < tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH)
    out += product(q * reach_of(begins, inside, chunk, decay, CHUNK), state)
    put_rows(out_ptr + head * out_head, out_token, tokens, columns, inside, out, VALUE_DIM)
