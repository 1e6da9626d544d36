"""The near part of hybrid attention: softmax over the keys of a few segments, joined with the sums of the far part.

A block of queries of one segment sees one range of keys, its window. Blocks of like size and windows of like width are
worked on together, both filled up to powers of two, so that a long segment costs its own length and no other's. The
backward pass makes the scores again, from the logarithm of each query's denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.hybrid_plan import Blocks, Numbers, cut_blocks, flat_rows, take_rows

_MOST_QUERIES = 64
_LEAST = 8
# How many scores are worked on together: on a CPU they share the cache, on a GPU they only bound memory.
SCORE_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 25}
_LOWEST = -80.0  # of a logarithm whose negative is raised: what is less is nothing beside it, and its inverse overflows


class Step(NamedTuple):
    """Blocks worked on together: `queries` and `keys` places each, the window of a block from `first` up to `end`."""

    blocks: Blocks
    first: Tensor
    end: Tensor
    queries: int
    keys: int


@dataclass(frozen=True)
class NearPlan:
    """steps; numbers of the keys (B, L_K); real (B, L_K) bool or None; whether later keys are hidden; N."""

    steps: list[Step]
    numbers: Tensor
    real: Tensor | None
    causal: bool
    near: int


def plan_near(numbers: Numbers, real: Tensor | None, near: int, causal: bool, heads: int) -> NearPlan:
    keys = numbers.keys
    length, device = keys.shape[1], keys.device
    blocks = cut_blocks(numbers.queries, _MOST_QUERIES)
    stride = numbers.total + near + 1  # rows of numbers one after the other, none reaching into the next
    codes = (keys + stride * torch.arange(keys.shape[0], device=device)[:, None]).flatten()
    code, begin = blocks.row * stride + blocks.number, blocks.row * length
    first = torch.searchsorted(codes, code - near) - begin  # (M,)
    end = torch.searchsorted(codes, code + near, right=True) - begin
    if causal:
        end = torch.minimum(end, blocks.start + blocks.size)
    if real is not None:  # pads at the end of a row are no keys worth reading
        last = (real * torch.arange(1, length + 1, device=device)).amax(1)  # (B,)
        end = torch.minimum(end, last[blocks.row])
    first = torch.minimum(first, end)
    rows, columns = _filled(blocks.size), _filled(end - first)
    most = SCORE_NUMBERS.get(device.type, SCORE_NUMBERS["cuda"])
    steps = []
    for size, width in torch.stack([rows, columns], dim=1).unique(dim=0).tolist():
        chosen = ((rows == size) & (columns == width)).nonzero().flatten()
        for part in chosen.split(max(1, most // (heads * size * width))):
            steps.append(Step(blocks.select(part), first[part], end[part], size, width))
    return NearPlan(steps, keys, real, causal, near)


def _filled(size: Tensor) -> Tensor:
    """The next power of two, at least 8."""
    return torch.pow(2, (size.clamp(min=_LEAST) - 1).double().log2().floor() + 1).long()


def join(scores: Tensor, values: Tensor, far: Tensor | None) -> tuple[Tensor, Tensor]:
    """Near and far under one denominator: the means (..., C, e), and the denominators' logarithms (..., C, 1).

    scores  (..., C, W) near logits, overwritten; those of hidden keys are -inf
    values  (..., W, e)
    far     (..., C, e+1) the sums of far scores times [v, 1], or None

    Where there is no key at all the mean is zero and the logarithm inf.
    """
    e = values.shape[-1]
    top = scores.amax(-1, keepdim=True)  # (..., C, 1)
    if far is not None:
        top = torch.maximum(top, far[..., e:].log())
    none = top == float("-inf")
    top = top.masked_fill(none, 0.0)
    weights = scores.sub_(top).exp_()  # (..., C, W)
    total, means = weights.sum(-1, keepdim=True), weights @ values  # (..., C, 1 | e)
    if far is not None:
        far = far * (-top.clamp(min=_LOWEST)).exp()  # (..., C, e+1)
        total, means = total + far[..., e:], means + far[..., :e]
    means = means / total.masked_fill(none, 1.0)
    return means, (top + total.log()).masked_fill(none, float("inf"))


class NearAttention(torch.autograd.Function):
    """Near scores, far sums, one denominator."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rel: Tensor | None,
        log_gate: Tensor,
        far: Tensor | None,
        plan: NearPlan,
    ) -> Tensor:
        """q (B, H, L_Q, d), scaled; k (B, H, L_K, d), v (B, H, L_K, e); rel (H, 2R+1, d); log_gate (H, 2G+1);
        far (B, H, L_Q, e+1), the far part's sums of scores times [v, 1]. All of one dtype. -> (B, H, L_Q, e)
        """
        work = _Work(q, k, v, rel, log_gate, plan)
        shape, e = q.shape[:3], v.shape[3]
        out = v.new_empty(shape.numel() + 1, e)  # the last row takes what belongs to no query
        log_total = v.new_empty(shape.numel() + 1, 1)
        far_rows = None if far is None else far.reshape(-1, e + 1)
        for step in plan.steps:
            p = work.scores(step)
            sums = None if far_rows is None else take_rows(far_rows, p.reading)  # (m, H, C, e+1)
            means, log_totals = join(p.scores, p.values, sums)
            out.index_copy_(0, p.writing, means.view(-1, e))
            log_total.index_copy_(0, p.writing, log_totals.view(-1, 1))
        out, log_total = out[:-1].view(*shape, e), log_total[:-1]
        ctx.save_for_backward(q, k, v, rel, log_gate, out, log_total)
        ctx.plan, ctx.far = plan, far is not None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, rel, log_gate, out, log_total = ctx.saved_tensors
        work, near, reach = _Work(q, k, v, rel, log_gate, ctx.plan), ctx.plan.near, log_gate.shape[1] // 2
        d, e, count = q.shape[3], v.shape[3], q.shape[:3].numel()
        d_q, d_k = q.new_empty(count + 1, d), k.new_zeros(k.shape[:3].numel(), d)
        d_v, d_gate = v.new_zeros(k.shape[:3].numel(), e), torch.zeros_like(log_gate)
        d_rel = None if rel is None else torch.zeros_like(rel)
        d_far = v.new_empty(count + 1, e + 1) if ctx.far else None
        grad, out = grad.reshape(-1, e), out.view(-1, e)
        distances = torch.arange(-near, near + 1, device=q.device)
        for step in ctx.plan.steps:
            p = work.scores(step)
            log_totals = take_rows(log_total, p.reading).masked_fill(~p.valid, float("inf"))  # (m, H, C, 1)
            d_out = take_rows(grad, p.reading) * p.valid  # (m, H, C, e)
            delta = (d_out * take_rows(out, p.reading)).sum(-1, keepdim=True)  # (m, H, C, 1)
            weights = p.scores.sub_(log_totals).exp_()  # (m, H, C, W)
            d_v.index_add_(0, p.keys_at, (weights.transpose(-1, -2) @ d_out).view(-1, e))
            d_scores = (d_out @ p.values.transpose(-1, -2)).sub_(delta).mul_(weights)  # (m, H, C, W)
            d_query = d_scores @ p.keys  # (m, H, C, d)
            d_k.index_add_(0, p.keys_at, (d_scores.transpose(-1, -2) @ p.query).view(-1, d))
            if rel is not None and d_rel is not None and p.place is not None:
                by_distance = d_scores.new_zeros(*d_scores.shape[:3], rel.shape[1])
                by_distance.scatter_add_(-1, p.place, d_scores)  # (m, H, C, 2R+1)
                d_query += by_distance @ rel
                d_rel += torch.einsum("mhct,mhcd->htd", by_distance, p.query)
            chosen = (p.distance[:, :, None] == distances).to(d_scores.dtype)  # (m, W, 2N+1)
            by_gate = (d_scores.sum(2) @ chosen).sum(0)  # (H, 2N+1)
            d_gate[:, reach - near : reach + near + 1] += by_gate
            d_q.index_copy_(0, p.writing, d_query.view(-1, d))
            if d_far is not None:
                share = (-log_totals.clamp(min=_LOWEST)).exp()  # (m, H, C, 1)
                d_sums = torch.cat([d_out, -delta], dim=-1) * share  # (m, H, C, e+1)
                d_far.index_copy_(0, p.writing, d_sums.view(-1, e + 1))
        d_far = None if d_far is None else d_far[:-1].view(*q.shape[:3], e + 1)
        return d_q[:-1].view_as(q), d_k.view_as(k), d_v.view_as(v), d_rel, d_gate, d_far, None


