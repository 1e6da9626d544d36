"""Kernels of attention with recall, in Triton: the choice of the kept keys. B batch, H heads, L / S queries and keys, T
queries of a tile, E kept keys a side.

The keys far from a query on a side are those up to some number, counted from one end of the row: from the first key for
the side before, from the last key for the side after. A key's `count` is its place in that order, its `order` its
priority as an integer. A query sees the far keys of at least some order, of equal ones those of at least some count.
"""

# mypy: ignore-errors
# Triton's language has no types.
from __future__ import annotations

import triton
import triton.language as tl

LOWEST = -(1 << 31)  # below the order of all keys

_LOWEST = tl.constexpr(LOWEST)


@triton.jit
def order_of(priority):
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
    """Order and count of the last of the E first keys, LOWEST and 0 if fewer: found bit by bit, until E are above."""
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
    return order_of(tl.load(priorities + position, mask=count < end, other=float("-inf"))), count


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
