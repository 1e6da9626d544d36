"""[Scaleformer] Algorithm 2 with the errors of its two editions."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.relative_positions import horizon_of


def algorithm_2_printed(fq: Tensor, frel: Tensor, v: Tensor, edition: int = 2023) -> Tensor:
    """S^rel V by [Scaleformer] Algorithm 2 as printed in 2021 or 2023, wrong in its far-after term.

    Arguments and result as in `algorithm_2`. Misprints that give mismatched shapes are corrected (2023: W^horizon_ij is
    W_(i, j+1) and Rcumulated has L_K rows; 2021: V_before is aligned to L_Q, not to n_before). The remaining errors:

    * 2021 takes `Summed` only over V up to n_after = min(L_Q + k, L_K): wrong for L_K > L_Q + R, where it loses every
      key from L_Q + R on; right otherwise;
    * 2023 reads Rcumulated at i + k - 1: key i + k - 1 counts in the horizon and again far after it.

    Raises ValueError for another edition.
    """
    if edition == 2023:
        return _algorithm_2(fq, frel, v, v.sum(-2, keepdim=True), offset=-1)
    if edition == 2021:
        return _algorithm_2(fq, frel, v, v[..., : fq.shape[-2] + horizon_of(frel), :].sum(-2, keepdim=True), offset=0)
    raise ValueError(f"edition is {edition}: choose 2021 or 2023")


def _algorithm_2(fq: Tensor, frel: Tensor, v: Tensor, summed: Tensor, offset: int) -> Tensor:
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
