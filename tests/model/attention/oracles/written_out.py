"""What no package has: torch's `scaled_dot_product_attention`, handed the mask or the weight of every pair.

It takes the softmax and the sums over keys from somebody else, and says nothing about how the pairs' weights are meant.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.model.attention.literature.bigbird import draw
from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.oracles.comparison import additive, heads_of, oracle, output_of, seen_by

Module = Any  # an attention: each case knows which


def by_bias(attention: Module, heads: tuple[Tensor, Tensor, Tensor], seen: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention with a bias and a mask (B, H, L, S)."""
    bias = (bias + additive(seen)).expand(-1, attention.heads, -1, -1)
    return output_of(attention, functional.scaled_dot_product_attention(*heads, bias))


def by_weights(attention: Module, value: Tensor, seen: Tensor, weights: Tensor) -> Tensor:
    """The mean of value (B, H, S, d) by positive weights (B, H, L, S): softmax of their logarithms."""
    query, key = (torch.zeros(*value.shape[:2], n, 1, dtype=value.dtype) for n in weights.shape[2:])
    return by_bias(attention, (query, key, value), seen, weights.log())


def distances(x: Tensor, memory: Tensor) -> Tensor:
    """j - i, (L, S)"""
    return torch.arange(memory.shape[1]) - torch.arange(x.shape[1])[:, None]


