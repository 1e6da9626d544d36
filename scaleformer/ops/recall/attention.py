"""Softmax over the near segments and a fixed number of the most salient far tokens: linear in document length."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from shutil import which

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_choice, check_gate, check_qkv, check_rel, check_segments
from scaleformer.ops.common.choice import choose_algorithm, wants_gradients
from scaleformer.ops.common.relative_positions import horizon_of, score_table
from scaleformer.ops.recall.linear import RecallAttention
from scaleformer.ops.recall.plan import plan_recall
from scaleformer.ops.recall.quadratic import dense_recall
from scaleformer.ops.recall.selection import select
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.layout import SegmentLayout, layout_of
from scaleformer.system.cpu import widen_heap

RECALL_ALGORITHMS = ("auto", "linear", "quadratic", "fused")


def segment_recall_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, log_gate: Tensor, salience: Tensor, recency: Tensor,
    query_segments: Tensor | None = None, key_segments: Tensor | None = None, *, kept: int = 64, causal: bool = False,
    key_mask: Tensor | None = None, layout: SegmentLayout | None = None, explore: float = 0.0, algorithm: str = "auto",
) -> Tensor:  # fmt: skip
    """Exact softmax over the keys within N segments of the query's own, and over `kept` keys of all others.

        |x| <= N   s_ij = exp(log_gate_x + q_i . (k_j + rel_clip(j - i, -R, R)) / sqrt(d))
        |x| >  N   s_ij = exp(log_gate_(-N-1 or N+1) + b_j + q_i . (k_j + rel_clip(j - i, -R, R)) / sqrt(d)) if j is
                   kept for i, else 0                                     x = key segment - query segment

    and out_i = sum_j s_ij v_j / sum_j s_ij. b is the salience. Far keys are those more than N segments away. Query i
    keeps the far keys of highest priority that it may see: the priority is b_j + recency x key segment for keys before
    it and b_j - recency x key segment for keys after it. Causal attention keeps `kept` keys, all of them before;
    bidirectional attention keeps half as many (rounded up) on each side. Of keys with equal priority the nearer is
    kept. So the number of keys a query sees does not grow with the document, and no later query sees a dropped key.

    q               (B, H, L_Q, d) queries
    k, v            (B, H, L_K, d) keys and (B, H, L_K, e) values
    rel             (2R+1, d) or (H, 2R+1, d), or None
    log_gate        (H, 2N+3), column N + 1 + x for the distance x; the first and last column for all farther keys
    salience        (B, H, L_K), b
    recency         (H,), priority per segment of recency, at least 0
    query_segments  (B, L_Q) integers that never decrease along a row; pads at the end may hold any
    key_segments    (B, L_K) the same for the keys; where key_mask is False they may hold any. In causal attention query
                    i and key i are in the same segment, which is read from key_segments where it is long enough
    kept            M; 0: no far key is seen
    causal          drop the keys j > i
    key_mask        (B, L_K) bool, True for a real token
    layout          segments and mask as one object, in place of the three arguments; calls that share it share its plan
    explore         in training: the scale of the Gumbel noise added to each priority. With 1 the kept keys are sampled
                    without replacement in proportion to exp(priority) [Kool 2019], so that every key can learn
    algorithm       `linear` in document length; `quadratic`, all scores; `fused`, linear, by kernels
                    of Triton on a GPU; `auto`, the one measured to be faster

    Returns (B, H, L_Q, e) in the dtype of v; zeros in a row that has no key. Under autocast to bfloat16, queries, keys,
    values and weights are multiplied in bfloat16, as by torch's own functions; gates, salience, softmax and the choice
    of kept keys stay in fp32. Otherwise everything runs in fp32 at least. Raises ValueError if the arguments do not fit
    together.
    """
    layout = layout_of(query_segments, key_segments, key_mask, layout)
    check_qkv(q, k, v, layout.key_mask)
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    if rel is not None:
        check_rel(rel, heads, width)
    check_gate(log_gate, heads)
    check_segments("query_segments", layout.query_segments, batch, queries)
    check_segments("key_segments", layout.key_segments, batch, keys)
    check_choice("algorithm", algorithm, RECALL_ALGORITHMS)
    check_recall(recency, kept, heads)
    if explore < 0:
        raise ValueError(f"explore is {explore}: it must be at least 0")
    check_salience(salience, k)
    if 0 in (batch, queries, keys):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    widen_heap()
    products = product_type(q)
    backward = wants_gradients(q, k, v, rel, log_gate, salience)
    if algorithm == "auto":
        algorithm = "fused" if can_fuse(q.device, products) else choose_algorithm(
            "segment_recall", queries, keys, width, rows=batch * heads, relative=rel is not None, causal=causal,
            backward=backward, device=q.device.type,
        ).algorithm  # fmt: skip
    key_mask = layout.real()
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.promote_types(q.dtype, torch.float32)
        table = None if rel is None else rel.to(dtype).view(-1, *rel.shape[-2:])  # (1 or H, 2R+1, d)
        q, k, values = (x.to(products) for x in (q, k, v))
        salience = salience.to(dtype).clamp(min=HIDDEN)  # -inf, which excludes a key, would give NaN
        if key_mask is not None:
            salience = salience.masked_fill(~key_mask[:, None], 0.0)
        near, horizon = log_gate.shape[1] // 2 - 1, None if rel is None else horizon_of(rel)
        each = kept if causal else -(-kept // 2)
        gate = log_gate.to(dtype).clamp(min=HIDDEN)  # -inf times zero would be NaN
        if kept == 0:
            gate = functional.pad(gate[:, 1:-1], (1, 1), value=HIDDEN)
        table = None if table is None else score_table(table, causal)
        if algorithm == "fused":
            kernels, explored = fused(q.device, products), _explore(salience.detach(), explore)
            out = kernels(q, k, values, salience, gate, table, explored, recency.to(dtype), layout, each, causal)
            return out.to(v.dtype)
        plan = plan_recall(layout, near, causal, horizon, each, heads, dtype)
        toward = recency.to(dtype)[:, None] * plan.segments[:, None].to(dtype)  # (B, H, L_K)
        priority = salience.detach()
        windows = algorithm == "linear"
        head = plan.head if windows else None
        choosing = [windows or not side.all_kept for side in plan.sides]
        if any(choosing):
            priority = _explore(priority, explore)
        recalled = [
            select(priority - toward if side.after else priority + toward, key_mask, side, each, head)
            if choose else None
            for side, choose in zip(plan.sides, choosing, strict=True)
        ]  # fmt: skip
        given = q, k, values, salience, gate, plan, recalled, table, key_mask
        out = RecallAttention.apply(*given, backward) if windows else dense_recall(*given)
    return out.to(v.dtype)


def _explore(priority: Tensor, scale: float) -> Tensor:
    """The priority with Gumbel noise of that scale."""
    return priority - scale * torch.empty_like(priority).exponential_().log() if scale else priority


def can_fuse(device: torch.device, products: torch.dtype) -> bool:
    """Whether the kernels of `scaleformer.ops.recall.fused` serve: on a GPU of CUDA with Triton, which torch brings."""
    return device.type == "cuda" and products != torch.float64 and find_spec("triton") is not None and _has_compiler()


@cache
def _has_compiler() -> bool:
    """Whether there is the C compiler that Triton calls once for each kernel; if not, says so."""
    found = any(which(name) for name in (os.environ.get("CC", ""), "gcc", "clang", "cc"))
    if not found:
        warnings.warn("no C compiler (gcc): segment_recall does without its faster kernels for GPUs", stacklevel=2)
    return found


def fused(device: torch.device, products: torch.dtype) -> Callable[..., Tensor]:
    """`fused_recall`. Raises ValueError where it does not serve, but for Triton's interpreter on a CPU."""
    if not can_fuse(device, products) and not (os.environ.get("TRITON_INTERPRET") and products != torch.float64):
        raise ValueError(
            f"algorithm is 'fused' on {device.type} in {products}: it must be auto, unless there is a GPU with CUDA "
            "and Triton, and the numbers are bfloat16 or float32"
        )
    from scaleformer.ops.recall.fused import fused_recall

    return fused_recall


