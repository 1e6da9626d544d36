"""Kernels, gates and segments: masks and weights written out for torch (`pairs`)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.oracles.comparison import heads_of, oracle, seen_by
from tests.model.attention.oracles.pairs import (
    Module,
    by_bias,
    by_mask,
    by_weights,
    distances,
    embedded,
    relative_scores,
)


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


@oracle("softmax_gated", "torch", "the logarithm of the gate, and scores of relative positions",
        "encoder decoder cross", options={"horizon": 3, "reach": 2, "far_tokens": 2})  # fmt: skip
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
