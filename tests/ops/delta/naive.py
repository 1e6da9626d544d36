"""Slow truth: the gated delta rule, token by token."""

from __future__ import annotations

import torch
from torch import Tensor


def recurrent_delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Arguments and result as in `gated_delta_rule`, after [Yang 2024], the memory as it is there, (e, d):

    S_t = S_{t-1} (a_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T        out_t = S_t q_t / sqrt(d)
    """
    d, e = q.shape[3], v.shape[3]
    rows, memories = [], []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            memory, outputs = v.new_zeros(e, d), [v.new_zeros(0, e)]
            for t in range(q.shape[2]):
                key, rate = k[b, h, t], beta[b, h, t]  # (d,), ()
                forget = torch.eye(d, dtype=q.dtype) - rate * torch.outer(key, key)  # (d, d)
                memory = memory @ (log_decay[b, h, t].exp() * forget) + rate * torch.outer(v[b, h, t], key)  # (e, d)
                outputs.append((memory @ q[b, h, t] / d**0.5)[None])  # (1, e)
            rows.append(torch.cat(outputs))  # (L, e)
            memories.append(memory.T)  # (d, e)
    return torch.stack(rows).view(*q.shape[:3], e), torch.stack(memories).view(*q.shape[:2], d, e)