def embedded(table: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """The rows of table (H, 2R+1, d) for all pairs: (H, L, S, d)."""
    horizon = table.shape[1] // 2
    return table[:, distances(x, memory).clamp(-horizon, horizon) + horizon]


@oracle("sparse", "torch", "the strided pattern", "encoder decoder", options={"stride": 3, "summaries": 1})
def strided(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    away = distances(x, memory)
    patterns = torch.stack([away.abs() <= 3, away % 3 == 0])  # (H, L, S)
    seen = seen_by(attention, x, layout) & patterns
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


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
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


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
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


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
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


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
    asked, named = (torch.cdist(y[:, 1], centres[0]).argmin(-1) for y in (query, key))  # (B, L)
    window = (distances(x, memory).abs() <= 2).expand(len(x), -1, -1)
    pattern = torch.stack([window, asked[:, :, None] == named[:, None]], 1)  # (B, H, L, S)
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
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


@oracle("block_bert", "torch", "a mask of the block that the head sees", "encoder",
        options={"block": 3, "shifted": 0.5})  # fmt: skip
def block_bert(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    block = torch.arange(x.shape[1]) // 3  # (L,)
    count = (layout.mask.sum(1)[:, None, None] + 2) // 3  # (B, 1, 1)
    masks = [(block[:, None] + shift) % count == block for shift in (0, 1)]  # (B, L, S) each
    seen = seen_by(attention, x, layout) & torch.stack(masks, 1)
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


@oracle("bp_transformer", "torch", "a row for each span: the mean of its tokens by torch, and a mask of what is seen",
        "encoder decoder", options={"near": 1, "levels": 2})  # fmt: skip
def bp_transformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    place = torch.arange(12)
    spans = [range(size * m, size * (m + 1)) for size in (1, 2, 4) for m in range(12 // size)]  # R of them
    within = torch.stack([(place >= span.start) & (place < span.stop) for span in spans])  # (R, S)
    asked = attention.salience[None, :, None].expand(len(x), -1, len(spans), -1)
    real = within & layout.mask[:, None, None]  # (B, 1, R, S)
    inside = additive(real | ~real.any(-1, keepdim=True))  # nobody sees spans of pads alone
    keys, values = (functional.scaled_dot_product_attention(asked, key, y, inside) for y in (key, value))
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


@oracle("efficient", "torch", "the weight of each pair, over the keys so far", "decoder", pads=False)
def efficient(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    shares = key.exp()[:, :, None] / key.exp().cumsum(2)[:, :, :, None]  # (B, H, L, S, d)
    weights = torch.einsum("bhic,bhijc->bhij", query.softmax(-1), shares)
    return by_weights(attention, value, seen_by(attention, x, layout), weights)


def draw_noise(attention: Module, generator: np.random.RandomState) -> None:
    attention.noise.copy_(torch.from_numpy(generator.standard_normal(attention.noise.shape)))


@oracle(
    "spe",
    "torch",
    "the weight of each pair, of sums over components",
    "encoder decoder",
    prepare=draw_noise,
    options={"realizations": 5, "sines": 2},
)
def spe(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    gates = attention.raw_gates.sigmoid()  # (H, d)
    gains = (gates[..., None] * attention.raw_gains.softmax(-1)).sqrt()  # (H, d, K)
    turns = 2 * math.pi * attention.raw_frequencies.sigmoid() / 2 * torch.arange(x.shape[1])[:, None, None, None]
    cosines, sines, rest = attention.noise.split([2, 2, 1], dim=2)  # (H, d, K | 1, R)

    def spread(y: Tensor, angles: Tensor) -> Tensor:
        waves = torch.einsum("lhck,hckr->lhcr", gains * angles.cos(), cosines)
        waves = waves + torch.einsum("lhck,hckr->lhcr", gains * angles.sin(), sines)
        waves = waves + (1 - gates).sqrt()[..., None] * rest[:, :, 0]  # (L, H, d, R)
        return functional.elu(torch.einsum("bhlc,lhcr->bhlr", y, waves) * (5 * y.shape[-1]) ** -0.25) + 1

    weights = spread(query, turns + attention.phases) @ spread(key, turns).mT  # (B, H, L, S)
    return by_weights(attention, value, seen_by(attention, x, layout), weights)


@oracle("scaleformer", "torch", "the weight of each pair", "encoder decoder cross", options={"horizon": 3})
def scaleformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    return by_weights(attention, value, seen_by(attention, x, layout), kernel_scores(attention, query, key, x, memory))


def kernel_scores(attention: Module, query: Tensor, key: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """phi(Q_i) . (phi(K_j) + phi(P_clip(j-i))), (B, H, L, S)"""
    query, key = functional.elu(query) + 1, functional.elu(key) + 1
    scores = query @ key.mT
    if hasattr(attention, "relative_embedding"):
        table = functional.elu(embedded(attention.relative_embedding, x, memory)) + 1  # (H, L, S, d)
        scores = scores + torch.einsum("bhid,hijd->bhij", query, table)
    return scores


def gates(attention: Module, seen: Tensor, layout: SegmentLayout) -> Tensor:
    """The gate of each pair, of what is far no more than `far_tokens` tokens: (B, H, L, S)."""
    reach = attention.log_gate.shape[1] // 2
    apart = layout.key_segments[:, None] - layout.query_segments[:, :, None]  # (B, L, S)
    far = (apart.abs() >= reach)[:, None]  # (B, 1, L, S)
    scale = (attention.far_tokens / (far & seen).sum(-1, keepdim=True).double()).clamp(max=1)  # (B, 1, L, 1)
    gate = attention.log_gate.exp()[:, apart.clamp(-reach, reach) + reach].transpose(0, 1)  # (B, H, L, S)
    return gate * torch.where(far, scale, 1.0)


GATED = {"options": {"horizon": 3, "reach": 2, "far_tokens": 2}}


@oracle("segment_gated", "torch", "the weight of each pair", "encoder decoder cross", **GATED)
def segment_gated(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    seen = seen_by(attention, x, layout)
    weights = kernel_scores(attention, query, key, x, memory) * gates(attention, seen, layout)
    return by_weights(attention, value, seen, weights)


def relative_scores(attention: Module, query: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """Q_i . P_clip(j-i) / sqrt(d), (B, H, L, S); none in cross-attention."""
    if not hasattr(attention, "relative_embedding"):
        return query.new_zeros(())
    table = embedded(attention.relative_embedding, x, memory)
    return torch.einsum("bhid,hijd->bhij", query, table) / math.sqrt(attention.head_width)


@oracle("softmax_gated", "torch", "the logarithm of the gate, and scores of relative positions",
        "encoder decoder cross", **GATED)  # fmt: skip
def softmax_gated(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    heads, seen = heads_of(attention, x, memory), seen_by(attention, x, layout)
    bias = gates(attention, seen, layout).log() + relative_scores(attention, heads[0], x, memory)
    return by_bias(attention, heads, seen, bias)


@oracle(
    "segment_recall",
    "torch",
    "the logarithm of the gate, saliences, scores of relative positions, and a mask of what is kept",
    "encoder decoder cross",
    options={"near": 1, "horizon": 3, "kept": 2},
)
def segment_recall(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    heads, seen = heads_of(attention, x, memory), seen_by(attention, x, layout)
    apart = layout.key_segments[:, None] - layout.query_segments[:, :, None]  # (B, L, S)
    salience = torch.einsum("bhjd,hd->bhj", heads[1], attention.salience)  # (B, H, S)
    recency = attention.recency[:, None] * layout.key_segments[:, None]  # (B, H, S)
    chosen = seen & (apart.abs() <= 1)[:, None]  # (B, 1, L, S)
    for sign, count in ((-1, 2 if attention.causal else 1), (1, 1)):
        there = (seen & (sign * apart > 1)[:, None]).expand(-1, attention.heads, -1, -1)  # (B, H, L, S)
        priority = (salience - sign * recency)[:, :, None].masked_fill(~there, float("-inf"))
        kept = torch.zeros_like(there).scatter(3, priority.topk(count).indices, True)
        chosen = chosen | (there & kept)
    gate = attention.log_gate[:, apart.clamp(-2, 2) + 2].transpose(0, 1)  # (B, H, L, S)
    far = torch.where((apart.abs() > 1)[:, None], salience[:, :, None], 0.0)
    bias = gate + far + relative_scores(attention, heads[0], x, memory)
    return by_bias(attention, heads, chosen, bias)


@oracle("g_transformer", "torch", "a mask of the own segment, and in the top layer another of all, with the gate",
        "encoder decoder cross", options={"combined": 1})  # fmt: skip
def g_transformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    seen = seen_by(attention, x, layout)  # (B, 1, L, S)
    own = seen & (layout.query_segments[:, :, None] == layout.key_segments[:, None])[:, None]
    own = own | ~own.any(-1, keepdim=True)  # pads of the output, which nobody compares
    group, whole = (
        by_bias(module, heads_of(module, x, memory), mask, x.new_zeros(()))
        for module, mask in ((attention, own), (attention.whole, seen))
    )
    gate = torch.sigmoid(functional.linear(torch.cat([group, whole], -1), attention.gate.weight, attention.gate.bias))
    return gate * group + (1 - gate) * whole


def draw_directions(attention: Module, generator: np.random.RandomState) -> None:
    attention.projection = torch.from_numpy(generator.standard_normal((attention.heads, 6, attention.head_width)))


@oracle("rfa_gated", "torch", "the weight of each pair, summed", "decoder cross",
        prepare=draw_directions, options={"features": 6, "scale": 0.8})  # fmt: skip
def rfa_gated(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)

    def features(y: Tensor) -> Tensor:
        unit = y / y.norm(dim=-1, keepdim=True) / attention.log_scale.exp()[:, None, None]
        angles = torch.einsum("bhlc,hmc->bhlm", unit, attention.projection.double())
        return torch.cat([torch.sin(angles), torch.cos(angles)], -1) / math.sqrt(6)

    weights = (features(query) @ features(key).mT) * seen_by(attention, x, layout)  # (B, H, L, S)
    if attention.causal:
        gate = torch.sigmoid(functional.linear(x, attention.gate.weight, attention.gate.bias))  # (B, L, H)
        first = torch.zeros_like(layout.query_segments, dtype=torch.bool)
        first[:, 1:] = layout.query_segments[:, 1:] > layout.query_segments[:, :-1]
        fading = torch.where(first[..., None], gate, 1.0).cumprod(1).transpose(1, 2)  # (B, H, L)
        weights = weights * fading[..., None] / fading[:, :, None]
    return output_of(attention, weights @ value / weights.sum(-1, keepdim=True).clamp(min=0.1))


@oracle("etc", "torch", "a mask of windows and global tokens, and scores of the labels", "encoder",
        options={"radius": 2, "horizon": 2})  # fmt: skip
def etc(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    segments, last = layout.query_segments, layout.mask.clone()
    last[:, :-1] &= (segments[:, 1:] > segments[:, :-1]) | ~layout.mask[:, 1:]
    asks, answers = last[:, None, :, None], last[:, None, None]  # (B, 1, L, 1), (B, 1, 1, S)
    apart = (segments[:, None] - segments[:, :, None])[:, None].expand(-1, attention.heads, -1, -1)  # (B, H, L, S)
    tokens = torch.einsum("bhid,hijd->bhij", query, embedded(attention.relative_embedding, x, memory))
    among = (query @ attention.segment_embedding.mT).gather(3, apart.clamp(-2, 2) + 2)  # (B, H, L, S)
    to_global, to_long = (
        torch.where(apart == 0, *(query @ table.mT).split(1, dim=-1)) for table in attention.belonging
    )
    scores = torch.where(asks & answers, among, torch.where(asks, to_long, torch.where(answers, to_global, tokens)))
    seen = seen_by(attention, x, layout) & (asks | answers | (distances(x, memory).abs() <= 2))
    return by_bias(attention, (query, key, value), seen, scores / math.sqrt(attention.head_width))


@oracle("hibert", "torch", "masks of the own segment, of segments among each other, and of segments for tokens",
        "encoder decoder")  # fmt: skip
def hibert(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    seen, rows = seen_by(attention, x, layout), []  # (B, 1, L, S)
    for text, visible, segments, real in zip(x, seen, layout.query_segments, layout.mask, strict=True):
        text, visible, segments = text[None, real], visible[None, :, real][..., real], segments[real]
        group = by_mask(attention, text, text, visible & (segments == segments[:, None]))
        numbers, sizes = segments.unique_consecutive(return_counts=True)  # (N,)
        angles = numbers[:, None] / 10_000 ** (torch.arange(0, x.shape[2], 2) / x.shape[2])  # (N, D / 2)
        places = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # (N, D)
        summary = (text + group)[:, sizes.cumsum(0) - 1] + places
        earlier = numbers <= numbers[:, None] if attention.causal else torch.ones(len(numbers), len(numbers)).bool()
        context = summary + by_mask(attention.among, summary, summary, earlier[None, None])
        ended = numbers < segments[:, None] if attention.causal else torch.ones(len(segments), len(numbers)).bool()
        back = by_mask(attention.back, text, context, (ended | ~ended.any(-1, keepdim=True))[None, None])
        rows.append(functional.pad(group + back * ended.any(-1, keepdim=True), (0, 0, 0, x.shape[1] - len(segments))))
    return torch.cat(rows)


def by_mask(attention: Module, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
    """Softmax attention with a mask (B, H, L, S)."""
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))
