"""Softmax attention to the tokens in the same hash bucket."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import FIRST_ROOM, grow
from scaleformer.ops.common.permuted import Permuted
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import BLOCK_SCORES, chunks, strips
from scaleformer.system.schema import Positive, Range

#: the score of a token with itself: it counts only if the token sees no other
ITSELF = -1e5


class BucketState(NamedTuple):
    """Normalised keys and values (rows, H, T, d), and the positions of the last C members of each bucket, -1 for none.

    recent (rows, H, rounds, buckets, C)
    """

    key: Tensor
    value: Tensor
    recent: Tensor


class ReformerAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over j in P_i,  K_j = Q_j / |Q_j|: queries and keys are one.

    P_i holds, for every round of hashing, the last C members of i's bucket before i and, in the encoder, the first C
    after it; i itself only if there is no other. The bucket of x is argmax [x R; -x R], R a random rotation for each
    round and head (locality-sensitive hashing: similar vectors share a bucket). Sorted by bucket and position, a token
    sees a window of the text. Cost O(L log L + rounds L C d) time, O(rounds L (C + d)) memory; decoding keeps every key
    and value and rounds x buckets x C positions a head, and reads rounds x C of them.
    Source: [Kitaev 2020, section 2 and equations 3 to 6], with positions added to the embeddings.
    What differs: the paper cuts the sorted text into chunks of C that see themselves and the chunk before. There, what
    a token sees depends on how many later tokens fall into lower buckets. A window that begins at the token selects
    causally too, and can be decoded step by step. The number of buckets is fixed, since a decoder cannot know how long
    its text will be. Left out: new rotations for each batch, reversible layers.

    chunk    C, members of the bucket on either side
    buckets  an even number
    rounds   of hashing, each with its own rotations; a key that several of them select counts once
    scaled   divide scores by sqrt(d), as in the paper, which omits it "for clarity". The authors' code does not divide,
             since its keys have length one; false gives its scores
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(
        self, site: str, width: int, heads: int, chunk: Positive = 32, buckets: Annotated[int, Range(ge=2)] = 16,
        rounds: Positive = 2, scaled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        if buckets % 2:
            raise ValueError(f"model.attention.buckets is {buckets}: it must be an even number")
        self.chunk, self.buckets, self.rounds = chunk, buckets, rounds
        self.scale = self.head_width**-0.5 if scaled else 1.0
        self.key = self.query
        self.register_buffer("rotations", torch.randn(heads, rounds, self.head_width, buckets // 2))
        self.rotations: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        length = query.shape[2]
        C = min(self.chunk, length)
        bucket = self.hash(query).masked_fill(~layout.mask[:, None, None], self.buckets)  # (B, H, rounds, L)
        order = (bucket * length + torch.arange(length, device=query.device)).argsort(-1)  # (B, H, rounds, L)
        rank = order.argsort(-1)  # (B, H, rounds, L)
        # Places at most C apart are in the same bucket, with fewer than C members between them. Padding is 0, more than
        # C below any place.
        place = (rank + (C + 1) * (bucket + 1)).int()  # (B, H, rounds, L)
        rounds = torch.arange(self.rounds, device=query.device)
        others = (rounds + rounds[:, None]) % self.rounds  # (rounds, rounds), for each round itself, then the others
        places = place[:, :, others].take_along_dim(order[:, :, :, None], -1)  # (B, H, rounds, rounds, L)
        places = places.transpose(-1, -2)  # (B, H, rounds, L, rounds)
        after = 0 if self.causal else C
        key, value = (x.masked_fill(~layout.mask[:, None, :, None], 0.0) for x in (normalize(key, dim=-1), value))
        query, key, value = (Permuted.apply(x, order, rank) for x in (query, key, value))  # (B, H, rounds, L, d)
        q, p = (chunks(x, C) for x in (query, places))  # (B, H, rounds, N, C, d | rounds)
        k, s, v = (strips(x, C, C, after) for x in (key, places, value))  # (B, H, rounds, N, W, d | rounds)
        size = max(1, BLOCK_SCORES // (q[:, :, :, 0, :, 0].numel() * k.shape[-2]))
        parts = zip(*(x.split(size, 3) for x in (q, p, k, s, v)), strict=True)
        outs, totals = zip(*(self.meet(C, *part) for part in parts), strict=True)
        out, total = (torch.cat(x, dim=3).flatten(3, 4)[:, :, :, :length] for x in (outs, totals))
        out, total = (Permuted.apply(x, rank, order) for x in (out, total))  # (B, H, rounds, L, d | 1)
        return (total.softmax(2).to(out.dtype) * out).sum(2)  # (B, H, L, d)

    def meet(self, C: int, q: Tensor, p: Tensor, k: Tensor, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The output of the queries in each round (..., C, d), and the logarithm of their summed weights (..., C, 1).

        C     how many members of the bucket are seen on either side
        q     (..., C, d), k and v (..., W, d), of the sorted text of a round
        p, s  (..., C, rounds) and (..., W, rounds), places of queries and keys in that round, then in the others
        """
        ahead = s[..., None, :, 0] - p[..., :, None, 0]  # (..., C, W)
        seen = (ahead <= (0 if self.causal else C)) & (ahead >= -C)  # (..., C, W)
        times = torch.ones_like(seen, dtype=torch.uint8)  # (..., C, W), how many rounds select the key
        for n in range(1, self.rounds):
            times += (s[..., None, :, n] - p[..., :, None, n]).abs() <= C
        scores = (q * self.scale) @ k.transpose(-1, -2)  # (..., C, W)
        scores = scores.to(torch.promote_types(q.dtype, torch.float32))
        scores = scores - times.to(scores.dtype).log()
        scores = scores.masked_fill(ahead == 0, ITSELF).masked_fill(~seen, float("-inf"))
        total = scores.logsumexp(-1, keepdim=True)  # (..., C, 1)
        return (scores - total).exp().to(v.dtype) @ v, total

    def hash(self, x: Tensor) -> Tensor:
        """The buckets of queries (B, H, L, d) in each round: (B, H, rounds, L)."""
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            turned = x[:, :, None].to(self.rotations.dtype) @ self.rotations  # (B, H, rounds, L, buckets / 2)
            return torch.cat([turned, -turned], dim=-1).argmax(-1)

    def empty_state(self, rows: int, like: Tensor) -> Any:
        empty = like.new_zeros(rows, self.heads, FIRST_ROOM, self.head_width)  # (B*K, H, T, d)
        shape = (rows, self.heads, self.rounds, self.buckets, self.chunk)
        return BucketState(empty, torch.zeros_like(empty), torch.full(shape, -1, device=like.device))

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        keys, values = (grow(x, position + 1, dim=2) for x in (state.key, state.value))  # (B*K, H, T, d)
        keys[:, :, position], values[:, :, position] = normalize(key, dim=-1), value
        bucket = self.hash(query[:, :, None])[..., None]  # (B*K, H, rounds, 1, 1)
        members = state.recent.take_along_dim(bucket, 3)  # (B*K, H, rounds, 1, C)
        here = torch.full_like(members[..., :1], position)  # (B*K, H, rounds, 1, 1)
        state.recent.scatter_(3, bucket.expand_as(members), torch.cat([members[..., 1:], here], dim=-1))
        places = torch.cat([members.flatten(2), here[:, :, 0, 0]], dim=-1)  # (B*K, H, W), -1 for none
        times = (places[..., None] == places[..., None, :]).sum(-1)  # (B*K, H, W)
        k, v = (x.take_along_dim(places.clamp(min=0)[..., None], 2) for x in (keys, values))  # (B*K, H, W, d)
        scores = (k @ query[..., None])[..., 0] * self.scale  # (B*K, H, W)
        scores = scores.to(torch.promote_types(query.dtype, torch.float32))
        scores = scores - times.to(scores.dtype).log()
        scores[..., -1] = ITSELF
        weights = scores.masked_fill(places < 0, float("-inf")).softmax(-1).to(v.dtype)  # (B*K, H, W)
        return (weights[..., None, :] @ v)[..., 0, :], BucketState(keys, values, state.recent)
