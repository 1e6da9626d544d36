"""Triton kernels of attention with recall, for GPUs: the choice of the kept keys, and both passes of the attention.

A program of the attention takes a tile of T queries of one head. It reads the keys near any of them, a window of
positions, and by a list the keys kept from outside that window. Letters: B batch, H heads, L / S queries and keys, T
queries of a tile, J keys read together, d and e width of keys and values, E kept keys a side.

The keys far from a query on a side are those up to some number, counted from one end of the row: from the first key for
the side before, from the last key for the side after. A key's `count` is its place in that order, its `order` its
priority as an integer. A query sees the far keys of at least some order, of equal ones those of at least some count.
"""

# mypy: ignore-errors
# Triton's language has no types.
from __future__ import annotations

import triton
import triton.language as tl

NO_KEY = -(1 << 30)  # the segment of a pad
LOWEST = -(1 << 31)  # below the order of all keys

_NO_KEY = tl.constexpr(NO_KEY)
_LOWEST = tl.constexpr(LOWEST)
_BITS = tl.constexpr(1.4426950408889634)  # of one nat: scores are base-2 logarithms


@triton.jit
def _order(priority):
    """The order of priorities; LOWEST for minus infinity, a key that is never kept."""
    bits = (priority + 0.0).to(tl.int32, bitcast=True)  # + 0.0: there is no negative zero
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(priority == float("-inf"), _LOWEST, order)


@triton.jit
def _reached(values, others, least, JOINED: tl.constexpr):
    """How many of both are at least `least`."""
    number = tl.sum((values >= least).to(tl.int32), axis=0)
    if JOINED:
        number += tl.sum((others >= least).to(tl.int32), axis=0)
    return number


@triton.jit
def _smallest(values, others, chosen, others_chosen, JOINED: tl.constexpr):
    """The smallest of both that are chosen."""
    smallest = tl.min(tl.where(chosen, values, 0x7FFFFFFF), axis=0)
    if JOINED:
        smallest = tl.minimum(smallest, tl.min(tl.where(others_chosen, others, 0x7FFFFFFF), axis=0))
    return smallest


@triton.jit
def _limits(order, count, other_order, other_count, places, JOINED: tl.constexpr, E: tl.constexpr):
    """The order and the count of the last of the E first keys, LOWEST and 0 where there are fewer: found bit by bit,
    until E keys are above."""
    least, first = _LOWEST, 0
    number = _reached(order, other_order, least + 1, JOINED)
    if number >= E:
        least += 1
        bit = 31
        while (bit >= 0) & (number != E):
            trial = tl.where(bit == 31, 0, least + (1 << (bit & 31)))
            above = _reached(order, other_order, trial, JOINED)
            if above >= E:
                least, number = trial, above
            bit -= 1
        least = _smallest(order, other_order, order >= least, other_order >= least, JOINED)
        equal, other_equal = order == least, other_order == least
        if number > E:  # of those at `least` only the nearest
            wanted = E - _reached(order, other_order, least + 1, JOINED)
            counts, other_counts = tl.where(equal, count, -1), tl.where(other_equal, other_count, -1)
            for step in range(places):
                trial = first + (1 << (places - 1 - step))
                if _reached(counts, other_counts, trial, JOINED) >= wanted:
                    first = trial
        else:
            first = _smallest(count, other_count, equal, other_equal, JOINED)
    return least, first


@triton.jit
def _chosen(order, count, least, first):
    return ((order > least) | ((order == least) & (count >= first))) & (order > _LOWEST)


@triton.jit
def _keys_of_chunk(priorities, chunk, end, length, after, CHUNK: tl.constexpr):
    """The order and the count of a chunk's keys, those with a count below `end`."""
    count = chunk * CHUNK + tl.arange(0, CHUNK)
    position = tl.where(after, length - 1 - count, count)
    return _order(tl.load(priorities + position, mask=count < end, other=float("-inf"))), count


