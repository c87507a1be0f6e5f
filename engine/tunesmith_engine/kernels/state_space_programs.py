"""Triton programs of the state-space scan; see state_space.py for the formulas and names."""

from __future__ import annotations

from tunesmith_engine.kernels.attention import _document
from tunesmith_engine.kernels.delta_rule_parts import (
    begins_of,
    crosses,
    decays_of,
    put_rows,
    reach_of,
    rows_of,
)
from tunesmith_engine.kernels.tile_products import product
from tunesmith_engine.kernels.triton_import import jit, tl

UNSPECIALISED = ["num_tokens", "num_documents", "num_chunks", "num_heads", "search_steps", "group", "in_part"]
"""Their values change with each batch or model and would each compile the programs again."""


@jit
def scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside):
    """Return the steps, and the log decay since the chunk or the document began, in two parts as in the delta rule."""
    size = num_heads.to(tl.int64) * num_tokens
    place = scales_ptr + head * num_tokens + tokens
    steps, decay = tl.load(place, mask=inside, other=0.0), tl.load(place + size, mask=inside, other=0.0)
    return steps, decay, tl.load(place + 2 * size, mask=inside, other=0.0)


@jit
def rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost):
    """Return by what factor each token is in the state behind its chunk, and the first part of the chunk's log decay.

    Args:
        begin, end: tokens of the last document in the chunk; others aren't in the state.
    """
    place = scales_ptr + (num_heads.to(tl.int64) + head) * num_tokens + end - 1
    total = tl.load(place)
    left = (total - decay) + (tl.load(place + num_heads.to(tl.int64) * num_tokens) - lost)
    return tl.exp(tl.where((tokens >= begin) & (tokens < end), left, float("-inf"))), total


@jit
def step_of(raw_ptr, bias_ptr, raw_token, tokens, head, inside, low, high):
    """Return the steps of a head and their slopes by the raw numbers."""
    raw = tl.load(raw_ptr + tokens.to(tl.int64) * raw_token + head, mask=inside, other=0.0).to(tl.float32)
    raw += tl.load(bias_ptr + head).to(tl.float32)
    # log(1 + e) loses e where it is small: its series serves there.
    small = tl.exp(-tl.abs(raw))
    log = tl.where(small < 1e-4, small - 0.5 * small * small, tl.log(1.0 + small))
    unlimited = tl.maximum(raw, 0.0) + log
    steps = tl.minimum(tl.maximum(unlimited, low), high)
    free = (unlimited >= low) & (unlimited <= high)
    return steps, tl.where(free, 1.0 / (1.0 + tl.exp(-raw)), 0.0)


