"""Efficient attention: softmax over the features of a query, and over the positions of the keys."""

from __future__ import annotations

from typing import ClassVar

from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.options import Algorithm


class EfficientAttention(KernelizedAttention):
    """out_i = sum_c softmax_c(Q_i)_c G_c,  G_c = sum_j softmax_j(K_jc) V_j: each query mixes d global summaries.

    Cost O((L + S) d^2) time, O(L + S) memory; decoding keeps one d x (d+1) matrix a head.
    Source: [Shen 2020, section 3.2, softmax normalisation], with sinusoidal positions added to the embeddings.
    The causal form is our own: position i normalises over the keys up to i,

        out_i = sum_c softmax_c(Q_i)_c  sum_{j<=i} exp(K_jc) V_j / sum_{j<=i} exp(K_jc).
    """

    joint: ClassVar[bool] = False

    def __init__(self, site: str, width: int, heads: int, algorithm: Algorithm = "auto") -> None:
        super().__init__(site, width, heads, feature_map="exp", algorithm=algorithm)
