"""Slow reference implementations, straight from the formulas."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.common.sums import no_key


def dense_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None = None,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    feature_map: str = "elu1",
) -> Tensor:
    """The O(L^2) formula, arguments and result as in `relative_kernel_attention`.

        s_ij = m_j phi(q_i) . (phi(k_j) + phi(rel_clip(j - i, -R, R)))      out_i = sum_j s_ij v_j / sum_j s_ij

    It gathers the relative embedding of every pair of positions: (L_Q, L_K, d) numbers.
    """
    phi = get_feature_map(feature_map)
    queries, keys = q.shape[2], k.shape[2]
    scores = torch.einsum("bhid,bhjd->bhij", phi(q), phi(k))  # (B, H, L_Q, L_K)
    distance = torch.arange(keys, device=q.device) - torch.arange(queries, device=q.device)[:, None]  # (L_Q, L_K)
    if rel is not None:
        horizon = horizon_of(rel)
        embedding = phi(rel)[..., distance.clamp(-horizon, horizon) + horizon, :]  # (L_Q, L_K, d) or (H, L_Q, L_K, d)
        scores = scores + torch.einsum("bhid,...ijd->bhij" if rel.dim() == 2 else "bhid,hijd->bhij", phi(q), embedding)
    if causal:
        scores = scores * (distance <= 0)
    if key_mask is not None:
        scores = scores * key_mask[:, None, None, :]
    return weighted_mean(scores, v)


def weighted_mean(scores: Tensor, v: Tensor) -> Tensor:
    """sum_j s_ij v_j / sum_j s_ij of scores (B, H, L_Q, L_K) and v (B, H, L_K, e); zeros where there is no key, that is
    where the sum of the scores is below `smallest_sum`."""
    total = scores.sum(-1, keepdim=True)  # (B, H, L_Q, 1)
    none = no_key(total)
    return torch.where(none, 0.0, scores @ v / torch.where(none, 1.0, total))  # (B, H, L_Q, e)


def recurrent_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None = None, *, feature_map: str = "elu1"
) -> tuple[Tensor, Tensor]:
    """Causal attention, token by token, with as many keys as queries.

    Arguments as in `relative_kernel_attention`. Returns the output (B, H, L, e) and the sum over all tokens of
    (phi(k) + phi(rel_-R)) (x) [v, 1], (B, H, d, e+1), the state of a decoder ([Katharopoulos 2020] equation 18, with
    the embedding of all keys beyond the horizon added to each key).
    """
    phi = get_feature_map(feature_map)
    horizon = 0 if rel is None else horizon_of(rel)
    frel = q.new_zeros(1, q.shape[3]) if rel is None else phi(rel)[..., : horizon + 1, :]  # (R+1, d) or (H, R+1, d)
    memory = q.new_zeros(*k.shape[:2], k.shape[3], v.shape[3] + 1)
    rows, outputs = [], []
    for i in range(q.shape[2]):
        fq, fk = phi(q[:, :, i]), phi(k[:, :, i]) + frel[..., 0, :]  # (B, H, d)
        rows.append(torch.cat([v[:, :, i], torch.ones_like(v[:, :, i, :1])], dim=-1))  # (B, H, e+1)
        memory = memory + torch.einsum("bhd,bhe->bhde", fk, rows[i])
        sums = torch.einsum("bhd,bhde->bhe", fq, memory)  # (B, H, e+1)
        for t in range(max(1 - horizon, -i), 1) if horizon else ():
            near = frel[..., horizon + t, :] - frel[..., 0, :]  # (d,) or (H, d)
            sums = sums + (fq * near).sum(-1, keepdim=True) * rows[i + t]  # (B, H, e+1)
        outputs.append(sums[..., :-1] / sums[..., -1:])
    return torch.stack(outputs, dim=2), memory  # (B, H, L, e), (B, H, d, e+1)