class _Scores(NamedTuple):
    """What a step works on: m blocks of C queries and W keys.

    query (m, H, C, d), keys (m, H, W, d), values (m, H, W, e), scores (m, H, C, W); distance (m, W) in segments;
    place (m, H, C, W), the row of the relative embedding; valid (m, 1, C, 1) bool; reading (m, H, C) and
    writing (m H C,), the queries' rows; keys_at (m H W,), the keys' rows
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor
    distance: Tensor
    place: Tensor | None
    valid: Tensor
    reading: Tensor
    writing: Tensor
    keys_at: Tensor


class _Work:
    """The tensors of a call, and the scores of a step made from them: in both passes."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, log_gate: Tensor, plan: NearPlan) -> None:
        self.heads, self.queries, self.length = q.shape[1], q.shape[2], k.shape[2]
        self.q, self.k, self.v = (x.reshape(-1, x.shape[3]) for x in (q, k, v))
        self.rel, self.log_gate, self.plan = rel, log_gate, plan

    def scores(self, step: Step) -> _Scores:
        blocks, plan, reach = step.blocks, self.plan, self.log_gate.shape[1] // 2
        at, valid = blocks.positions(step.queries, self.queries)  # (m, C)
        reading = flat_rows(blocks.row, at, self.heads, self.queries)  # (m, H, C)
        writing = torch.where(valid[:, None], reading, self.q.shape[0]).flatten()
        beside = step.first[:, None] + torch.arange(step.keys, device=at.device)  # (m, W)
        key_at = beside.clamp(max=self.length - 1)
        keys_at = flat_rows(blocks.row, key_at, self.heads, self.length)  # (m, H, W)
        hidden = beside >= step.end[:, None]  # (m, W)
        if plan.real is not None:
            hidden |= ~plan.real[blocks.row[:, None], key_at]
        distance = (plan.numbers[blocks.row[:, None], key_at] - blocks.number[:, None]).clamp(-reach, reach)  # (m, W)
        gate = self.log_gate[:, distance + reach].transpose(0, 1)  # (m, H, W)
        gate = gate.masked_fill(hidden[:, None], float("-inf"))[:, :, None]  # (m, H, 1, W)

        query, keys = take_rows(self.q, reading), take_rows(self.k, keys_at)
        offset = beside[:, None] - at[:, :, None]  # (m, C, W)
        place = None
        if self.rel is None:
            scores = query @ keys.transpose(-1, -2)
            if plan.causal:
                scores.masked_fill_((offset > 0)[:, None], float("-inf"))
        else:
            horizon = self.rel.shape[1] // 2
            by_distance = query @ self.rel.transpose(-1, -2)  # (m, H, C, 2R+1)
            if plan.causal:
                by_distance[..., horizon + 1 :] = float("-inf")
            place = (offset.clamp(-horizon, horizon) + horizon)[:, None].expand(-1, self.heads, -1, -1)
            scores = by_distance.gather(-1, place)  # (m, H, C, W)
            scores.flatten(0, 1).baddbmm_(query.flatten(0, 1), keys.flatten(0, 1).transpose(-1, -2))
        values = take_rows(self.v, keys_at)
        return _Scores(
            query, keys, values, scores.add_(gate), distance, place, valid[:, None, :, None], reading, writing,
            keys_at.flatten(),
        )  # fmt: skip
