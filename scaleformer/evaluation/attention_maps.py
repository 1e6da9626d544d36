"""Where a model looks: the attention weights of one document, explicit, whatever the mechanism.

Every mechanism here is linear in its values: out_i = sum_j w_ij V_j. The linear ones never form w; but where V_j is the
j-th unit vector, out_i is the row w_i itself. So the weights come out of the very code that translates:

    w_ij = s_ij / sum_j s_ij,   s_ij = phi(Q_i) . (phi(K_j) + phi(P_clip(j-i, -R, R)))        [Scaleformer, equation 9]

for the paper's attention, with the gate for the segment-gated one, and the softmax for the others. Mechanisms that mix
values before they weigh them (`linformer`) have weights below zero; those that bypass `Attention.attend` have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.attention_files import SIDES, AttentionMaps
from scaleformer.model.attention import MECHANISMS, Attention
from scaleformer.model.transformer import Transformer
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS


@torch.inference_mode()
def attention_maps(
    translator: Translator, source: Sequence[str], target: Sequence[str] | None = None, *, max_tokens: int = 512
) -> AttentionMaps:
    """The weights for a document, a list of segments; without a target for the model's own translation of it.

    max_tokens  most tokens of either side: memory is their product, times heads and layers. Raises ValueError beyond.
    """
    if target is None:
        (target,) = translator.translate([source])
    tokens = [*translator.tag_tokens(), *translator.source_tokenizer.encode_segments(source), EOS]
    output = [*translator.target_tokenizer.encode_segments(target), EOS]
    longest = max(len(tokens), len(output))
    if longest > max_tokens:
        raise ValueError(
            f"{longest} tokens are too many for attention maps: wanted at most {max_tokens} (fewer segments, or a "
            "larger max_tokens)"
        )
    example = Example("", np.array(tokens), np.array(output), translator.target_tokenizer.counted)
    batch = collate([example]).to(translator.device)
    model = translator.model
    with _recorded(model) as found:
        model(batch)
    weights = {
        site: np.stack([layer[0].float().cpu().numpy() for layer in layers]) for site, layers in found.items() if layers
    }
    names = {mechanism: name for name, mechanism in MECHANISMS.items()}
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    return AttentionMaps(
        _pieces(translator.source_tokenizer, tokens),
        _pieces(translator.target_tokenizer, [BOS, *output[:-1]]),
        weights,
        {attention.site: names[type(attention)] for attention in attentions},
    )


@contextmanager
def _recorded(model: Transformer) -> Iterator[dict[str, list[Tensor]]]:
    """While it lasts, the attention of every layer also gives its weights (B, H, L, S), by site in order of layers."""
    found: dict[str, list[Tensor]] = {site: [] for site in SIDES}
    attentions = [module for module in model.modules() if isinstance(module, Attention)]

    def watch(attention: Attention) -> None:
        attend = attention.attend

        def attend_and_record(query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
            B, H, S, _ = key.shape
            unit = torch.eye(S, dtype=value.dtype, device=value.device).expand(B, H, S, S)
            found[attention.site].append(attend(query, key, unit, layout))  # (B, H, L, S)
            return attend(query, key, value, layout)

        attention.attend = attend_and_record  # type: ignore[method-assign,assignment]

    try:
        for attention in attentions:
            watch(attention)
        yield found
    finally:
        for attention in attentions:
            attention.__dict__.pop("attend", None)


def _pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[str, ...]:
    return tuple(tokenizer.piece(token) for token in tokens)
