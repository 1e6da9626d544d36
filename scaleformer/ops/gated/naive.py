"""Segment-gated attention straight from its equation, with a weight for every pair: a slow reference for the tests."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.kernel.naive import weighted_mean


def naive_segment_gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
) -> Tensor:
    """Arguments and result as in `segment_gated_attention`. Each pair of a query i and a key j has the score

        m_ij w_i(x) phi(q_i) . (phi(k_j) + phi(rel_clip(j - i, -R, R)))         x = key segment - query segment

    m_ij is 1 for keys that query i may see, else 0. w_i(x) = exp(log_gate_clip(x, -G, G)), times
    min(1, far_tokens / n_i) if |x| >= G, where n_i counts the keys at these distances that query i may see.
    """
    phi, reach = get_feature_map(feature_map), log_gate.shape[1] // 2
    distance = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]  # (L_Q, L_K)
    seen = torch.ones(q.shape[0], *distance.shape, dtype=torch.bool)  # (B, L_Q, L_K)
    if causal:
        seen = seen & (distance <= 0)
    if key_mask is not None:
        seen = seen & key_mask[:, None]

    x = key_segments[:, None, :] - query_segments[:, :, None]  # (B, L_Q, L_K)
    far = x.abs() >= reach
    count = (far & seen).sum(2, keepdim=True)  # (B, L_Q, 1)
    scale = torch.where(far, (far_tokens / count.to(q.dtype)).clamp(max=1.0), 1.0)  # (B, L_Q, L_K)
    gate = log_gate.exp()[:, x.clamp(-reach, reach) + reach].transpose(0, 1)  # (B, H, L_Q, L_K)

    scores = torch.einsum("bhid,bhjd->bhij", phi(q), phi(k))  # (B, H, L_Q, L_K)
    if rel is not None:
        horizon = horizon_of(rel)
        embedding = phi(rel)[..., distance.clamp(-horizon, horizon) + horizon, :]  # (L_Q, L_K, d) or (H, L_Q, L_K, d)
        scores = scores + torch.einsum("bhid,...ijd->bhij" if rel.dim() == 2 else "bhid,hijd->bhij", phi(q), embedding)
    return weighted_mean(scores * gate * (scale * seen)[:, None], v)
