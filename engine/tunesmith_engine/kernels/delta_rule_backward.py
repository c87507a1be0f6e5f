"""Triton programs of the gated delta rule's backward pass; see delta_rule.py for the formulas and names."""

from __future__ import annotations

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
from tunesmith_engine.kernels.tile_products import product, product_by, product_in_full, thirds
from tunesmith_engine.kernels.triton_import import jit, tl


@jit(do_not_specialize=UNSPECIALISED)
def prepare_gradients_kernel(
    q_ptr, k_ptr, do_ptr, begins_ptr, scales_ptr, solved_ptr, u_ptr, w_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, num_tokens, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write (P T)^T do and T^T (rest k)."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    of_query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        q = own_rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
        k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        weights += product(q, tl.trans(k))
    weights = weights * of_query[:, None] * of_key[None, :] * decays_of(tokens, begins, decay, lost)
    solved = rows_of(solved_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK)
    large, middle, small = thirds(tl.trans(product_in_full(weights, solved, do_ptr)), do_ptr)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        do = own_rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        u = product_by(large, middle, small, do)
        put_rows(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    left, _total = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost)
    large, middle, small = thirds(tl.trans(solved) * (left * of_key)[None, :], k_ptr)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        w = product_by(large, middle, small, k)
        put_rows(w_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, w, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def state_gradients_kernel(
    q_ptr, k_ptr, do_ptr, beta_ptr, u_ptr, w_ptr, slopes_ptr, bounds_ptr, scales_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, beta_token, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the state before each chunk that a document crosses into, and complete R in `u`."""
    head, num_heads = tl.program_id(2).to(tl.int64), tl.num_programs(2)
    begin, end = tl.load(bounds_ptr + tl.program_id(0)), tl.load(bounds_ptr + tl.program_id(0) + 1)
    first, last = begin // CHUNK, (end - 1) // CHUNK
    dims, columns = tl.arange(0, KEY_WIDTH), tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    u_ptr += head * num_tokens * VALUE_WIDTH
    w_ptr += head * num_tokens * KEY_WIDTH
    slopes_ptr += head * num_chunks * KEY_WIDTH * VALUE_WIDTH
    slope = tl.zeros([KEY_WIDTH, VALUES], tl.float32)
    for step in range(tl.where(last > first, last + 1 - first, 0)):
        chunk = last - step
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = (tokens >= begin) & (tokens < end)
        place = slopes_ptr + (chunk + 1) * KEY_WIDTH * VALUE_WIDTH
        put_rows(place, VALUE_WIDTH, dims, columns, dims < tl.where(chunk < last, KEY_WIDTH, 0), slope, VALUE_WIDTH)
        w = rows_of(w_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        u = rows_of(u_ptr, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        u += product(w, slope)
        put_rows(u_ptr, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
        of_query, of_key, decay, _lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        end_of_chunk = tl.minimum((chunk + 1) * CHUNK, end) - 1
        total = tl.load(scales_ptr + (2 * num_heads.to(tl.int64) + head) * num_tokens + end_of_chunk)
        reach = tl.exp(tl.where(inside, decay, float("-inf")))
        beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
        q = rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
        k = rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        slope = slope * tl.exp(total) + product(tl.trans(q), do * (reach * of_query)[:, None])
        slope -= product(tl.trans(k), u * (reach * of_key * beta)[:, None])


@jit(do_not_specialize=UNSPECIALISED)
def query_gradients_kernel(
    q_ptr, k_ptr, do_ptr, u_ptr, states_ptr, dq_ptr, d_decay_ptr, begins_ptr, scales_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of normal queries, and of decays as far as the weights have them."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    tokens, dims = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    inside = tokens < num_tokens
    before = dims < tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    dq = tl.zeros([CHUNK, KEY_WIDTH], tl.float32)
    d_weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        d_weights += product(do, tl.trans(u))
        state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH)
        dq += product(do, tl.trans(state))
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    of_query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    d_weights *= decays_of(tokens, begins, decay, lost) * of_key[None, :]
    dq = dq * reach_of(begins, inside, chunk, decay, CHUNK)[:, None]
    q = own_rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
    k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
    # What a pair of tokens adds to one decay it takes from another: of sums of products only the same numbers cancel.
    pairs = d_weights * product(q, tl.trans(k)) * of_query[:, None]
    d_decay = tl.sum(dq * q.to(tl.float32), 1) * of_query + tl.sum(pairs, 1) - tl.sum(pairs, 0)
    tl.store(d_decay_ptr + head * num_tokens + tokens, d_decay, mask=inside)
    dq += product(d_weights, k.to(tl.float32))
    put_rows(dq_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, dq, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def key_gradients_kernel(
    q_ptr, k_ptr, do_ptr, u_ptr, states_ptr, slopes_ptr, dk_ptr, d_decay_ptr, begins_ptr, scales_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of normal keys as far as weights and states have them, and add the states' of decays."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    tokens, dims = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    inside = tokens < num_tokens
    behind = dims < tl.where(crosses(begins_ptr, (chunk + 1) * CHUNK, num_tokens), KEY_WIDTH, 0)
    place = (head * num_chunks + chunk + 1) * KEY_WIDTH * VALUE_WIDTH
    dk = tl.zeros([CHUNK, KEY_WIDTH], tl.float32)
    d_weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    met = tl.zeros([KEY_WIDTH], tl.float32)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        d_weights += product(do, tl.trans(u))
        slope = rows_of(slopes_ptr + place, VALUE_WIDTH, dims, columns, behind, VALUE_WIDTH)
        dk += product(u, tl.trans(slope))
        met += tl.sum(rows_of(states_ptr + place, VALUE_WIDTH, dims, columns, behind, VALUE_WIDTH) * slope, 1)
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    of_query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    rest, _total = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost)
    d_weights *= decays_of(tokens, begins, decay, lost) * of_query[:, None]
    dk = dk * rest[:, None]
    k = rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
    d_decay_ptr += head * num_tokens + tokens
    d_decay = tl.load(d_decay_ptr, mask=inside, other=0.0) - tl.sum(dk * k, 1) * of_key
    # The decay of the last token scales all of the state behind the chunk.
    d_decay += tl.where(tokens == (chunk + 1) * CHUNK - 1, tl.sum(met, 0), 0.0)
    tl.store(d_decay_ptr, d_decay, mask=inside)
    q = rows_of(q_ptr + head // group * q_head, q_token, tokens, dims, inside, KEY_DIM)
    dk += product(tl.trans(d_weights), q)
    put_rows(dk_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, dk, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def write_gradients_kernel(
    k_ptr, v_ptr, beta_ptr, u_ptr, back_u_ptr, states_ptr, dk_ptr, dv_ptr, d_decay_ptr, dg_ptr, dbeta_ptr,
    begins_ptr, scales_ptr, k_token, k_head, v_token, v_head, beta_token, dv_token, dv_head, dg_token, dbeta_token,
    num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of values, betas and gates, and add to the normal keys' what the updates give."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    tokens, dims = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    inside = tokens < num_tokens
    before = dims < tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    rows = tokens.to(tl.int64)
    beta = tl.load(beta_ptr + rows * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    dx = tl.zeros([CHUNK, KEY_WIDTH], tl.float32)
    da = tl.zeros([CHUNK, CHUNK], tl.float32)
    dbeta = tl.zeros([CHUNK], tl.float32)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        r = rows_of(back_u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        da -= product(r, tl.trans(u))
        state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH)
        dx -= product(r, tl.trans(state))
        dbeta += tl.sum(r * rows_of(v_ptr + head * v_head, v_token, tokens, columns, inside, VALUE_DIM), 1)
        put_rows(dv_ptr + head * dv_head, dv_token, tokens, columns, inside, r * beta[:, None], VALUE_DIM)
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    _query, of_key, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    k = own_rows_of(k_ptr + head // group * k_head, k_token, tokens, dims, inside, KEY_DIM)
    alike = product(k, tl.trans(k)) * of_key[:, None] * of_key[None, :]
    k = k.to(tl.float32)
    dx *= reach_of(begins, inside, chunk, decay, CHUNK)[:, None]
    da = tl.where(tokens[:, None] > tokens[None, :], da * decays_of(tokens, begins, decay, lost), 0.0)
    along = tl.sum(dx * k, 1) * of_key
    dbeta += along + tl.sum(da * alike, 1)
    tl.store(dbeta_ptr + rows * dbeta_token + head, dbeta.to(dbeta_ptr.dtype.element_ty), mask=inside)
    # As in `query_gradients_kernel`, the same numbers with both signs.
    pairs = da * alike * beta[:, None]
    d_decay = along * beta + tl.sum(pairs, 1) - tl.sum(pairs, 0)
    d_decay += tl.load(d_decay_ptr + head * num_tokens + tokens, mask=inside, other=0.0)
    dx += product(da * of_key[None, :], k)
    dk = dx * beta[:, None] + product(tl.trans(da * (beta * of_key)[:, None]), k)
    dk_ptr += head * num_tokens * KEY_WIDTH
    dk += rows_of(dk_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
    put_rows(dk_ptr, KEY_WIDTH, tokens, dims, inside, dk, KEY_WIDTH)
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    dg = tl.where(tokens > begins, tl.sum(tl.where(seen, d_decay[:, None], 0.0), 0), 0.0)
    tl.store(dg_ptr + rows * dg_token + head, dg.to(dg_ptr.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["num_tokens"])
def head_gradients_kernel(
    x_ptr, d_normal_ptr, dx_ptr, scales_ptr, x_token, x_head, dx_token, dx_head, num_tokens, scale,
    GROUP: tl.constexpr, KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a query or key: summed over its value heads, through its normalization.

    Args:
        scale: factor of the normal one; `scales_ptr` holds its product with the reciprocal root.
    """
    head = tl.program_id(1).to(tl.int64)
    tokens, dims = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK), tl.arange(0, KEY_WIDTH)
    inside = tokens < num_tokens
    slope = tl.zeros([CHUNK, KEY_WIDTH], tl.float32)
    for member in range(GROUP):
        place = d_normal_ptr + (head * GROUP + member) * num_tokens * KEY_WIDTH
        slope += rows_of(place, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
    x = rows_of(x_ptr + head * x_head, x_token, tokens, dims, inside, KEY_DIM)
    factor = tl.load(scales_ptr + head * GROUP * num_tokens + tokens, mask=inside, other=0.0)
    root = factor / scale
    slope = (slope - x * (tl.sum(slope * x, 1) * root * root)[:, None]) * factor[:, None]
    put_rows(dx_ptr + head * dx_head, dx_token, tokens, dims, inside, slope, KEY_DIM)
