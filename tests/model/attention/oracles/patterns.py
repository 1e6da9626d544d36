"""Windows, patterns, clusters and spans: masks written out for torch (`pairs`)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.model.attention.literature.bigbird import draw
from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.oracles.comparison import additive, heads_of, oracle, output_of, seen_by
from tests.model.attention.oracles.pairs import Module, by_bias, by_mask, distances, relative_scores


@oracle("sparse", "torch", "the strided pattern", "encoder decoder", options={"stride": 3, "summaries": 1})
def strided(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    away = distances(x, memory)
    patterns = torch.stack([away.abs() <= 3, away % 3 == 0])  # (H, L, S)
    seen = seen_by(attention, x, layout) & patterns
    return by_mask(attention, x, memory, seen)


@oracle(
    "sparse",
    "torch",
    "the strided pattern, merged",
    "encoder decoder",
    options={"stride": 3, "summaries": 1, "factors": "merged"},
)
def merged(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    away = distances(x, memory)
    seen = seen_by(attention, x, layout) & ((away.abs() <= 3) | (away % 3 == 0))
    return by_mask(attention, x, memory, seen)


@oracle("longformer", "torch", "a dilated head, and the first tokens of segments", "encoder decoder",
        options={"window": 2, "segment_tokens": True, "dilation": 2, "dilated_heads": 1})  # fmt: skip
def longformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    away, segments = distances(x, memory), layout.query_segments
    first = torch.ones_like(segments, dtype=torch.bool)
    first[:, 1:] = segments[:, 1:] > segments[:, :-1]
    pattern = torch.stack([away.abs() <= 2, (away.abs() <= 4) & (away % 2 == 0)]) | first[:, None, None]  # (B, H, L, S)
    if not attention.causal:
        pattern = pattern | first[:, None, :, None]
    seen = seen_by(attention, x, layout) & pattern
    return by_mask(attention, x, memory, seen)


@oracle(
    "sparse",
    "torch",
    "the fixed pattern",
    "encoder decoder",
    options={"pattern": "fixed", "stride": 4, "summaries": 2},
)
def fixed(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    place = torch.arange(x.shape[1])
    pattern = (place // 4 == place[:, None] // 4) | (place % 4 >= 2)  # (L, S)
    seen = seen_by(attention, x, layout) & pattern
    return by_mask(attention, x, memory, seen)


def draw_seeds(attention: Module, generator: np.random.RandomState) -> None:
    attention.seeds = torch.from_numpy(generator.randint(2**31, size=attention.heads))


def draw_centroids(attention: Module, generator: np.random.RandomState) -> None:
    attention.centroids.copy_(torch.from_numpy(generator.standard_normal(attention.centroids.shape)))


@oracle(
    "routing",
    "torch",
    "a window in one head, in the other the clusters of the nearest centroids",
    "encoder decoder",
    prepare=draw_centroids,
    options={"window": 2, "clusters": 3, "members": 12},
)
def routing(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    *both, value = heads_of(attention, x, memory)
    query, key = (torch.cat([y[:, :1], functional.layer_norm(y[:, 1:], y.shape[-1:])], 1) for y in both)
    length = attention.centroids.norm(dim=-1, keepdim=True) / math.sqrt(attention.head_width)
    centres = attention.centroids / length  # (1, clusters, d), of one length: the nearest has the greatest cosine
    q_clusters, k_clusters = (torch.cdist(y[:, 1], centres[0]).argmin(-1) for y in (query, key))  # (B, L)
    window = (distances(x, memory).abs() <= 2).expand(len(x), -1, -1)
    pattern = torch.stack([window, q_clusters[:, :, None] == k_clusters[:, None]], 1)  # (B, H, L, S)
    seen = seen_by(attention, x, layout) & pattern
    empty = ~seen.any(-1, keepdim=True)
    out = functional.scaled_dot_product_attention(query, key, value, additive(seen | empty))
    return output_of(attention, out.masked_fill(empty, 0.0))


@oracle(
    "bigbird",
    "torch",
    "neighbours, the first block, and the blocks that ours draws",
    "encoder",
    prepare=draw_seeds,
    options={"block": 2, "random_blocks": 2},
)
def bigbird(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    block = torch.arange(x.shape[1]) // 2  # (L,)
    apart = (block - block[:, None]).abs()
    pattern = (apart <= 1) | (block == 0) | (block == 0)[:, None]  # (L, S)
    chosen, _ = draw((layout.mask.sum(1) + 1) // 2, int(block[-1]) + 1, 2, attention.seeds)  # (B, H, N, r)
    picked = (chosen[:, :, block][..., None] == block).any(3)  # (B, H, L, S)
    seen = seen_by(attention, x, layout) & (pattern | picked)
    return by_mask(attention, x, memory, seen)


@oracle("block_bert", "torch", "a mask of the block that the head sees", "encoder",
        options={"block": 3, "shifted": 0.5})  # fmt: skip
def block_bert(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    block = torch.arange(x.shape[1]) // 3  # (L,)
    count = (layout.mask.sum(1)[:, None, None] + 2) // 3  # (B, 1, 1)
    masks = [(block[:, None] + shift) % count == block for shift in (0, 1)]  # (B, L, S) each
    seen = seen_by(attention, x, layout) & torch.stack(masks, 1)
    return by_mask(attention, x, memory, seen)


@oracle("bp_transformer", "torch", "a row for each span: the mean of its tokens by torch, and a mask of what is seen",
        "encoder decoder", options={"near": 1, "levels": 2})  # fmt: skip
def bp_transformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    place = torch.arange(12)
    spans = [range(size * m, size * (m + 1)) for size in (1, 2, 4) for m in range(12 // size)]  # R of them
    within = torch.stack([(place >= span.start) & (place < span.stop) for span in spans])  # (R, S)
    queries = attention.salience[None, :, None].expand(len(x), -1, len(spans), -1)
    real = within & layout.mask[:, None, None]  # (B, 1, R, S)
    inside = additive(real | ~real.any(-1, keepdim=True))  # nobody sees spans of pads alone
    keys, values = (functional.scaled_dot_product_attention(queries, key, y, inside) for y in (key, value))
    chosen = torch.zeros(12, len(spans), dtype=torch.bool)
    for i in range(12):
        left = right = i + 1
        for size in (1, 2, 4):
            for n in range(2):
                if left and (n == 0 or left % (2 * size)):
                    left -= size
                    chosen[i, spans.index(range(left, left + size))] = True
                if right < 12 and (n == 0 or right % (2 * size)):
                    chosen[i, spans.index(range(right, right + size))] = not attention.causal
                    right += size
    seen = chosen & real.any(-1)[:, :, None]  # (B, 1, L, R)
    return by_bias(attention, (query, keys, values), seen, query.new_zeros(()))


def draw_spans(attention: Module, generator: np.random.RandomState) -> None:
    attention.span.copy_(torch.from_numpy(generator.uniform(0.1, 0.9, attention.span.shape)))


@oracle(
    "adaptive_span",
    "torch",
    "the logarithm of the soft mask, and scores of relative positions",
    "encoder decoder",
    prepare=draw_spans,
    options={"max_span": 8, "ramp": 3, "horizon": 3},
)
def adaptive_span(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    return spanned(attention, x, memory, layout, attention.span[:, None, None])


@oracle("adaptive_span", "torch", "the same, of a span for each token", "encoder decoder",
        options={"max_span": 8, "ramp": 3, "horizon": 3, "dynamic": True})  # fmt: skip
def dynamic_span(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    shares = functional.linear(x, attention.span_weight, attention.span_bias).sigmoid()  # (B, L, H)
    return spanned(attention, x, memory, layout, shares.transpose(1, 2)[..., None])


def spanned(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout, shares: Tensor) -> Tensor:
    """Spans of 8 times the shares (H, 1, 1) or (B, H, L, 1)."""
    heads = heads_of(attention, x, memory)
    relative = relative_scores(attention, heads[0], x, memory)
    soft = ((3 + 8 * shares - distances(x, memory).abs()) / 3).clamp(0, 1)  # (H, L, S) or (B, H, L, S)
    seen = seen_by(attention, x, layout) & (soft > 0)
    return by_bias(attention, heads, seen, relative + torch.where(soft > 0, soft, 1.0).log())
