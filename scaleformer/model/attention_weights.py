"""Explicit attention weights for every mechanism.

Every mechanism here is linear in its values: out_i = sum_j w_ij V_j. Linear-time mechanisms never form w. But if V_j is
the j-th unit vector, out_i is the row w_i itself. So the weights come from the same code that translates:

    w_ij = s_ij / sum_j s_ij,   s_ij = phi(Q_i) . (phi(K_j) + phi(P_clip(j-i, -R, R)))        [Scaleformer, equation 9]

for the paper's attention, and the softmax for the others. Weights can be
negative where a mechanism mixes values before it weights them (`linformer`).
Mechanisms that bypass `Attention.attend` have no weights here. For one that contains others (`g_transformer`,
`hibert`), the weights are those of its own part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scaleformer.model.attention.base import SITES, Attention
from scaleformer.ops.segments.layout import SegmentLayout


def attentions_of(model: nn.Module) -> list[Attention]:
    """The attentions of a model in layer order, without those inside another attention."""
    found = [module for module in model.modules() if isinstance(module, Attention)]
    parts = {part for attention in found for part in attention.modules() if part is not attention}
    return [attention for attention in found if attention not in parts]


@contextmanager
def recorded_weights(model: nn.Module, sites: Sequence[str] = SITES) -> Iterator[dict[str, list[Tensor]]]:
    """Within it forward passes also record attention weights (B, H, L, S) by site, in layer order; B H L S each."""
    found: dict[str, list[Tensor]] = {site: [] for site in sites}
    attentions = [attention for attention in attentions_of(model) if attention.site in sites]

    def watch(attention: Attention) -> None:
        attend = attention.attend

        def attend_and_record(query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
            B, H, S, _ = key.shape
            unit = torch.eye(S, dtype=value.dtype, device=value.device).expand(B, H, S, S)
            found[attention.site].append(attend(query, key, unit, layout))  # (B, H, L, S)
            return attend(query, key, value, layout)

        attention.attend = attend_and_record  # type: ignore[method-assign,assignment]

    alone = [attention for attention in attentions_of(model) if attention.own_segment]
    try:
        for attention in alone:
            attention.own_segment = False  # else its layer reads segments packed in other rows
        for attention in attentions:
            watch(attention)
        yield found
    finally:
        for attention in attentions:
            attention.__dict__.pop("attend", None)
        for attention in alone:
            attention.own_segment = True
