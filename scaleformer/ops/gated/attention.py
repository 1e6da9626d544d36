"""Kernelized attention gated by the distance in segments, in linear or quadratic time with the same results."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.checks import ALGORITHMS, check_choice, check_segment_attention
from scaleformer.ops.common.choice import choose_algorithm, wants_gradients
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.gated.linear import linear_segment_attention
from scaleformer.ops.kernel.attention import smaller_algorithm
from scaleformer.ops.kernel.quadratic import quadratic_attention
from scaleformer.ops.segments.gate import pair_gates
from scaleformer.ops.segments.layout import SegmentLayout, layout_of
from scaleformer.system.cpu import widen_heap


def segment_gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor | None = None,
    key_segments: Tensor | None = None,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    layout: SegmentLayout | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
    algorithm: str = "auto",
) -> Tensor:
    """`relative_kernel_attention` with every score multiplied by a gate of the distance in segments.

        s_ij = w_i(x) phi(q_i) . (phi(k_j) + phi(rel_clip(j - i, -R, R)))         x = key segment - query segment
        w_i(x) = exp(log_gate_x) if |x| < G;  exp(log_gate_(-G or G)) min(1, far_tokens / n_i) if |x| >= G

    and out_i = sum_j s_ij v_j / sum_j s_ij. n_i is the number of real keys at |x| >= G that query i may see, before and
    after it together (in causal attention none after i). So all far keys together weigh no more than `far_tokens`
    tokens. The closest published method is the sentential gate [Wu 2022] of random feature attention [Peng 2021]. It
    multiplies gates read from the first token of every segment between key and query, and has no gate in
    cross-attention. Here the gate depends only on the number of segments between them, on both sides.

    q               (B, H, L_Q, d) queries
    k, v            (B, H, L_K, d) keys and (B, H, L_K, e) values
    rel             (2R+1, d) or (H, 2R+1, d), raw, or None, as in `relative_kernel_attention`
    log_gate        (H, 2G+1), column G + x for the distance x
    query_segments  (B, L_Q) integers that never decrease along a row; pads at the end may hold any
    key_segments    (B, L_K) the same for the keys; where key_mask is False they may hold any. In causal attention query
                    i and key i are in the same segment, which is read from key_segments where it is long enough
    causal          drop the keys j > i
    key_mask        (B, L_K) bool, True for a real token
    layout          segments and mask as one object, in place of the three arguments; calls that share it share its plan
    far_tokens      the weight of all far keys together, at most, in tokens
    feature_map     phi, a name of `FEATURE_MAPS`. With maps that can be zero (relu, squared_relu), a query whose scores
                    are all zero gets rounding errors as its denominator in the linear form, and so not zeros
    algorithm       `linear` in length; `quadratic`, all scores; `auto`, the one measured to be faster
                    (see `choose_algorithm`); `memory`, the one that keeps fewer numbers

    Returns (B, H, L_Q, e) in the dtype of v; zeros in a row without a key, or with a sum of scores too small to divide
    by (1e-31 in float32). Raises ValueError if the arguments do not fit together.
    """
    layout = layout_of(query_segments, key_segments, key_mask, layout)
    given = layout.query_segments, layout.key_segments, layout.key_mask
    check_segment_attention(q, k, v, rel, log_gate, *given, far_tokens)
    check_choice("algorithm", algorithm, ALGORITHMS)
    batch, heads, queries, width = q.shape
    phi = get_feature_map(feature_map)
    if 0 in (batch, queries, k.shape[2]):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    widen_heap()
    if algorithm == "memory":
        algorithm = smaller_algorithm(queries, k.shape[2], width, causal)
    elif algorithm == "auto":
        algorithm = choose_algorithm(
            "segment_gated", queries, k.shape[2], width, rows=batch * heads, relative=rel is not None, causal=causal,
            backward=wants_gradients(q, k, v, rel, log_gate), device=q.device.type,
        ).algorithm  # fmt: skip
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.promote_types(q.dtype, torch.float32)
        frel = None if rel is None else phi(rel.to(dtype)).view(-1, *rel.shape[-2:])  # (1 or H, 2R+1, d)
        gate = log_gate.to(dtype).exp()  # (H, 2G+1)
        if algorithm == "quadratic":
            gates, scale = pair_gates(gate, *given[:2], causal, layout.key_mask, far_tokens)
            return quadratic_attention(q, k, v, frel, gates * scale, causal, layout.key_mask, phi, dtype)
        return linear_segment_attention(q, k, v, frel, log_gate.to(dtype), layout, causal, far_tokens, phi, dtype)
