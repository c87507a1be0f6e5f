"""Triton programs of the channel-wise delta rule's backward pass; see channel_delta.py for the formulas and names."""

from __future__ import annotations

from tunesmith_engine.kernels.channel_delta_forward import (
    factors_of,
    gate_of,
    meets,
    normal_rows,
    reach_of,
    rest_of,
    to_middle,
)
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


@jit(do_not_specialize=UNSPECIALISED)
def prepare_gradients_kernel(
    k_ptr, do_ptr, begins_ptr, scales_ptr, decay_ptr, solved_ptr, weights_ptr, u_ptr, w_ptr,
    k_token, k_head, do_token, do_head, num_tokens,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write (P T)^T do and T^T (rest k)."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    _query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    solved = rows_of(solved_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK)
    weights = rows_of(weights_ptr + head * num_tokens * CHUNK, CHUNK, tokens, places, inside, CHUNK)
    large, middle, small = thirds(tl.trans(product_in_full(weights, solved, do_ptr)), do_ptr)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        do = own_rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        u = product_by(large, middle, small, do)
        put_rows(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    decay_ptr += head * num_tokens * KEY_WIDTH
    solved = tl.trans(solved)
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        at_end = tl.load(decay_ptr + (end - 1).to(tl.int64) * KEY_WIDTH + dims)
        w = product_in_full(solved, k * rest_of(tokens, begin, end, decay, at_end), k_ptr)
        put_rows(w_ptr + head * num_tokens * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, w, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def state_gradients_kernel(
    q_ptr, k_ptr, do_ptr, beta_ptr, u_ptr, w_ptr, slopes_ptr, bounds_ptr, scales_ptr, decay_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, beta_token, num_tokens, num_chunks,
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
    decay_ptr += head * num_tokens * KEY_WIDTH
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
        of_query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        stop = tl.minimum((chunk + 1) * CHUNK, end)
        total = tl.exp(tl.load(decay_ptr + (stop - 1).to(tl.int64) * KEY_WIDTH + dims))
        beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        slope = slope * total[:, None] - product(tl.trans(k * tl.exp(decay)), u * beta[:, None])
        put_rows(u_ptr, VALUE_WIDTH, tokens, columns, inside, u, VALUE_WIDTH)
        # Loaded again: there are no registers for queries and keys at once.
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        q = normal_rows(q_ptr + head * q_head, q_token, tokens, dims, inside, of_query, KEY_DIM)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        slope += product(tl.trans(q * tl.exp(decay)), do)


@jit(do_not_specialize=UNSPECIALISED)
def write_gradients_kernel(
    do_ptr, beta_ptr, u_ptr, back_u_ptr, begins_ptr, solved_ptr, weights_ptr, dv_ptr, dbeta_ptr,
    do_token, do_head, beta_token, dv_token, dv_head, dbeta_token, num_tokens,
    VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of P and of A times beta over P and T, and those of values and betas.

    A row of U is beta times what its token is off by, and that times its row of R is the gradient of beta. Where beta
    is 0, which no sigmoid lets a gradient through, 0 is written.
    """
    chunk, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    d_weights = tl.zeros([CHUNK, CHUNK], tl.float32)
    da = tl.zeros([CHUNK, CHUNK], tl.float32)
    dbeta = tl.zeros([CHUNK], tl.float32)
    for start in range(0, VALUE_WIDTH, VALUES):
        columns = start + tl.arange(0, VALUES)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        u = rows_of(u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        r = rows_of(back_u_ptr + head * num_tokens * VALUE_WIDTH, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH)
        d_weights += product(do, tl.trans(u))
        da -= product(r, tl.trans(u))
        dbeta += tl.sum(r * u, 1)
        put_rows(dv_ptr + head * dv_head, dv_token, tokens, columns, inside, r * beta[:, None], VALUE_DIM)
    dbeta = tl.where(beta == 0.0, 0.0, dbeta / tl.where(beta == 0.0, 1.0, beta))
    dbeta_ptr += tokens.to(tl.int64) * dbeta_token + head
    tl.store(dbeta_ptr, dbeta.to(dbeta_ptr.dtype.element_ty), mask=inside)
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    place = head * num_tokens * CHUNK
    put_rows(weights_ptr + place, CHUNK, tokens, places, inside, tl.where(seen, d_weights, 0.0), CHUNK)
    da = tl.where(seen, da * beta[:, None], 0.0)
    put_rows(solved_ptr + place, CHUNK, tokens, places, inside, da, CHUNK)


@jit
def through_states(
    do_ptr, do_token, u_ptr, back_u_ptr, states_ptr, slopes_ptr, tokens, dims, inside, before, behind,
    KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Return do S^T, U dS'^T, -R S^T, [tokens, dims], and the rows' products of the state behind and its gradient."""
    dq = tl.zeros([CHUNK, VALUES], tl.float32)
    dk = tl.zeros([CHUNK, VALUES], tl.float32)
    dx = tl.zeros([CHUNK, VALUES], tl.float32)
    met = tl.zeros([VALUES], tl.float32)
    for first in range(0, VALUE_WIDTH, VALUES):
        columns = first + tl.arange(0, VALUES)
        state = tl.trans(rows_of(states_ptr, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH))
        dq += product(rows_of(do_ptr, do_token, tokens, columns, inside, VALUE_DIM), state)
        dx -= product(rows_of(back_u_ptr, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH), state)
        slope = rows_of(slopes_ptr, VALUE_WIDTH, dims, columns, behind, VALUE_WIDTH)
        dk += product(rows_of(u_ptr, VALUE_WIDTH, tokens, columns, inside, VALUE_WIDTH), tl.trans(slope))
        after = rows_of(states_ptr + KEY_WIDTH * VALUE_WIDTH, VALUE_WIDTH, dims, columns, behind, VALUE_WIDTH)
        met += tl.sum(after * slope, 1)
    return dq, dk, dx, met


@jit
def through_pairs(
    dq, dk, d_decay, q, k, like_ptr, decay, decay_ptr, d_weights_ptr, da_ptr, chunk, places, dims, inside, num_tokens,
    KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Return gradients with what pairs of tokens of the chunk add.

    What a pair adds to the later token's log decay it takes from the earlier's: only the same numbers cancel, so that
    both are of queries and keys as the products take them.
    """
    tokens = chunk * CHUNK + places
    half = CHUNK // 2
    while half > 0:
        factors = to_middle(decay_ptr, chunk, places, dims, decay, half, num_tokens, KEY_WIDTH, CHUNK)
        meet = meets(places, half)
        queries, keys = as_taken(q * factors, like_ptr), as_taken(k * factors, like_ptr)
        part = tl.where(meet, rows_of(d_weights_ptr, CHUNK, tokens, places, inside, CHUNK), 0.0)
        ahead = product(part, keys)
        dq += factors * ahead
        d_decay += ahead * queries
        back = product(tl.trans(part), queries)
        part = tl.where(meet, rows_of(da_ptr, CHUNK, tokens, places, inside, CHUNK), 0.0)
        ahead = product(part, keys)
        back += product(tl.trans(part), keys)
        dk += factors * (ahead + back)
        d_decay += (ahead - back) * keys
        half = half // 2
    return dq, dk, d_decay


@jit(do_not_specialize=UNSPECIALISED)
def read_gradients_kernel(
    q_ptr, k_ptr, do_ptr, beta_ptr, u_ptr, back_u_ptr, states_ptr, slopes_ptr, begins_ptr, scales_ptr, decay_ptr,
    da_ptr, d_weights_ptr, dq_ptr, dk_ptr, d_decay_ptr,
    q_token, q_head, k_token, k_head, do_token, do_head, beta_token, num_tokens, num_chunks,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of normal queries and keys and of log decays."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    places = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + places
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    goes_in = crosses(begins_ptr, chunk * CHUNK, num_tokens)
    goes_on = crosses(begins_ptr, (chunk + 1) * CHUNK, num_tokens)
    of_query, of_key = factors_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    beta = tl.load(beta_ptr + tokens.to(tl.int64) * beta_token + head, mask=inside, other=0.0).to(tl.float32)
    of_row = head * num_tokens
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    slopes_ptr += (head * num_chunks + chunk + 1) * KEY_WIDTH * VALUE_WIDTH
    decay_ptr += of_row * KEY_WIDTH
    do_ptr += head * do_head
    u_ptr += of_row * VALUE_WIDTH
    back_u_ptr += of_row * VALUE_WIDTH
    d_weights_ptr += of_row * CHUNK
    da_ptr += of_row * CHUNK
    itself = tl.load(d_weights_ptr + tokens.to(tl.int64) * CHUNK + places, mask=inside, other=0.0)[:, None]
    for start in range(0, KEY_WIDTH, VALUES):
        dims = start + tl.arange(0, VALUES)
        before, behind = dims < tl.where(goes_in, KEY_WIDTH, 0), dims < tl.where(goes_on, KEY_WIDTH, 0)
        dq, dk, dx, met = through_states(
            do_ptr, do_token, u_ptr, back_u_ptr, states_ptr, slopes_ptr, tokens, dims, inside, before, behind,
            KEY_WIDTH, VALUE_DIM, VALUE_WIDTH, CHUNK, VALUES,
        )  # fmt: skip
        decay = rows_of(decay_ptr, KEY_WIDTH, tokens, dims, inside, KEY_WIDTH)
        at_end = tl.load(decay_ptr + (end - 1).to(tl.int64) * KEY_WIDTH + dims)
        reach = reach_of(begins, inside, chunk, decay, CHUNK)
        q = normal_rows(q_ptr + head * q_head, q_token, tokens, dims, inside, of_query, KEY_DIM)
        k = normal_rows(k_ptr + head * k_head, k_token, tokens, dims, inside, of_key, KEY_DIM)
        dq, dx = dq * reach, dx * reach * beta[:, None]
        dk = dk * rest_of(tokens, begin, end, decay, at_end)
        d_decay = dq * q + (dx - dk) * k
        # The decay of the last token scales all of the state behind the chunk.
        d_decay += tl.where((places == CHUNK - 1)[:, None], met[None, :], 0.0)
        # What a token reads of itself doesn't decay.
        dq, dk, d_decay = through_pairs(
            dq + itself * k, dk + dx + itself * q, d_decay, q, k, k_ptr, decay, decay_ptr, d_weights_ptr, da_ptr,
            chunk, places, dims, inside, num_tokens, KEY_WIDTH, CHUNK,
        )  # fmt: skip
        put_rows(dq_ptr + of_row * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, dq, KEY_WIDTH)
        put_rows(dk_ptr + of_row * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, dk, KEY_WIDTH)
        put_rows(d_decay_ptr + of_row * KEY_WIDTH, KEY_WIDTH, tokens, dims, inside, d_decay, KEY_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def gate_gradients_kernel(
    raw_ptr, bias_ptr, rate_ptr, begins_ptr, d_decay_ptr, out_ptr, raw_token, raw_head, out_token, out_head,
    num_tokens, floor,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, CHUNK: tl.constexpr, AT_ONCE: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """Write the gradients of raw gates: each decays all that its document sees of the chunk from there on."""
    head, dims = tl.program_id(1).to(tl.int64), tl.arange(0, KEY_WIDTH)
    kept = dims < KEY_DIM
    rate = tl.load(rate_ptr + head)
    bias = tl.load(bias_ptr + head * KEY_DIM + dims, mask=kept, other=0.0)
    total = tl.zeros([KEY_WIDTH], tl.float32)
    for start in range(0, CHUNK, AT_ONCE):
        for place in tl.static_range(AT_ONCE):
            token = (tl.program_id(0) * CHUNK + CHUNK - 1 - start - place).to(tl.int64)
            inside = token < num_tokens
            mask = kept & inside
            follows = token > tl.load(begins_ptr + token, mask=inside, other=0)
            row = d_decay_ptr + (head * num_tokens + token) * KEY_WIDTH + dims
            total += tl.load(row, mask=mask, other=0.0)
            # What stands before a document's first token is another's.
            total = tl.where(follows, total, 0.0)
            x = tl.load(raw_ptr + token * raw_token + head * raw_head + dims, mask=mask, other=0.0).to(tl.float32)
            _gate, slope = gate_of(x + bias, rate, floor, FLOOR)
            place_of = out_ptr + token * out_token + head * out_head + dims
            tl.store(place_of, (total * slope).to(out_ptr.dtype.element_ty), mask=mask)
