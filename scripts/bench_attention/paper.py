"""The algorithms of [Scaleformer], corrected. For tests and benchmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import horizon_of


def align(x: Tensor, length: int) -> Tensor:
    """x (..., L, n) cut to `length` rows, or its last row repeated ([Scaleformer] section 3)."""
    index = torch.arange(length, device=x.device).clamp(max=x.shape[-2] - 1)
    return x.index_select(-2, index)  # (..., length, n)


def algorithm_1(fq: Tensor, fk: Tensor, v: Tensor) -> Tensor:
    """masked(phi(Q) phi(K)^T) V by [Scaleformer] Algorithm 1, as printed: a tensor (L_K, d, e), summed along L_K.

    fq (..., L_Q, d), fk (..., L_K, d), v (..., L_K, e). Returns (..., L_Q, e).
    """
    expanded = v.unsqueeze(-2) * fk.unsqueeze(-1)  # (..., L_K, d, e)
    summed = expanded.cumsum(-3)  # (..., L_K, d, e)
    aligned = align(summed.flatten(-2), fq.shape[-2]).unflatten(-1, summed.shape[-2:])  # (..., L_Q, d, e)
    return (fq.unsqueeze(-2) @ aligned).squeeze(-2)  # (..., L_Q, e)


def algorithm_2(fq: Tensor, frel: Tensor, v: Tensor) -> Tensor:
    """S^rel V by [Scaleformer] Algorithm 2, corrected: a tensor (L_Q, 2R-1, e).

    fq (..., L_Q, d), frel (2R+1, d), v (..., L_K, e). Returns (..., L_Q, e), the sum over j of
    fq_i . frel_(clip(j - i, -R, R) + R) v_j, for all L_Q and L_K; row 0 of frel stands for the keys far before
    the query, as in the algorithm (the equations of the paper's text count i - j).

    Corrected against the edition of 2023: W^horizon_ij is W_(i, j+1), not W_(i+1, j); Rcumulated is read at i + k,
    not at i + k - 1, which counts key i + k - 1 twice; it has L_K rows, not L_Q; zeros stand where i + k reaches
    L_K. Against that of 2021: `Summed` is of all keys, not of those up to n_after = min(L_Q + k, L_K), which loses
    every key from L_Q + R on; V_before is aligned to L_Q, not to n_before. For L_Q > L_K + R, Cumulated repeats its
    last row.
    """
    return algorithm_2_of(fq, frel, v, v.sum(-2, keepdim=True))


def algorithm_2_of(fq: Tensor, frel: Tensor, v: Tensor, summed: Tensor, offset: int = 0) -> Tensor:
    """Algorithm 2 with the sum of all values `summed` (..., 1, e), the far-after term read at i + k + offset."""
    queries, keys, horizon = fq.shape[-2], v.shape[-2], horizon_of(frel)
    position = torch.arange(queries, device=v.device)
    by_distance = fq @ frel.transpose(-1, -2)  # (..., L_Q, 2R+1)
    cumulated = v.cumsum(-2)  # (..., L_K, e)

    last_before = (position - horizon).clamp(max=keys - 1)  # (L_Q,)
    before = cumulated.index_select(-2, last_before.clamp(min=0)) * (last_before >= 0).unsqueeze(-1)  # (..., L_Q, e)

    near = position.unsqueeze(-1) + torch.arange(1 - horizon, horizon, device=v.device)  # (L_Q, 2R-1)
    inside = ((near >= 0) & (near < keys)).unsqueeze(-1)  # (L_Q, 2R-1, 1)
    window = v[..., near.clamp(0, keys - 1), :] * inside  # (..., L_Q, 2R-1, e)

    first_after = position + horizon + offset  # (L_Q,)
    r_cumulated = summed - cumulated + v  # (..., L_K, e)
    after = r_cumulated.index_select(-2, first_after.clamp(max=keys - 1)) * (first_after < keys).unsqueeze(-1)

    horizon_sum = (by_distance[..., 1:-1].unsqueeze(-2) @ window).squeeze(-2)  # (..., L_Q, e)
    return by_distance[..., :1] * before + horizon_sum + by_distance[..., -1:] * after  # (..., L_Q, e)


def paper_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor, *, causal: bool = False, feature_map: str = "elu1"
) -> Tensor:
    """[Scaleformer] equation 10 with Algorithms 1 and 2, in linear time: the paper's method, corrected.

    q (B, H, L_Q, d), k (B, H, L_K, d), v (B, H, L_K, e), rel (2R+1, d). Returns (B, H, L_Q, e). The denominator comes
    from a column of ones appended to the values; masked attention sets the embeddings of later keys to zero, as in the
    paper.
    """
    phi = get_feature_map(feature_map)
    fq, fk, frel = phi(q), phi(k), phi(rel)
    u = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # (B, H, L_K, e+1)
    if causal:
        later = torch.arange(frel.shape[0], device=rel.device) > horizon_of(rel)
        sums = algorithm_1(fq, fk, u) + algorithm_2(fq, frel.masked_fill(later[:, None], 0.0), u)
    else:
        sums = fq @ (fk.transpose(-1, -2) @ u) + algorithm_2(fq, frel, u)
    return sums[..., :-1] / sums[..., -1:]  # (B, H, L_Q, e)
