"""[Scaleformer] Algorithm 2 with the errors of its two editions."""

from __future__ import annotations

from torch import Tensor

from scaleformer.ops.common.relative_positions import horizon_of
from scripts.bench_attention.paper import algorithm_2_of


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
        return algorithm_2_of(fq, frel, v, v.sum(-2, keepdim=True), offset=-1)
    if edition == 2021:
        return algorithm_2_of(fq, frel, v, v[..., : fq.shape[-2] + horizon_of(frel), :].sum(-2, keepdim=True), offset=0)
    raise ValueError(f"edition is {edition}: choose 2021 or 2023")
