"""The settings of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from scaleformer.model.attention import SITES
from scaleformer.model.attention.positions import FORMS
from scaleformer.model.layers import ACTIVATIONS
from scaleformer.system.schema import OneOf, Positive, Range, check_fields


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build a Transformer.

    norm               of each layer: before it (pre), and once more at the end, or after it (post)
    biases             whether the projections of attentions have biases
    scale_embeddings   whether embeddings are multiplied by sqrt(width)
    output_bias        whether the output layer has a bias
    sinusoids          added to the embeddings: a form of `positions.FORMS`; "auto" only where an attention needs them,
                       "segments" always, from the start of each segment
    separate_segments  whether each segment begins anew: positions count from its start, the decoder reads `<s>` for a
                       separator, and the `</s>` that follows the last one is neither read nor predicted
    attention          the mechanism of every site: {"name": ..., option: value, ...}
    sites              exceptions by site: {"encoder" | "decoder" | "cross": {"name": ..., ...}}
    """

    source_vocabulary: Positive
    target_vocabulary: Positive
    shared_vocabulary: bool = True
    encoder_layers: Positive = 4
    decoder_layers: Positive = 4
    width: Positive = 128
    feedforward: Positive = 256
    heads: Positive = 4
    dropout: Annotated[float, Range(ge=0, lt=1)] = 0.1
    activation: Annotated[str, OneOf(ACTIVATIONS)] = "relu"
    tie_embeddings: bool = True
    norm: Literal["pre", "post"] = "pre"
    biases: bool = False
    scale_embeddings: bool = True
    output_bias: bool = False
    sinusoids: Annotated[str, OneOf(FORMS)] = "auto"
    separate_segments: bool = False
    gradient_checkpointing: bool = False
    attention: Mapping[str, Any] = field(default_factory=lambda: {"name": "segment_recall"})
    sites: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.shared_vocabulary and self.source_vocabulary != self.target_vocabulary:
            raise ValueError(
                f"a shared vocabulary cannot have two sizes, {self.source_vocabulary} and {self.target_vocabulary}: "
                "set tokenizer.joint=true or model.shared_vocabulary=false"
            )
        if unknown := set(self.sites) - set(SITES):
            raise ValueError(f"model.sites has no site {', '.join(sorted(unknown))}: the sites are {', '.join(SITES)}")