@jit(do_not_specialize=UNSPECIALISED)
def scales_kernel(
    raw_ptr, bias_ptr, log_rate_ptr, bounds_ptr, begins_ptr, scales_ptr, raw_token,
    num_tokens, num_documents, search_steps, low, high, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the first token of each token's document, the steps and the log decays."""
    head, num_heads = tl.program_id(1).to(tl.int64), tl.num_programs(1).to(tl.int64)
    tokens = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = tokens < num_tokens
    begins, _end = _document(bounds_ptr, num_documents, search_steps, tokens)
    tl.store(begins_ptr + tokens, begins, mask=inside & (head == 0))
    steps, _slope = step_of(raw_ptr, bias_ptr, raw_token, tokens, head, inside, low, high)
    rate = -tl.exp(tl.load(log_rate_ptr + head).to(tl.float32))
    # A document's first token has no state to let decay.
    gates = tl.where(inside & (tokens > begins), steps.to(tl.float64) * rate.to(tl.float64), 0.0)
    seen = (tokens[None, :] <= tokens[:, None]) & (tokens[None, :] >= begins[:, None])
    exact = tl.sum(tl.where(seen, gates[None, :], 0.0), 1)
    decay = exact.to(tl.float32)
    place = scales_ptr + head * num_tokens + tokens
    tl.store(place, steps, mask=inside)
    tl.store(place + num_heads * num_tokens, decay, mask=inside)
    tl.store(place + 2 * num_heads * num_tokens, (exact - decay.to(tl.float64)).to(tl.float32), mask=inside)


@jit
def block_of(place, KEYS: tl.constexpr, VALUES: tl.constexpr, VALUE_WIDTH: tl.constexpr):
    """Return the dimensions of states and the columns of values that a program has, by its number among such blocks."""
    dims = place // (VALUE_WIDTH // VALUES) * KEYS + tl.arange(0, KEYS)
    return dims, place % (VALUE_WIDTH // VALUES) * VALUES + tl.arange(0, VALUES)


@jit
def alike_of(b_ptr, b_token, c_ptr, c_token, tokens, inside,
             KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, KEYS: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    """Return the products of each token's c with each one's b."""
    alike = tl.zeros([CHUNK, CHUNK], tl.float32)
    for start in range(0, KEY_WIDTH, KEYS):
        dims = start + tl.arange(0, KEYS)
        c = rows_of(c_ptr, c_token, tokens, dims, inside, KEY_DIM)
        alike += product(c, tl.trans(rows_of(b_ptr, b_token, tokens, dims, inside, KEY_DIM)))
    return alike


@jit(do_not_specialize=UNSPECIALISED)
def states_kernel(
    x_ptr, b_ptr, states_ptr, bounds_ptr, scales_ptr, x_token, x_head, b_token, b_head, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write the state before each chunk that a document crosses into."""
    head, num_heads = tl.program_id(2).to(tl.int64), tl.num_programs(2)
    begin, end = tl.load(bounds_ptr + tl.program_id(0)), tl.load(bounds_ptr + tl.program_id(0) + 1)
    first, last = begin // CHUNK, (end - 1) // CHUNK
    dims, columns = block_of(tl.program_id(1), KEYS, VALUES, VALUE_WIDTH)
    states_ptr += head * num_chunks * KEY_WIDTH * VALUE_WIDTH
    state = tl.zeros([KEYS, VALUES], tl.float32)
    # The last chunk's state is nobody's.
    for chunk in range(first, tl.maximum(last, first)):
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = (tokens >= begin) & (tokens < end)
        steps, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        stop = tl.minimum((chunk + 1) * CHUNK, end)
        rest, total = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, stop, decay, lost)
        b = rows_of(b_ptr + head // group * b_head, b_token, tokens, dims, inside, KEY_DIM)
        x = rows_of(x_ptr + head * x_head, x_token, tokens, columns, inside, VALUE_DIM)
        state = state * tl.exp(total) + product(tl.trans(b), x * (steps * rest)[:, None])
        place = states_ptr + (chunk + 1) * KEY_WIDTH * VALUE_WIDTH
        put_rows(place, VALUE_WIDTH, dims, columns, dims < KEY_WIDTH, state, VALUE_WIDTH)


@jit(do_not_specialize=UNSPECIALISED)
def outputs_kernel(
    x_ptr, b_ptr, c_ptr, skip_ptr, states_ptr, out_ptr, begins_ptr, scales_ptr,
    x_token, x_head, b_token, b_head, c_token, c_head, out_token, out_head, num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write what each token reads from the state behind it, and its own numbers times the skip."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(2).to(tl.int64), tl.num_programs(2)
    tokens = chunk * CHUNK + tl.arange(0, CHUNK)
    columns = tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    steps, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    b_ptr += head // group * b_head
    c_ptr += head // group * c_head
    weights = alike_of(b_ptr, b_token, c_ptr, c_token, tokens, inside, KEY_DIM, KEY_WIDTH, KEYS, CHUNK)
    weights *= decays_of(tokens, begins, decay, lost) * steps[None, :]
    read = tl.zeros([CHUNK, VALUES], tl.float32)
    key_width = tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    for start in range(0, KEY_WIDTH, KEYS):
        dims = start + tl.arange(0, KEYS)
        state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, dims < key_width, VALUE_WIDTH)
        read += product(rows_of(c_ptr, c_token, tokens, dims, inside, KEY_DIM), state)
    x = rows_of(x_ptr + head * x_head, x_token, tokens, columns, inside, VALUE_DIM)
    out = read * reach_of(begins, inside, chunk, decay, CHUNK)[:, None] + product(weights, x)
    out += x * tl.load(skip_ptr + head).to(tl.float32)
    put_rows(out_ptr + head * out_head, out_token, tokens, columns, inside, out, VALUE_DIM)


@jit(do_not_specialize=UNSPECIALISED)
def state_gradients_kernel(
    do_ptr, c_ptr, slopes_ptr, bounds_ptr, scales_ptr, do_token, do_head, c_token, c_head,
    num_tokens, num_chunks, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the state before each chunk that a document crosses into."""
    head, num_heads = tl.program_id(2).to(tl.int64), tl.num_programs(2)
    begin, end = tl.load(bounds_ptr + tl.program_id(0)), tl.load(bounds_ptr + tl.program_id(0) + 1)
    first, last = begin // CHUNK, (end - 1) // CHUNK
    dims, columns = block_of(tl.program_id(1), KEYS, VALUES, VALUE_WIDTH)
    slopes_ptr += head * num_chunks * KEY_WIDTH * VALUE_WIDTH
    slope = tl.zeros([KEYS, VALUES], tl.float32)
    for step in range(tl.maximum(last - first, 0)):
        chunk = last - step
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = (tokens >= begin) & (tokens < end)
        _steps, decay, _lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        end_of_chunk = tl.minimum((chunk + 1) * CHUNK, end) - 1
        total = tl.load(scales_ptr + (num_heads.to(tl.int64) + head) * num_tokens + end_of_chunk)
        c = rows_of(c_ptr + head // group * c_head, c_token, tokens, dims, inside, KEY_DIM)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        reach = tl.exp(tl.where(inside, decay, float("-inf")))
        slope = slope * tl.exp(total) + product(tl.trans(c), do * reach[:, None])
        place = slopes_ptr + chunk * KEY_WIDTH * VALUE_WIDTH
        put_rows(place, VALUE_WIDTH, dims, columns, dims < KEY_WIDTH, slope, VALUE_WIDTH)


@jit
def gate_gradients(tokens, begins, begin, passing, read, written, pairs):
    """Return the gradients of the logarithms of decays.

    A gate decays what crosses it: from before to behind the chunk, to or from a state, or between two tokens.

    Args:
        begin: first token of the last document in the chunk.
        passing: what goes from the state before the chunk to the one behind it.
        read, written: what each token has of the state before, and what the state behind has of it.
        pairs: what token i has of token j.
    """
    seen = (tokens[:, None] >= tokens[None, :]) & (tokens[None, :] >= begins[:, None])
    later = tokens[:, None] > tokens[None, :]
    dg = tl.where(tokens >= begin, passing, 0.0) + tl.sum(tl.where(seen, read[:, None], 0.0), 0)
    dg += tl.sum(tl.where(seen & later, written[None, :], 0.0), 1)
    ahead = tl.where(tokens[:, None] <= tokens[None, :], 1.0, 0.0)
    dg += tl.sum(tl.where(later, product(ahead, tl.where(later, pairs, 0.0)), 0.0), 1)
    return tl.where(tokens > begins, dg, 0.0)


@jit(do_not_specialize=UNSPECIALISED)
def head_gradients_kernel(
    do_ptr, x_ptr, b_ptr, c_ptr, raw_ptr, bias_ptr, log_rate_ptr, skip_ptr, states_ptr, slopes_ptr,
    dx_ptr, d_raw_ptr, begins_ptr, scales_ptr,
    do_token, do_head, x_token, x_head, b_token, b_head, c_token, c_head, raw_token, dx_token, dx_head, d_raw_token,
    num_tokens, num_chunks, group, low, high,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a head's numbers and steps."""
    chunk, head, num_heads = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    tokens = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    before = tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    behind = tl.where(crosses(begins_ptr, (chunk + 1) * CHUNK, num_tokens), KEY_WIDTH, 0)
    steps, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
    rest, all_decay = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost)
    b_ptr += head // group * b_head
    c_ptr += head // group * c_head
    states_ptr += (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
    slopes_ptr += (head * num_chunks + chunk + 1) * KEY_WIDTH * VALUE_WIDTH
    # Products of c and b in what each token sees.
    alike = alike_of(b_ptr, b_token, c_ptr, c_token, tokens, inside, KEY_DIM, KEY_WIDTH, KEYS, CHUNK)
    alike *= decays_of(tokens, begins, decay, lost)
    skip = tl.load(skip_ptr + head).to(tl.float32)
    met = tl.zeros([CHUNK, CHUNK], tl.float32)
    d_steps = tl.zeros([CHUNK], tl.float32)
    read = tl.zeros([CHUNK], tl.float32)
    written = tl.zeros([CHUNK], tl.float32)
    through = tl.zeros([KEYS], tl.float32)
    for first in range(0, VALUE_WIDTH, VALUES):
        columns = first + tl.arange(0, VALUES)
        from_state = tl.zeros([CHUNK, VALUES], tl.float32)
        to_state = tl.zeros([CHUNK, VALUES], tl.float32)
        for start in range(0, KEY_WIDTH, KEYS):
            dims = start + tl.arange(0, KEYS)
            state = rows_of(states_ptr, VALUE_WIDTH, dims, columns, dims < before, VALUE_WIDTH)
            slope = rows_of(slopes_ptr, VALUE_WIDTH, dims, columns, dims < behind, VALUE_WIDTH)
            through += tl.sum(state * slope, 1)
            from_state += product(rows_of(c_ptr, c_token, tokens, dims, inside, KEY_DIM), state)
            to_state += product(rows_of(b_ptr, b_token, tokens, dims, inside, KEY_DIM), slope)
        do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
        x = rows_of(x_ptr + head * x_head, x_token, tokens, columns, inside, VALUE_DIM)
        read += tl.sum(from_state * do, 1)
        written += tl.sum(to_state * x, 1)
        met += product(do, tl.trans(x))
        d_values = product(tl.trans(alike), do) + to_state * rest[:, None]
        d_steps += tl.sum(d_values * x, 1)
        put_rows(
            dx_ptr + head * dx_head, dx_token, tokens, columns, inside, d_values * steps[:, None] + do * skip, VALUE_DIM
        )
    passing = tl.where(begin < chunk * CHUNK, tl.exp(all_decay) * tl.sum(through, 0), 0.0)
    read *= reach_of(begins, inside, chunk, decay, CHUNK)
    dg = gate_gradients(tokens, begins, begin, passing, read, written * rest * steps, met * alike * steps[None, :])
    d_steps -= dg * tl.exp(tl.load(log_rate_ptr + head).to(tl.float32))
    _steps, of_raw = step_of(raw_ptr, bias_ptr, raw_token, tokens, head, inside, low, high)
    places = tokens.to(tl.int64) * d_raw_token + head
    tl.store(d_raw_ptr + places, (d_steps * of_raw).to(d_raw_ptr.dtype.element_ty), mask=inside)


@jit(do_not_specialize=UNSPECIALISED)
def key_gradients_kernel(
    do_ptr, x_ptr, b_ptr, c_ptr, states_ptr, slopes_ptr, db_ptr, dc_ptr, begins_ptr, scales_ptr,
    do_token, do_head, x_token, x_head, b_token, b_head, c_token, c_head,
    num_tokens, num_chunks, num_heads, group, in_part,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of some dimensions of b and c, summed over some heads of a group."""
    chunk, part = tl.program_id(0), tl.program_id(1)
    tokens, dims = chunk * CHUNK + tl.arange(0, CHUNK), tl.program_id(2) * KEYS + tl.arange(0, KEYS)
    inside = tokens < num_tokens
    begins = begins_of(begins_ptr, tokens, inside, LATE)
    end = tl.minimum((chunk + 1) * CHUNK, num_tokens)
    begin = tl.load(begins_ptr + end - 1)
    before = dims < tl.where(crosses(begins_ptr, chunk * CHUNK, num_tokens), KEY_WIDTH, 0)
    behind = dims < tl.where(crosses(begins_ptr, (chunk + 1) * CHUNK, num_tokens), KEY_WIDTH, 0)
    shared = (part * in_part // group).to(tl.int64)
    all_db = tl.zeros([CHUNK, KEYS], tl.float32)
    all_dc = tl.zeros([CHUNK, KEYS], tl.float32)
    for member in range(in_part):
        head = (part * in_part + member).to(tl.int64)
        steps, decay, lost = scales_of(scales_ptr, head, num_heads, num_tokens, tokens, inside)
        rest, _all = rest_of(scales_ptr, head, num_heads, num_tokens, tokens, begin, end, decay, lost)
        met = tl.zeros([CHUNK, CHUNK], tl.float32)
        db = tl.zeros([CHUNK, KEYS], tl.float32)
        dc = tl.zeros([CHUNK, KEYS], tl.float32)
        for first in range(0, VALUE_WIDTH, VALUES):
            columns = first + tl.arange(0, VALUES)
            do = rows_of(do_ptr + head * do_head, do_token, tokens, columns, inside, VALUE_DIM)
            x = rows_of(x_ptr + head * x_head, x_token, tokens, columns, inside, VALUE_DIM)
            met += product(do, tl.trans(x))
            place = (head * num_chunks + chunk) * KEY_WIDTH * VALUE_WIDTH
            state = rows_of(states_ptr + place, VALUE_WIDTH, dims, columns, before, VALUE_WIDTH)
            dc += product(do, tl.trans(state))
            place += KEY_WIDTH * VALUE_WIDTH
            slope = rows_of(slopes_ptr + place, VALUE_WIDTH, dims, columns, behind, VALUE_WIDTH)
            db += product(x, tl.trans(slope))
        met *= decays_of(tokens, begins, decay, lost) * steps[None, :]
        b = rows_of(b_ptr + shared * b_head, b_token, tokens, dims, inside, KEY_DIM)
        all_dc += dc * reach_of(begins, inside, chunk, decay, CHUNK)[:, None] + product(met, b)
        c = rows_of(c_ptr + shared * c_head, c_token, tokens, dims, inside, KEY_DIM)
        all_db += db * (rest * steps)[:, None] + product(tl.trans(met), c)
    start = part.to(tl.int64) * num_tokens * KEY_WIDTH
    put_rows(db_ptr + start, KEY_WIDTH, tokens, dims, inside, all_db, KEY_WIDTH)
    put_rows(dc_ptr + start, KEY_WIDTH, tokens, dims, inside, all_dc, KEY_WIDTH)