# Lengths that change from batch to batch are not specialised: each value would be compiled.
@triton.jit(do_not_specialize=["length", "chunks", "heads", "places"])
def top_kernel(
    priorities, tops, length, chunks, heads, places, E: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """The E first keys of each chunk by itself: orders and counts, tops (2, sides B H, chunks, E), full of LOWEST."""
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    order, count = _keys_of_chunk(priorities + row * length, chunk, length, length, row >= heads, CHUNK)
    least, first = _limits(order, count, order, count, places, False, E)
    chosen = _chosen(order, count, least, first)
    place = (row * chunks + chunk) * E + tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.store(tops + place, order, mask=chosen)
    tl.store(tops + tl.num_programs(1).to(tl.int64) * chunks * E + place, count, mask=chosen)


@triton.jit(do_not_specialize=["length", "queries", "chunks", "heads", "places"])
def choose_kernel(
    priorities, tops, far, outside, first_query, limits, kept, length, queries, chunks, heads, each_head, columns,
    places, E: tl.constexpr, CHUNK: tl.constexpr, TOPS: tl.constexpr, T: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """What the queries see of the far keys.

    priorities   (sides, B H, S); tops of `top_kernel`, read where there are several chunks
    far          (sides, B, L), how many keys are far from a query; outside (sides, B, tiles), from all of a tile
    first_query  (B, L), the first query of the same segment
    limits       (sides, B H, L, 2), written at the first query of each segment: the order and the count of a kept key
    kept         (B H, tiles, columns), written: positions of the keys kept outside each tile's window, else -1
    heads        B H; each_head H; places the bits of a count

    The first programs take a tile each, the others RUN queries.
    """
    tiles = tl.cdiv(queries, T)
    program, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    after = row >= heads
    side, head = row // heads, row % heads
    document = side * (heads // each_head) + head // each_head
    is_tile = program < tiles
    for step in range(tl.where(is_tile, 1, RUN)):
        query = (program - tiles) * RUN + step
        real = is_tile
        if (is_tile == 0) & (query < queries):
            real = tl.load(first_query + (head // each_head) * queries + query) == query
        if real:
            if is_tile:
                end = tl.load(outside + document * tiles + program)
            else:
                end = tl.load(far + document * queries + query)
            chunk = tl.maximum(end - 1, 0) // CHUNK
            order, count = _keys_of_chunk(priorities + row * length, chunk, end, length, after, CHUNK)
            joined = tl.arange(0, TOPS)
            if TOPS > 1:
                before = joined < chunk * E
                listed = tops + row * chunks * E + joined
                other_order = tl.load(listed, mask=before, other=_LOWEST)
                other_count = tl.load(listed + tl.num_programs(1).to(tl.int64) * chunks * E, mask=before, other=-1)
            else:
                other_order, other_count = joined + _LOWEST, joined - 1  # not read
            least, first = _limits(order, count, other_order, other_count, places, TOPS > 1, E)
            if is_tile:
                target = kept + (head * tiles + program) * columns + side * E
                chosen = _chosen(order, count, least, first)
                place = tl.cumsum(chosen.to(tl.int32), 0) - 1
                tl.store(target + place, tl.where(after, length - 1 - count, count), mask=chosen)
                if TOPS > 1:
                    others = _chosen(other_order, other_count, least, first)
                    place = tl.sum(chosen.to(tl.int32), 0) + tl.cumsum(others.to(tl.int32), 0) - 1
                    tl.store(target + place, tl.where(after, length - 1 - other_count, other_count), mask=others)
            else:
                target = limits + (row * queries + query) * 2
                tl.store(target, least)
                tl.store(target + 1, first)


@triton.jit
def _rows(x, at, inside, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Rows of x at the positions `at` (n,): (n, PADDED), zeros outside."""
    column = tl.arange(0, PADDED)
    mask = inside[:, None] & (column < WIDTH)[None, :]
    return tl.load(x + at[:, None].to(tl.int64) * stride + column[None, :], mask=mask, other=0.0)


@triton.jit
def _limit(limits, at, inside):
    """The order and the count that a kept key has at least, for queries at places `at` (T,) of limits."""
    return tl.load(limits + at * 2, mask=inside, other=0), tl.load(limits + at * 2 + 1, mask=inside, other=0)


@triton.jit
def _columns(segment, real, first, last, N: tl.constexpr):
    """The lowest and the highest column of the gate of keys in segments (J,) and of queries in those `first` to `last`;
    the highest is below the lowest where no key is real."""
    lowest = tl.min(tl.where(real, segment, 1 << 30), axis=0) - last
    highest = tl.max(tl.where(real, segment, -(1 << 30)), axis=0) - first
    lowest, highest = tl.maximum(lowest, -N - 1), tl.maximum(highest, -N - 1)
    return tl.minimum(lowest, N + 1) + (N + 1), tl.minimum(highest, N + 1) + (N + 1)


@triton.jit
def _bias(
    i, j, inside, real, segment, segment_of_query, order_before, count_before, order_after, count_after, later,
    priorities, priorities_after, salience, gate, by_distance, length, some_far, near_horizon,
    N: tl.constexpr, R: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """What is added to the products of queries at i (T,) and keys at j (J,): (T, J), -inf for a key not seen; and the
    column of the gate (T, J). Pointers begin at the row of the document and head.

    order_..., count_...  (T,) of `_limit`, by side
    later                 (T,) the relative term of the keys after the query
    some_far              whether some key may be far from some query
    near_horizon          whether some key may be within the horizon of some query
    """
    distance = segment[None, :] - segment_of_query[:, None]
    column = tl.minimum(tl.maximum(distance, -N - 1), N + 1) + (N + 1)
    bias = tl.load(gate + column)
    seen = real[None, :] & inside[:, None]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    if some_far:
        order = _order(tl.load(priorities + j, mask=real, other=float("-inf")))[None, :]
        before = order_before[:, None]
        kept = (order > before) | ((order == before) & (j[None, :] >= count_before[:, None]))
        if not CAUSAL:
            order = _order(tl.load(priorities_after + j, mask=real, other=float("-inf")))[None, :]
            after, count = order_after[:, None], (length - 1 - j)[None, :]
            kept_after = (order > after) | ((order == after) & (count >= count_after[:, None]))
            kept = (kept & (column == 0)) | (kept_after & (column != 0))
        near = (column != 0) & (column != 2 * N + 2)
        seen = seen & (kept | near)
        importance = tl.load(salience + j, mask=real, other=0.0)[None, :]
        bias += tl.where(near, 0.0, importance)
    if R > 0:
        if not CAUSAL:
            bias += tl.where(j[None, :] > i[:, None], later[:, None], 0.0)
        if near_horizon:
            place, within = _band(i, j, seen, R, CAUSAL)
            bias += tl.load(by_distance + place, mask=within, other=0.0)
    return tl.where(seen, bias, float("-inf")), column


@triton.jit
def _band(i, j, seen, R: tl.constexpr, CAUSAL: tl.constexpr):
    """The places (T, J) of the distances within the horizon in a table (L, R or 2R), and where they are that."""
    width: tl.constexpr = R if CAUSAL else 2 * R
    last: tl.constexpr = R if CAUSAL else 2 * R - 1
    place = (j[None, :] - i[:, None]) + (R - 1)
    return i[:, None] * width + place, seen & (place >= 0) & (place < last)


@triton.jit
def _later(by_distance, i, inside, R: tl.constexpr, CAUSAL: tl.constexpr):
    if R > 0 and not CAUSAL:
        return tl.load(by_distance + i * (2 * R) + 2 * R - 1, mask=inside, other=0.0)
    return tl.zeros(i.shape, tl.float32)


@triton.jit
def _keys_read(step, window, start, stop, kept, segments, J: tl.constexpr):
    """The positions (J,) that a step reads, which are real, and their segments: first the window, then those listed."""
    lane = tl.arange(0, J)
    if step < window:
        j = start + step * J + lane
        real = j < stop
    else:
        j = tl.load(kept + (step - window) * J + lane)
        real = j >= 0
    j = tl.where(real, j, 0)
    segment = tl.load(segments + j, mask=real, other=_NO_KEY)
    return j, real & (segment != _NO_KEY), segment


@triton.jit(do_not_specialize=["queries", "length", "side_of_keys", "side_of_queries", "H"])
def forward_kernel(
    q, k, v, salience, gate, by_distance, segments_of_queries, segments, first_query, priorities, limits, windows, kept,
    out, log_total, scale,
    queries, length, side_of_keys, side_of_queries, columns,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    H, D: tl.constexpr, E: tl.constexpr, D_PADDED: tl.constexpr, E_PADDED: tl.constexpr,
    N: tl.constexpr, R: tl.constexpr, CAUSAL: tl.constexpr, T: tl.constexpr, J: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out (B, L, H, e) and log_total (B, H, L), in bits; infinite where a query sees no key.

    q, k, v (B, H, ., .) with strides; salience (B, H, S); gate (H, 2N+3); by_distance (B, H, L, R or 2R) in nats;
    windows (B, tiles, 2), the first position and the end; kept (B, H, tiles, columns); D, E the widths of keys, values
    """
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    document, h = head // H, head % H
    i = tile * T + tl.arange(0, T)
    inside = i < queries
    q += document * q_batch + h * q_head
    k += document * k_batch + h * k_head
    v += document * v_batch + h * v_head
    segments += document * length
    salience += head * length
    priorities += head * length
    priorities_after = priorities + side_of_keys
    width: tl.constexpr = R if CAUSAL else 2 * R
    by_distance += head * queries * width
    gate += h * (2 * N + 3)
    query = _rows(q, i, inside, q_row, D, D_PADDED)
    segment_of_query = tl.load(segments_of_queries + document * queries + i, mask=inside, other=0)
    first_segment = tl.min(tl.where(inside, segment_of_query, 1 << 30), axis=0)
    last_segment = tl.max(tl.where(inside, segment_of_query, -(1 << 30)), axis=0)
    first = tl.load(first_query + document * queries + i, mask=inside, other=0)
    order_before, count_before = _limit(limits + head * queries * 2, first, inside)
    order_after, count_after = order_before, count_before
    if not CAUSAL:
        order_after, count_after = _limit(limits + side_of_queries + head * queries * 2, first, inside)
    later = _later(by_distance, i, inside, R, CAUSAL)
    tiles = tl.num_programs(0)
    window_at = windows + (document * tiles + tile) * 2
    start, stop = tl.load(window_at), tl.load(window_at + 1)
    kept += (head * tiles + tile) * columns
    top = tl.full((T,), float("-inf"), tl.float32)
    total = tl.zeros((T,), tl.float32)
    mean = tl.zeros((T, E_PADDED), tl.float32)
    window = tl.maximum(stop - start + J - 1, 0) // J
    for step in range(window + columns // J):
        j, real, segment = _keys_read(step, window, start, stop, kept, segments, J)
        at = start + step * J
        close = (step >= window) | ((at < tile * T + T + R) & (at + J > tile * T - R))
        lowest, highest = _columns(segment, real, first_segment, last_segment, N)
        some_far = (lowest == 0) | (highest == 2 * N + 2)
        bias, _ = _bias(
            i, j, inside, real, segment, segment_of_query, order_before, count_before, order_after, count_after, later,
            priorities, priorities_after, salience, gate, by_distance, length, some_far, close,
            N, R, CAUSAL,
        )  # fmt: skip
        key = _rows(k, j, real, k_row, D, D_PADDED)
        score = (tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale + bias) * _BITS
        higher = tl.maximum(top, tl.max(score, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - finite[:, None])
        fade = tl.exp2(top - finite)
        total = total * fade + tl.sum(weight, 1)
        value = _rows(v, j, real, v_row, E, E_PADDED)
        mean = mean * fade[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        top = higher
    none = total == 0.0
    mean = mean / tl.where(none, 1.0, total)[:, None]
    column = tl.arange(0, E_PADDED)
    place = ((document * queries + i) * H + h)[:, None] * E + column[None, :]
    tl.store(out + place, mean.to(out.dtype.element_ty), mask=inside[:, None] & (column < E)[None, :])
    log = tl.where(none, float("inf"), tl.where(none, 0.0, top) + tl.log2(tl.where(none, 1.0, total)))
    tl.store(log_total + head * queries + i, log, mask=inside)


@triton.jit(do_not_specialize=["queries", "length", "side_of_keys", "side_of_queries", "H"])
def backward_kernel(
    q, k, v, salience, gate, by_distance, segments_of_queries, segments, first_query, priorities, limits, windows, kept,
    out, log_total, d_out, d_q, d_k, d_v, d_salience, d_gate, d_by_distance, scale,
    queries, length, side_of_keys, side_of_queries, columns,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    d_out_batch, d_out_head, d_out_row,
    H, D: tl.constexpr, E: tl.constexpr, D_PADDED: tl.constexpr, E_PADDED: tl.constexpr,
    N: tl.constexpr, R: tl.constexpr, CAUSAL: tl.constexpr, T: tl.constexpr, J: tl.constexpr, GATES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds to d_k (B, S, H, d), d_v (B, S, H, e) and d_salience (B, H, S), in fp32 and zero before; writes d_q
    (B, L, H, d), d_by_distance (B, H, L, R or 2R), zero before, and d_gate (B, H, tiles, GATES), a part of its sum for
    each tile. Others as in `forward_kernel`."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    document, h = head // H, head % H
    i = tile * T + tl.arange(0, T)
    inside = i < queries
    q += document * q_batch + h * q_head
    k += document * k_batch + h * k_head
    v += document * v_batch + h * v_head
    d_out += document * d_out_batch + h * d_out_head
    segments += document * length
    salience += head * length
    d_salience += head * length
    priorities += head * length
    priorities_after = priorities + side_of_keys
    width: tl.constexpr = R if CAUSAL else 2 * R
    by_distance += head * queries * width
    d_by_distance += head * queries * width
    gate += h * (2 * N + 3)
    query = _rows(q, i, inside, q_row, D, D_PADDED)
    segment_of_query = tl.load(segments_of_queries + document * queries + i, mask=inside, other=0)
    first_segment = tl.min(tl.where(inside, segment_of_query, 1 << 30), axis=0)
    last_segment = tl.max(tl.where(inside, segment_of_query, -(1 << 30)), axis=0)
    first = tl.load(first_query + document * queries + i, mask=inside, other=0)
    order_before, count_before = _limit(limits + head * queries * 2, first, inside)
    order_after, count_after = order_before, count_before
    if not CAUSAL:
        order_after, count_after = _limit(limits + side_of_queries + head * queries * 2, first, inside)
    later = _later(by_distance, i, inside, R, CAUSAL)
    tiles = tl.num_programs(0)
    window_at = windows + (document * tiles + tile) * 2
    start, stop = tl.load(window_at), tl.load(window_at + 1)
    kept += (head * tiles + tile) * columns
    d_mean = _rows(d_out, i, inside, d_out_row, E, E_PADDED)
    mean = _rows(out + (document * queries * H + h) * E, i, inside, H * E, E, E_PADDED)
    d_total = tl.sum(d_mean.to(tl.float32) * mean.to(tl.float32), 1)
    log = tl.load(log_total + head * queries + i, mask=inside, other=float("inf"))
    d_query = tl.zeros((T, D_PADDED), tl.float32)
    d_later = tl.zeros((T,), tl.float32)
    d_gates = tl.zeros((T, GATES), tl.float32)
    gates = tl.arange(0, GATES)
    d_column, e_column = tl.arange(0, D_PADDED), tl.arange(0, E_PADDED)
    window = tl.maximum(stop - start + J - 1, 0) // J
    for step in range(window + columns // J):
        j, real, segment = _keys_read(step, window, start, stop, kept, segments, J)
        at = start + step * J
        close = (step >= window) | ((at < tile * T + T + R) & (at + J > tile * T - R))
        lowest, highest = _columns(segment, real, first_segment, last_segment, N)
        some_far = (lowest == 0) | (highest == 2 * N + 2)
        bias, column = _bias(
            i, j, inside, real, segment, segment_of_query, order_before, count_before, order_after, count_after, later,
            priorities, priorities_after, salience, gate, by_distance, length, some_far, close,
            N, R, CAUSAL,
        )  # fmt: skip
        key = _rows(k, j, real, k_row, D, D_PADDED)
        score = (tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale + bias) * _BITS
        weight = tl.exp2(score - log[:, None])  # 0 for hidden keys, and in rows that see none
        value = _rows(v, j, real, v_row, E, E_PADDED)
        d_value = tl.dot(tl.trans(weight.to(value.dtype)), d_mean, input_precision=PRECISION)
        row = (document * length + j) * H + h
        tl.atomic_add(
            d_v + row[:, None] * E + e_column[None, :], d_value, sem="relaxed",
            mask=real[:, None] & (e_column < E)[None, :],
        )  # fmt: skip
        d_score = weight * (tl.dot(d_mean, tl.trans(value), input_precision=PRECISION) - d_total[:, None])
        factor = d_score.to(key.dtype)
        d_query += tl.dot(factor, key, input_precision=PRECISION)
        d_key = tl.dot(tl.trans(factor), query, input_precision=PRECISION) * scale
        tl.atomic_add(
            d_k + row[:, None] * D + d_column[None, :], d_key, sem="relaxed",
            mask=real[:, None] & (d_column < D)[None, :],
        )  # fmt: skip
        if some_far:
            far = (column == 0) | (column == 2 * N + 2)
            tl.atomic_add(d_salience + j, tl.sum(tl.where(far, d_score, 0.0), 0), mask=real, sem="relaxed")
        for n in range(lowest, highest + 1):
            part = tl.sum(tl.where(column == n, d_score, 0.0), 1)
            d_gates += tl.where((gates == n)[None, :], part[:, None], 0.0)
        if R > 0:
            if not CAUSAL:
                d_later += tl.sum(tl.where(j[None, :] > i[:, None], d_score, 0.0), 1)
            if close:
                place, within = _band(i, j, bias != float("-inf"), R, CAUSAL)
                tl.store(d_by_distance + place, d_score, mask=within)
    d_query *= scale
    place = ((document * queries + i) * H + h)[:, None] * D + d_column[None, :]
    tl.store(d_q + place, d_query.to(d_q.dtype.element_ty), mask=inside[:, None] & (d_column < D)[None, :])
    if R > 0 and not CAUSAL:
        tl.store(d_by_distance + i * (2 * R) + 2 * R - 1, d_later, mask=inside)
    tl.store(d_gate + (head * tiles + tile) * GATES + gates, tl.sum(d_gates, 0))
