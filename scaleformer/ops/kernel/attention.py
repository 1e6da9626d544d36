"""Kernelized attention with relative positions, in linear or quadratic time with the same results."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.checks import ALGORITHMS, check_choice, check_positive, check_qkv, check_rel
from scaleformer.ops.common.choice import choose_algorithm, wants_gradients
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables
from scaleformer.ops.kernel.bidirectional import BidirectionalAttention
from scaleformer.ops.kernel.causal import CausalAttention
from scaleformer.ops.kernel.quadratic import quadratic_attention
from scaleformer.system.cpu import widen_heap


def relative_kernel_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None = None, *, causal: bool = False, key_mask: Tensor | None = None,
    feature_map: str = "elu1", algorithm: str = "auto", chunk_size: int = 64,
) -> Tensor:  # fmt: skip
    """Kernelized attention with clipped relative positions ([Scaleformer] equations 9 and 11).

        s_ij = m_j phi(q_i) . (phi(k_j) + phi(rel_clip(j - i, -R, R)))      out_i = sum_j s_ij v_j / sum_j s_ij

    q            (B, H, L_Q, d) queries
    k, v         (B, H, L_K, d) keys and (B, H, L_K, e) values
    rel          (2R+1, d) or (H, 2R+1, d), raw: phi is applied here; row R + t stands for the distance j - i = t.
                 None leaves the relative term out ([Katharopoulos 2020])
    causal       drop the keys j > i
    key_mask     (B, L_K) bool, True for a real token
    feature_map  phi, a name of `FEATURE_MAPS`
    algorithm    `linear` in length, by block matrix products; `quadratic`, all scores; `auto`, the one measured to be
                 faster (see `choose_algorithm`); `memory`, the one that keeps fewer numbers (the rule of
                 [Scaleformer 2021])
    chunk_size   C, the most queries that the linear algorithm takes together. Causal attention raises it to R;
                 bidirectional attention halves it, since its chunks have only relative scores (measured: causal, 64 is
                 up to a tenth faster than 32; bidirectional, 32 than 64)

    Returns (B, H, L_Q, e) in the dtype of v; zeros in a row without a key, or with a sum of scores too small to divide
    by (1e-31 in float32). Sums run in float32 (float64 for float64 arguments), also under autocast. Raises ValueError
    if the arguments do not fit together.
    """
    check_qkv(q, k, v, key_mask)
    if rel is not None:
        check_rel(rel, q.shape[1], q.shape[3])
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_positive("chunk_size", chunk_size)
    widen_heap()
    phi = get_feature_map(feature_map)
    if 0 in (q.shape[0], q.shape[2], k.shape[2]):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    if algorithm == "auto":
        algorithm = choose_algorithm(
            "scaleformer", q.shape[2], k.shape[2], q.shape[3], rows=q.shape[0] * q.shape[1], relative=rel is not None,
            causal=causal, backward=wants_gradients(q, k, v, rel), device=q.device.type,
        ).algorithm  # fmt: skip
    elif algorithm == "memory":
        algorithm = smaller_algorithm(q.shape[2], k.shape[2], q.shape[3], causal)
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.promote_types(q.dtype, torch.float32)
        frel = None if rel is None else phi(rel.to(dtype)).view(-1, *rel.shape[-2:])  # (1 or H, 2R+1, d)
        if algorithm == "quadratic":
            return quadratic_attention(q, k, v, frel, causal, key_mask, phi, dtype)
        chunk = even_chunk(q.shape[2], chunk_size if causal else -(-chunk_size // 2))
        if causal:
            far, near = (None, None) if frel is None else causal_tables(frel)
            return CausalAttention.apply(q, k, v, far, near, key_mask, phi, chunk, dtype)
        table = None if frel is None else bidirectional_table(frel)
        return BidirectionalAttention.apply(q, k, v, table, key_mask, phi, chunk, dtype)


def even_chunk(length: int, most: int) -> int:
    """The smallest chunk size that needs no more chunks than `most` does, so that the last chunk is nearly full."""
    return -(-length // -(-length // most))


def smaller_algorithm(queries: int, keys: int, width: int, causal: bool) -> str:
    """The algorithm that keeps fewer numbers for phi(Q) phi(K)^T V, by the rule of [Scaleformer 2021] section 5.

    The quadratic one keeps L_Q L_K scores; the linear one d^2 numbers, or d^2 max(L_Q, L_K) if masked. (The chunked
    form here keeps d^2 numbers a chunk, so that `auto` switches to it much earlier.)
    """
    states = max(queries, keys) if causal else 1
    return "quadratic" if queries * keys <= states * width * width else "linear"
