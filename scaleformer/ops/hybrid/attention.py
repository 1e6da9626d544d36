"""Softmax where segments are near, a gated kernel where they are far: one denominator, linear in document length."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.checks import check_choice, check_segment_attention
from scaleformer.ops.common.choice import choose_algorithm, wants_gradients
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.hybrid.linear import linear_hybrid
from scaleformer.ops.hybrid.quadratic import dense_hybrid
from scaleformer.ops.segments.tiles import check_near

HYBRID_ALGORITHMS = ("auto", "linear", "quadratic")


def segment_hybrid_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    *,
    near: int = 1,
    causal: bool = False,
    key_mask: Tensor | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
    algorithm: str = "auto",
) -> Tensor:
    """Exact softmax within `near` segments of the query's own, the gated kernel for the rest of the document.

        |x| <= near   s_ij = exp(log_gate_x + q_i . (k_j + rel_clip(j - i, -R, R)) / sqrt(d))
        |x| >  near   s_ij = w_i(x) phi(q_i) . phi(k_j) / d                      x = key segment - query segment
        w_i(x) = exp(log_gate_x) if |x| < G;  exp(log_gate_(-G or G)) min(1, far_tokens / n_i) if |x| >= G

    and out_i = sum_j s_ij v_j / sum_j s_ij. n_i is the number of keys that query i may see at |x| >= G. The near part
    is [Vaswani 2017, equation 1] with the keys' part of [Shaw 2018, equation 4]; the far part is that of
    `segment_gated_attention` without relative positions.

    q               (B, H, L_Q, d) queries
    k, v            (B, H, L_K, d) keys and (B, H, L_K, e) values
    rel             (2R+1, d) or (H, 2R+1, d), or None; it meets the query as it is, phi is not applied
    log_gate        (H, 2G+1), column G + x for the distance x
    query_segments  (B, L_Q) integers that never fall along a row; pads at the end may hold any
    key_segments    (B, L_K) the same for the keys; where key_mask is False they may hold any. In causal attention the
                    segment of query i and that of key i are one: key_segments is read as far as it goes
    near            N, 0 <= N < G
    causal          drop the keys j > i
    key_mask        (B, L_K) bool, True for a real token
    far_tokens      how many tokens the part at |x| >= G may weigh
    feature_map     phi, a name of `FEATURE_MAPS`
    algorithm       `linear` in document length: a token costs the length of the segments less than G away, so that a
                    document of one segment is plain softmax; `quadratic`, all scores; `auto`, the one measured to be
                    faster (`choose_algorithm` tells which)

    Returns (B, H, L_Q, e) in the dtype of v; zeros in a row that has no key. Raises ValueError if the arguments do not
    fit together.
    """
    check_segment_attention(q, k, v, rel, log_gate, query_segments, key_segments, key_mask, far_tokens)
    check_choice("algorithm", algorithm, HYBRID_ALGORITHMS)
    batch, heads, queries, width = q.shape
    check_near(near, log_gate)
    phi = get_feature_map(feature_map)
    if 0 in (batch, queries, k.shape[2]):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    if algorithm == "auto":
        algorithm = choose_algorithm(
            "segment_hybrid", queries, k.shape[2], width, rows=batch * heads, relative=rel is not None, causal=causal,
            backward=wants_gradients(q, k, v, rel, log_gate),
        ).algorithm  # fmt: skip
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.promote_types(q.dtype, torch.float32)
        table = None if rel is None else rel.to(dtype).view(-1, *rel.shape[-2:])  # (1 or H, 2R+1, d)
        arguments = (q, k, v, table, log_gate.to(dtype), query_segments, key_segments, near, causal, key_mask)
        form = linear_hybrid if algorithm == "linear" else dense_hybrid
        return form(*arguments, far_tokens, phi, dtype)