def product_type(x: Tensor) -> torch.dtype:
    """The dtype in which x is multiplied: bfloat16 under autocast to bfloat16, else fp32 at least. Never float16, where
    products of queries and keys may overflow before they are scaled."""
    device, dtype = x.device.type, torch.promote_types(x.dtype, torch.float32)
    lower = dtype == torch.float32 and torch.is_autocast_enabled(device)
    return torch.bfloat16 if lower and torch.get_autocast_dtype(device) == torch.bfloat16 else dtype


def check_recall(recency: Tensor, kept: int, heads: int) -> None:
    """Raise ValueError unless recency is (H,), and it and kept are at least 0."""
    if recency.shape != (heads,):
        raise ValueError(f"recency has shape {tuple(recency.shape)}: it must be ({heads},), one a head")
    if recency.device.type == "cpu" and (recency < 0).any():  # on a GPU this would synchronise
        raise ValueError(f"recency is {recency.tolist()}: it must be at least 0")
    if kept < 0:
        raise ValueError(f"kept is {kept}: it must be at least 0")


def check_salience(salience: Tensor, k: Tensor) -> None:
    """Raise ValueError unless salience is (B, H, L_K) with k (B, H, L_K, d)."""
    if salience.shape != k.shape[:3]:
        raise ValueError(f"salience has shape {tuple(salience.shape)}: it must be {tuple(k.shape[:3])}")
