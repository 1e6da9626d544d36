"""The gated delta rule: a memory of one matrix a head that fades, and that each token corrects; chunk by chunk.

N chunks, C chunk length, e width of the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scaleformer.ops.common.checks import check_positive, check_qkv
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.softmax.windowed import BLOCK_SCORES, chunks


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, chunk_size: int = 64
) -> tuple[Tensor, Tensor]:
    """Causal attention by a memory S (d, e) that the token t writes to and then reads:

        S_t = a_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T        out_t = S_t^T q_t / sqrt(d)

    What S answers to k_t moves the share beta_t of the way to v_t; the decay a_t = exp(log_decay_t) forgets the rest.

    q, k             (B, H, L, d), k at most of length 1, or S may grow without bound
    v                (B, H, L, e)
    log_decay, beta  (B, H, L), at most 0, and from 0 to 1
    chunk_size       C: the same numbers at another cost

    With the decays from the token s to the token t of a chunk as A_ts = a_{s+1} ... a_t, and S the memory before the
    chunk, the tokens of a chunk write K^T W, the rows of W being those of a triangular system (the WY form):

        (I + tril(diag(beta) K K^T * A, -1)) W = diag(beta) (V - diag(a_1 ... a_t) K S)

    Its solutions for both terms on the right hold for any S, so that all chunks solve at once, and one product
    (d, d) x (d, e) a chunk carries S on. Cost O(L (C + d) (d + e)) time; memory O(L (C + d + e) + L d (d + e) / C).
    What gradients do not need is held for a section of the text only.
    Returns (B, H, L, e) in the dtype of v and the last S (B, H, d, e), computed in float32 at least. Raises ValueError
    if the arguments do not fit together. Source: [Yang 2024, Gated delta networks]; the root of d is that of the
    authors' code.
    """
    check_qkv(q, k, v, None)
    check_positive("chunk_size", chunk_size)
    for name, x in (("k", k[..., 0]), ("log_decay", log_decay), ("beta", beta)):
        if x.shape != q.shape[:3]:
            raise ValueError(f"{name} covers tokens {tuple(x.shape)}: wanted those of q, {tuple(q.shape[:3])}")
    dtype, C = torch.promote_types(q.dtype, torch.float32), min(chunk_size, q.shape[2])
    memory = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3], dtype=dtype)  # (B, H, d, e)
    if not v.numel():
        return torch.zeros_like(v), memory
    section = C * max(1, BLOCK_SCORES // (q.shape[0] * q.shape[1] * C * C))  # tokens that are computed at once
    outs = []
    with full_precision(q.device):
        for parts in zip(*(x.split(section, 2) for x in (q, k, v, log_decay, beta)), strict=True):
            out, memory = _section([x.to(dtype) for x in parts], memory, C)
            outs.append(out)
    return torch.cat(outs, dim=2).to(v.dtype), memory


def _section(parts: Sequence[Tensor], memory: Tensor, C: int) -> tuple[Tensor, Tensor]:
    """Some of the chunks, after those that left the memory; parts: q, k, v, log_decay, beta of their tokens."""
    q, k, v, log_decay, beta = parts
    length, d, e = q.shape[2], q.shape[3], v.shape[3]
    Q, K, V = (chunks(x, C) for x in (q * d**-0.5, k, v))  # (B, H, N, C, d | e)
    total, rate = chunks(log_decay[..., None], C).cumsum(-2), chunks(beta[..., None], C)  # (B, H, N, C, 1)
    between = total - total.transpose(-1, -2)  # (B, H, N, C, C), log A_ts
    later = torch.ones(C, C, dtype=torch.bool, device=q.device).triu(1)
    A = between.masked_fill(later, float("-inf")).exp()  # (B, H, N, C, C)
    system = rate * (K @ K.transpose(-1, -2)) * A  # (B, H, N, C, C), of which what is under the diagonal is read
    right = torch.cat([rate * V, rate * total.exp() * K], dim=-1)  # (B, H, N, C, e + d)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    fresh, answers = solved.split([e, d], dim=-1)  # W = fresh - answers S
    left = ((total[..., -1:, :] - total).exp() * K).transpose(-1, -2)  # (B, H, N, d, C), by the end of the chunk
    kept = torch.eye(d, dtype=q.dtype, device=q.device) * total[..., -1:, :].exp() - left @ answers  # (B, H, N, d, d)
    before = []
    for keep, add in zip(kept.unbind(2), (left @ fresh).unbind(2), strict=True):
        before.append(memory)
        memory = add + keep @ memory  # (B, H, d, e)
    S = torch.stack(before, dim=2)  # (B, H, N, d, e)
    out = (total.exp() * Q) @ S + (Q @ K.transpose(-1, -2) * A) @ (fresh - answers @ S)  # (B, H, N, C, e)
    return out.flatten(2, 3)[:, :, :length], memory


def gated_delta_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of `gated_delta_rule`: q, k (B, H, d), v (B, H, e), log_decay and beta (B, H), and the memory before it
    (B, H, d, e) -> (B, H, e) and the memory with it."""
    with full_precision(q.device):
        Q, K, V = (x.to(memory.dtype)[..., None, :] for x in (q * q.shape[2] ** -0.5, k, v))  # (B, H, 1, d | e)
        decay, beta = (x.to(memory.dtype)[..., None, None] for x in (log_decay.exp(), beta))  # (B, H, 1, 1)
        memory = decay * memory
        memory = memory + K.transpose(-1, -2) @ (beta * (V - K @ memory))  # (B, H, d, e)
        return (Q @ memory)[:, :, 0].to(v.dtype), memory
