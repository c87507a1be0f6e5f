"""Triton programs of the gated delta rule's forward pass; see delta_rule.py for the formulas and names."""

from __future__ import annotations

from tunesmith_engine.kernels.attention import _document
from tunesmith_engine.kernels.delta_rule_parts import (
    UNSPECIALISED,
    begins_of,
    crosses,
    decays_of,
    own_rows_of,
    put_rows,
    reach_of,
    rest_of,
    rows_of,
    scales_of,
)
from tunesmith_engine.kernels.tile_products import product, product_by, thirds
from tunesmith_engine.kernels.triton_import import jit, tl


@jit(do_not_specialize=UNSPECIALISED)
def scales_kernel(
    q_ptr, k_ptr, g_ptr, bounds_ptr, begins_ptr, scales_ptr, q_token, q_head, k_token, k_head, g_token,
    num_tokens, num_documents, search_steps, group, eps, scale,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the first token of each token's document, the factors of queries and keys and the log decays."""
    head, num_heads = tl.program_id(1).to(tl.int64), tl.num_programs(1).to(tl.int64)
    tokens = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    dims = tl.arange(0, KEY_WIDTH)
    inside = tokens < num_tokens
    begins, _end = _document(bounds_ptr, num_documents, search_steps, tokens)
    tl.store(begins_ptr + tokens, begins, mask=inside & (head == 0))
    q = rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
    k = rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
    # A document's first token has no state to let decay.
    gates = tl.load(g_ptr + tokens.to(tl.int64) * g_token + head, mask=inside & (tokens > begins), other=0.0)
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    place = scales_ptr + head * num_tokens + tokens
    tl.store(place, tl.rsqrt(tl.sum(q * q, 1) + eps) * scale, mask=inside)
    tl.store(place + num_heads * num_tokens, tl.rsqrt(tl.sum(k * k, 1) + eps), mask=inside)
    exact = tl.sum(tl.where(seen, gates.to(tl.float64)[None, :], 0.0), 1)
    decay = exact.to(tl.float32)
    tl.store(place + 2 * num_heads * num_tokens, decay, mask=inside)
    tl.store(place + 3 * num_heads * num_tokens, (exact - decay.to(tl.float64)).to(tl.float32), mask=inside)


@jit(do_not_specialize=UNSPECIALISED)
def systems_kernel(
    k_ptr, beta_ptr, begins_ptr, scales_ptr, a_ptr, k_token, k_head, beta_token, num_tokens, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr,
    VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write A of each chunk, zeros where it has nothing."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    _query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    alike = tl.zeros([CHUNK, CHUNK], tl.float32)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        alike += product(k, tl.trans(k))
    alike = alike * (of_key * beta)[:, None] * of_key[None, :]
    below = places[:, None] > places[None, :]
    a = tl.where(below, alike * decays_of(tokens, begins, decay, lost), 0.0)
    put_rows(a_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, a, CHUNK)


@jit(do_not_specialize=UNSPECIALISED)
def prepare_kernel(
    k_ptr, v_ptr, beta_ptr, begins_ptr, scales_ptr, solved_ptr, u_ptr, w_ptr,
    k_token, k_head, v_token, v_head, beta_token, num_tokens, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write T (beta v) and T (beta reach k)."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    _query, of_key, decay, _lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    solved = rows_of(solved_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK) * beta[None, :]
    large, middle, small = thirds(solved, v_ptr)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        v = own_rows_of(v_ptr + head * v_head, v_token, tokens, columns, inside, VALUE_DIM)
        u = product_by(large, middle, small, v)
        put_rows(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
    large, middle, small = thirds(solved * (reach_of(begins, inside, chunk, decay, CHUNK) * of_key)[None, :], k_ptr)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        w = product_by(large, middle, small, k)
        put_rows(w_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, w, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def states_kernel(
    k_ptr, u_ptr, w_ptr, states_ptr, bounds_ptr, scales_ptr, k_token, k_head, num_tokens, num_chunks, group,
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
    states_ptr += head * num_chunks * KEY_WIDTH * VALUE_WIDTH
    state = tl.zeros([KEY_WIDTH, VALUES], tl.float32)
    # A document inside one chunk has no state to hand on.
    for chunk in range(first, tl.where(last > first, last + 1, first)):
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = (tokens >= begin) & (tokens < end)
        w = rows_of(w_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        u = rows_of(u_ptr, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        u -= product(w, state)
        put_rows(u_ptr, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
        _query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        stop = tl.minimum((chunk + 1) * CHUNK, end)
        rest, total = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, stop, decay, lost)
        k = rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        state = state * tl.exp(total) + product(tl.trans(k), u * (rest * of_key)[:, None])
        place = states_ptr + (chunk + 1) * KEY_WIDTH * VALUE_WIDTH
        put_rows(place, VALUE_WIDTH, dims, columns, dims < tl.where(chunk < last, KEY_WIDTH, 0), state, VALUE_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def outputs_kernel(
    q_ptr, k_ptr, u_ptr, states_ptr, out_ptr, begins_ptr, scales_ptr,
    q_token, q_head, k_token, k_head, out_token, out_head, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write each token's query times the state behind it."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(2).to(tl.int64), tl.num_programs(2)
    tokens, dims = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    columns = tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    of_query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    q = own_rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
    k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
    weights = product(q, tl.trans(k)) * of_key[None, :] * decays_of(tokens, begins, decay, lost)
    u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
    out = product(weights, u)
    before = dims < tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH)
    out += product(q.to(tl.float32), state) * reach_of(begins, inside, chunk, decay, CHUNK)[:, None]
    put_rows(out_ptr + head * out_head, out_token, tokens, columns, inside, out * of_query[:, None], VALUE_DIM)
