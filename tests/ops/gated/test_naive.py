"""The slow reference of segment-gated attention against a loop over queries and keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scaleformer.ops import get_feature_map
from scaleformer.ops.gated.naive import naive_segment_gated_attention
from tests.ops.segments.inputs import make_segment_inputs

FAR_TOKENS = 3


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(
    ("lengths", "relative"),
    [((11, 11), {"horizon": 3}), ((4, 12), {}), ((12, 4), {"horizon": 2, "per_head": True})],
    ids=["shared", "without", "per-head"],
)
def test_it_is_the_double_loop(causal: bool, lengths: tuple[int, int], relative: dict[str, Any]) -> None:
    x = make_segment_inputs(*lengths, causal=causal, masked=True, **relative)
    tokens, phi = x.tokens.detached(), get_feature_map("elu1")
    rel, key_mask, log_gate = tokens.rel, tokens.key_mask, x.log_gate.detach()
    assert key_mask is not None
    arguments = tokens.q, tokens.k, tokens.v, rel, log_gate, x.query_segments, x.key_segments
    out = naive_segment_gated_attention(*arguments, causal=causal, key_mask=key_mask, far_tokens=FAR_TOKENS)
    reach, horizon = log_gate.shape[1] // 2, relative.get("horizon", 0)
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(lengths[0])).tolist():
        seen = [j for j in range(lengths[1]) if key_mask[b, j] and not (causal and j > i)]
        distance = {j: int(x.key_segments[b, j]) - int(x.query_segments[b, i]) for j in seen}
        far = sum(abs(n) >= reach for n in distance.values())
        top, total = torch.zeros(3, dtype=torch.float64), 0.0
        for j in seen:
            features = phi(tokens.k[b, h, j])
            if rel is not None:
                table = rel if rel.dim() == 2 else rel[h]
                features = features + phi(table[min(max(j - i, -horizon), horizon) + horizon])
            gate = log_gate[h, min(max(distance[j], -reach), reach) + reach].exp()
            if abs(distance[j]) >= reach:
                gate = gate * min(1.0, FAR_TOKENS / far)
            score = gate * (phi(tokens.q[b, h, i]) @ features)
            top, total = top + score * tokens.v[b, h, j], total + score
        torch.testing.assert_close(out[b, h, i], top / total if total else top)
