"""Kernels of attention with recall, in Triton: the forward and the backward pass.

A program takes a tile of T queries of one head. It reads the keys near any of them, a window of positions, and by a
list the keys kept from outside that window. Letters: B batch, H heads, L / S queries and keys, T queries of a tile, J
keys read together, d and e width of keys and values. Counts and orders of far keys as in `choosing_kernels`.
"""

# mypy: ignore-errors
# Triton's language has no types.
from __future__ import annotations

import triton
import triton.language as tl

from scaleformer.ops.recall.choosing_kernels import order_of

NO_KEY = -(1 << 30)  # the segment of a pad

_NO_KEY = tl.constexpr(NO_KEY)
_BITS = tl.constexpr(1.4426950408889634)  # of one nat: scores are base-2 logarithms


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
        order = order_of(tl.load(priorities + j, mask=real, other=float("-inf")))[None, :]
        before = order_before[:, None]
        kept = (order > before) | ((order == before) & (j[None, :] >= count_before[:, None]))
        if not CAUSAL:
            order = order_of(tl.load(priorities_after + j, mask=real, other=float("-inf")))[None, :]
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
