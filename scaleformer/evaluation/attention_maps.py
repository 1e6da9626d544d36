"""The explicit attention weights of one document, for any mechanism.

`scaleformer.model.attention_weights` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.attention_files import AttentionMaps
from scaleformer.model.attention import MECHANISMS
from scaleformer.model.attention_weights import attentions_of, recorded_weights
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS


@torch.inference_mode()
def attention_maps(
    translator: Translator, source: Sequence[str], target: Sequence[str] | None = None, *, max_tokens: int = 512
) -> AttentionMaps:
    """The weights for a document, a list of segments; without a target, the model translates it first.

    max_tokens  most tokens of either side: memory is their product times heads and layers. Raises ValueError beyond it.
    """
    if target is None:
        (target,) = translator.translate([source])
    tokens = [*translator.tag_tokens(), *translator.source_tokenizer.encode_segments(source), EOS]
    output = [*translator.target_tokenizer.encode_segments(target), EOS]
    longest = max(len(tokens), len(output))
    if longest > max_tokens:
        raise ValueError(
            f"{longest} tokens are too many for attention maps: wanted at most {max_tokens}: take fewer segments, or "
            "raise max_tokens"
        )
    example = Example("", np.array(tokens), np.array(output))
    batch = collate([example]).to(translator.device)
    model = translator.model
    with recorded_weights(model) as found:
        model(batch)
    weights = {
        site: np.stack([layer[0].float().cpu().numpy() for layer in layers]) for site, layers in found.items() if layers
    }
    names = {mechanism: name for name, mechanism in MECHANISMS.items()}
    return AttentionMaps(
        _pieces(translator.source_tokenizer, tokens),
        _pieces(translator.target_tokenizer, [BOS, *output[:-1]]),
        weights,
        {attention.site: names[type(attention)] for attention in attentions_of(model)},
    )


def _pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[str, ...]:
    return tuple(tokenizer.piece(token) for token in tokens)
