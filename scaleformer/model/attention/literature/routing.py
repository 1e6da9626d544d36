"""Softmax attention to the neighbourhood in some heads, to the tokens of the same cluster in the others."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, normalize, one_hot

from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.clustered import clustered_attention, wide
from scaleformer.ops.softmax.windowed import joint_softmax, windowed_attention
from scaleformer.system.schema import Positive, Share


class RoutingState(NamedTuple):
    """Keys and values of the local heads, a ring (rows, Hl, window + 1, d), and of the last members of each cluster, a
    ring for each (rows, Hr, clusters, members, d), with the number of members so far, members (rows, Hr, clusters)."""

    near_key: Tensor
    near_value: Tensor
    key: Tensor
    value: Tensor
    members: Tensor


class RoutingAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over |j - i| <= window in local heads, over M_i in the others.

    There Q and K are normalised (layer norm without scale and bias), and each is in the cluster of the centroid of
    greatest cosine, c(x) = argmax_c x . mu_c / |mu_c|; queries and keys share the centroids of a head. M_i holds the
    last `members` j <= i with c(K_j) = c(Q_i) and, in the encoder, the first `members` of them after i. The backward
    pass in training moves the centroid of every cluster that is not empty, and nothing else does:

        mu_c <- decay mu_c + (1 - decay) mean of the queries and keys in c, over all processes

    A checkpoint keeps them. Of equal cosines the first centroid wins; a query whose cluster has no key gets zeros; an
    empty cluster's centroid stays. Pads are in no cluster. Cost O(L (log L + (window + members + clusters) d)) time,
    O(L (window + members + clusters + d)) memory; decoding keeps clusters x members keys and values a routing head,
    window + 1 a local one. Source: [Roy 2020, section 4.1 and algorithm 1], with positions added to the embeddings.
    What differs: there a centroid takes the L / clusters tokens of the text that are nearest to it. So clusters have
    one size, a token may be in several or none, and what an earlier token sees depends on later ones, which a decoder
    does not know yet. Here a token has one cluster, found without the others, and of it only the nearest members in the
    text are seen, which bounds the cost. There centroids move by sums, and no score is divided by |mu| or sqrt(d);
    without equal sizes large clusters would take all.

    local     share of the heads that are local, rounded up
    window    tokens on either side, in the local heads
    clusters  of a routing head
    members   of the cluster, on either side
    decay     of the centroids' moving mean, from 0 to 1 (1: they never move)
    shared    the decoder's keys are its queries, as in the paper; false: it has keys of its own
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(
        self, site: str, width: int, heads: int, local: Share = 0.5, window: Positive = 64, clusters: Positive = 16,
        members: Positive = 32, decay: Share = 0.999, shared: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        self.near = math.ceil(local * heads)
        self.window, self.clusters, self.members, self.decay = window, clusters, members, decay
        if shared and self.causal:
            self.key = self.query
        centroids = torch.randn(heads - self.near, clusters, self.head_width)
        self.register_buffer("centroids", normalised(centroids))
        self.centroids: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        heads, outs = (slice(self.near), slice(self.near, None)), []
        (q, far_q), (k, far_k), (v, far_v) = ([x[:, part] for part in heads] for x in (query, key, value))
        if self.near:
            outs.append(windowed_attention(q, k, v, self.window, causal=self.causal, key_mask=layout.mask))
        if self.near < self.heads:
            outs.append(self.route(normalised(far_q), normalised(far_k), far_v, layout.mask))
        return torch.cat(outs, dim=1)  # (B, H, L, d)

    def route(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """query and key (B, H, L, d), normalised, and value, of the routing heads; mask (B, L) -> (B, H, L, d)"""
        query, key, value = (x.masked_fill(~mask[:, None, :, None], 0.0) for x in (query, key, value))
        q_clusters, k_clusters = (
            self.cluster(x).masked_fill(~mask[:, None], self.clusters) for x in (query, key)
        )  # (B, H, L)
        out = clustered_attention(query, key, value, q_clusters, k_clusters, self.members, causal=self.causal)
        return self.followed(out, (query, q_clusters), (key, k_clusters))

    def cluster(self, x: Tensor) -> Tensor:
        """The clusters of normalised queries or keys of the routing heads: (B, H, L, d) -> (B, H, L)."""
        with torch.no_grad(), full_precision(x.device):
            centroids = normalize(self.centroids, dim=-1)
            return (x.to(centroids.dtype) @ centroids.transpose(-1, -2)).argmax(-1)

    @torch.no_grad()
    def followed(self, out: Tensor, *clustered: tuple[Tensor, Tensor]) -> Tensor:
        """`out`, whose backward pass moves the centroids towards the members (B, H, L, d) of clusters (B, H, L).

        The backward pass, since gradient checkpointing repeats the forward pass, which must find the same clusters."""
        if self.training and out.requires_grad:
            sums, counts = torch.zeros_like(self.centroids), torch.zeros_like(self.centroids[..., :1])
            with full_precision(out.device):
                for x, cluster in clustered:
                    belongs = one_hot(cluster, self.clusters + 1)[..., :-1].to(sums.dtype)  # (B, H, L, clusters)
                    sums += torch.einsum("bhlc,bhld->hcd", belongs, x.to(sums.dtype))
                    counts += belongs.sum((0, 2))[..., None]  # (H, clusters, 1)
            out.register_hook(partial(self.move, sums, counts))
        return out

    def move(self, sums: Tensor, counts: Tensor, gradient: Tensor) -> None:
        """Move the centroids by counts (H, clusters, 1) members with these sums (H, clusters, d)."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
            torch.distributed.all_reduce(counts)
        mean = torch.where(counts > 0, sums / counts.clamp(min=1), self.centroids)
        self.centroids.lerp_(mean, 1 - self.decay)

    def empty_state(self, rows: int, like: Tensor) -> Any:
        near = like.new_zeros(rows, self.near, self.window + 1, self.head_width)
        far = like.new_zeros(rows, self.heads - self.near, self.clusters * self.members, self.head_width)
        count = torch.zeros(*far.shape[:2], self.clusters, dtype=torch.long, device=like.device)
        return RoutingState(near, torch.zeros_like(near), far, torch.zeros_like(far), count)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        near, C, outs = self.near, self.members, []
        query, key, value = (x[:, :, None] for x in (query, key, value))  # (B*K, H, 1, d)
        if near:
            slot, seen = position % (self.window + 1), slice(min(position, self.window) + 1)
            state.near_key[:, :, slot], state.near_value[:, :, slot] = key[:, :near, 0], value[:, :near, 0]
            outs.append(fused(query[:, :near], state.near_key[:, :, seen], state.near_value[:, :, seen]))
        if near < self.heads:
            query, key, value = normalised(query[:, near:]), normalised(key[:, near:]), value[:, near:]
            q_clusters, k_clusters = (self.cluster(x) for x in (query, key))  # (B*K, H, 1)
            place = wide(k_clusters * C + state.members.gather(2, k_clusters) % C, self.head_width)  # (B*K, H, 1, d)
            state.key.scatter_(2, place, key.to(state.key.dtype))
            state.value.scatter_(2, place, value.to(state.value.dtype))
            state.members.scatter_add_(2, k_clusters, torch.ones_like(k_clusters))
            ring = torch.arange(C, device=query.device)
            places = wide(q_clusters * C + ring, self.head_width)  # (B*K, H, C, d)
            seen = (ring < state.members.gather(2, q_clusters))[:, :, None]  # (B*K, H, 1, C)
            outs.append(joint_softmax(query, [(state.key.gather(2, places), state.value.gather(2, places), seen)]))
        return torch.cat(outs, dim=1)[:, :, 0], state  # (B*K, H, d)


def normalised(x: Tensor) -> Tensor:
    """(..., d), to mean 0 and length sqrt(d)."""
    return layer_norm(x, x.shape[-1:])
