"""Segment-gated attention to the letter, key by key: the slow truth that tests compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import horizon_of


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
    """Segment-gated attention by a loop over documents, queries and keys; arguments as in `segment_gated_attention`.

    Each key j that query i may see, at segment distance x = key segment - query segment, has the score

        exp(log_gate_clip(x, -G, G)) phi(q_i) . (phi(k_j) + phi(rel_clip(j - i, -R, R)))

    times min(1, far_tokens / n) if |x| >= G, where n counts the keys at such a distance that query i may see.
    """
    phi = get_feature_map(feature_map)
    reach = (log_gate.shape[1] - 1) // 2
    horizon = 0 if rel is None else horizon_of(rel)
    documents = []
    for b in range(q.shape[0]):
        rows = []
        for i in range(q.shape[2]):
            seen = [j for j in range(k.shape[2]) if (key_mask is None or key_mask[b, j]) and not (causal and j > i)]
            distance = {j: int(key_segments[b, j]) - int(query_segments[b, i]) for j in seen}
            far = sum(abs(x) >= reach for x in distance.values())
            top, total = q.new_zeros(q.shape[1], v.shape[3]), q.new_zeros(q.shape[1], 1)  # (H, e), (H, 1)
            for j in seen:
                features = phi(k[b, :, j])  # (H, d)
                if rel is not None:
                    features = features + phi(rel)[..., min(max(j - i, -horizon), horizon) + horizon, :]
                x = min(max(distance[j], -reach), reach)
                gate = log_gate[:, x + reach].exp()  # (H,)
                if abs(x) == reach:
                    gate = gate * min(1.0, far_tokens / far)
                score = (gate * (phi(q[b, :, i]) * features).sum(-1)).unsqueeze(-1)  # (H, 1)
                top, total = top + score * v[b, :, j], total + score
            rows.append(torch.where(total == 0, 0.0, top / torch.where(total == 0, 1.0, total)))
        documents.append(torch.stack(rows, dim=1))
    return torch.stack(documents)  # (B, H, L_Q, e)
