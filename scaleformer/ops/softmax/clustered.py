"""Softmax attention within clusters of the text, in time linear in its length.

C members seen on either side, N chunks of C queries, W keys around a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.softmax.windowed import blockwise_softmax


def clustered_attention(
    q: Tensor, k: Tensor, v: Tensor, q_clusters: Tensor, k_clusters: Tensor, members: int, *, causal: bool = False
) -> Tensor:
    """Self-attention to the nearest keys of the query's cluster.

        out_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j   over the last `members` j <= i of its cluster and,
                                                           unless causal, the first `members` of them after i

    q, k, v        (B, H, L, d), v (B, H, L, e)
    q_clusters, k_clusters  (B, H, L) long, not negative: the clusters of queries and of keys

    Returns (B, H, L, e); zeros in a row that has no key. Cost O(L (log L + members d)) time, O(L (members + d)) memory.
    """
    length, C = q.shape[2], members
    after = 0 if causal else C
    positions = torch.arange(length, device=q.device)
    ranked, order = (k_clusters * length + positions).sort(-1)  # (B, H, L): keys by cluster and position
    codes, turn = (q_clusters * length + positions).sort(-1)  # (B, H, L): queries in the same order
    begin = codes - codes % length  # (B, H, L): no key of the cluster is before, none behind begin + length
    last = torch.searchsorted(ranked, codes, right=True)  # (B, H, L): the places before it are not after the query
    low = torch.maximum(last - C, torch.searchsorted(ranked, begin))
    high = last if causal else torch.minimum(last + C, torch.searchsorted(ranked, begin + length))

    # A chunk has up to C queries whose last place is in one block of C sorted keys, and sees it and those beside it. A
    # block where more than C queries end has several chunks. All chunks together are no more than twice the blocks.
    blocks = -(-length // C)
    chunks = blocks + length // C  # N
    block = ((last - 1) // C).clamp(min=0)  # (B, H, L)
    edges = torch.searchsorted(block, _numbers(blocks + 1, block))  # (B, H, blocks + 1): queries before each block
    ends = (-(-edges.diff() // C)).cumsum(-1)  # (B, H, blocks): chunks up to its end
    first = functional.pad(ends[..., :-1], (1, 0))  # (B, H, blocks)
    slot = positions + (first * C - edges[..., :-1]).gather(2, block)  # (B, H, L), below N C
    bounds = low.new_zeros(*low.shape[:2], chunks * C, 2)  # (B, H, N C, 2): an empty slot sees nothing
    bounds = bounds.scatter(2, wide(slot, 2), torch.stack([low, high], -1)).unflatten(2, (-1, C))
    own = torch.searchsorted(ends, _numbers(chunks, ends), right=True).clamp(max=blocks - 1)  # (B, H, N)
    strip = own[..., None] * C + torch.arange(2 * C + after, device=q.device)  # (B, H, N, W)
    places = strip[..., None, :] - C  # (B, H, N, 1, W), since sorted keys have C zeros in front
    seen = (places >= bounds[..., :1]) & (places < bounds[..., 1:])  # (B, H, N, C, W)

    strips = []
    for x in (k, v):
        x = x.gather(2, wide(order, x.shape[-1]))
        x = functional.pad(x, (0, 0, C, -length % C + after))
        strips.append(x.gather(2, wide(strip.flatten(2), x.shape[-1])).unflatten(2, (chunks, -1)))  # (B, H, N, W, d)
    slot = torch.empty_like(slot).scatter(2, turn, slot)  # (B, H, L), of the queries as they stand in the text
    asking = q.new_zeros(*q.shape[:2], chunks * C, q.shape[-1]).scatter(2, wide(slot, q.shape[-1]), q)
    out = blockwise_softmax(asking.unflatten(2, (-1, C)), [(strips[0], strips[1], seen)])  # (B, H, N, C, e)
    return out.flatten(2, 3).gather(2, wide(slot, v.shape[-1]))  # (B, H, L, e)


def wide(index: Tensor, width: int) -> Tensor:
    """An index (B, H, L) of rows, for rows of a width: (B, H, L, width)."""
    return index[..., None].expand(*index.shape, width)


def _numbers(count: int, like: Tensor) -> Tensor:
    """0 to count - 1 for each head of like (B, H, ...): (B, H, count)."""
    return torch.arange(count, device=like.device).repeat(*like.shape[:2], 1)
