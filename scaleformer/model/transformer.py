"""The encoder-decoder. B batch, K beams, L / S target and source length, D model width, V target vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from scaleformer.batch import Batch
from scaleformer.model.attention import Attention, build_attention
from scaleformer.model.attention.positions import Sinusoids
from scaleformer.model.cache import StateCache, StateCaches
from scaleformer.model.config import ModelConfig
from scaleformer.model.layers import DecoderLayer, Dropout, EncoderLayer, lower_layers, run_packed
from scaleformer.model.states import Before, DecoderState, Encoded
from scaleformer.ops.common.matmul import Int8Weight, Linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.vocabulary import BOS, EOS, SEP, is_separator

#: source tokens, with pads, encoded at once in translation (or one document), which bounds the memory
ENCODED_AT_ONCE = 8192

#: positions whose logits are held at once
LOGITS_AT_ONCE = 1024

#: with more rows, 8-bit weights do not make the output layer faster
FEW_ROWS = 128


class Transformer(nn.Module):
    """Encoder-decoder [Vaswani 2017] whose attention is chosen site by site.

    There is no length limit: positions are relative, or sinusoids computed for any length. An attention may have a
    limit of its own, which its error for a longer document names.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        D = config.width
        self.source_embedding = nn.Embedding(config.source_vocabulary, D)
        nn.init.normal_(self.source_embedding.weight, std=D**-0.5)
        if config.shared_vocabulary:
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = nn.Embedding(config.target_vocabulary, D)
            nn.init.normal_(self.target_embedding.weight, std=D**-0.5)
        if config.tie_embeddings:
            self.output_weight = self.target_embedding.weight
        else:
            self.output_weight = nn.Parameter(torch.empty(config.target_vocabulary, D))
            nn.init.normal_(self.output_weight, std=D**-0.5)

        def attention(site: str, layer: int) -> Attention:
            named = config.sites.get(site)
            layers = config.encoder_layers if site == "encoder" else config.decoder_layers
            choice, strict = named or config.attention, bool(named)
            made = build_attention(choice, site, D, config.heads, strict=strict, layer=layer, layers=layers)
            if config.biases:
                made.add_biases()
            if config.separate_segments:
                made.begin_apart()
            return made

        rest = (D, config.feedforward, config.dropout, config.activation, config.norm == "post")
        encoder = [EncoderLayer(attention("encoder", n), *rest) for n in range(config.encoder_layers)]
        decoder = [
            DecoderLayer(attention("decoder", n), attention("cross", n), *rest) for n in range(config.decoder_layers)
        ]
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.output_int8: Int8Weight | None = None
        self.caches: StateCaches | None = None
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary)) if config.output_bias else None
        self.encoder_norm = nn.LayerNorm(D) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(D) if config.norm == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.source_positions = encoder[0].attention.make_positions()
        # The decoder's embeddings need absolute positions if either of its attentions is blind to order.
        self.target_positions = decoder[0].attention.make_positions() or decoder[0].cross_attention.make_positions()
        self.places_begin_anew = config.separate_segments or config.sinusoids == "segments"
        if config.sinusoids != "auto":
            self.source_positions = self.target_positions = Sinusoids(D, config.sinusoids)

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        return cast(list[EncoderLayer], list(self.encoder))

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    @property
    def most_source_tokens(self) -> float:
        """The most source tokens, including `</s>`; inf without a limit."""
        attentions = [layer.attention for layer in self.encoder_layers]
        attentions += [layer.cross_attention for layer in self.decoder_layers]
        return min(getattr(self.source_positions, "most", math.inf), *(a.most_keys for a in attentions))

    @property
    def most_target_tokens(self) -> float:
        """The most target tokens, including `</s>`; inf without a limit."""
        attentions = [layer.attention for layer in self.decoder_layers]
        return min(getattr(self.target_positions, "most", math.inf), *(a.most_keys for a in attentions))

    def forward(self, batch: Batch) -> Tensor:
        """Teacher-forced decoder states (B, L, D), before the output layer (`logits`)."""
        encoded = self.encode(batch.source, batch.source_mask, batch.source_segments)
        return self._decode(encoded, batch.target_input, batch.target_segments, batch.target_mask, None)

    def logits(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., V)"""
        if self.output_int8 is not None and states.numel() <= FEW_ROWS * states.shape[-1]:
            return self.output_int8(states)
        return linear(states, self.output_weight, self.output_bias)

    def remembering(self, caches: Sequence[StateCache | None]) -> Transformer:
        """The same model with the same weights, to decode documents of which each has the cache given for it."""
        other = copy(self)
        other.caches = StateCaches(caches) if any(caches) else None
        return other

    def only(self, documents: Sequence[int]) -> Transformer:
        """The model to decode some of the documents that it remembers something of."""
        return self if self.caches is None else self.remembering(self.caches.of(documents))

    def _mixed(self, states: Tensor, documents: Tensor | None) -> Tensor:
        """Logits (n, V) fp32 of states (n, D) in these documents (n,), with their caches."""
        logits = self.logits(states)
        return (
            logits.float() if self.caches is None or documents is None else self.caches.mix(logits, states, documents)
        )

    def output(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States (..., D) and weight (V, D) whose product are the logits; the bias is one more column of both."""
        if self.output_bias is None:
            return states, self.output_weight
        ones = states.new_ones(*states.shape[:-1], 1)
        return torch.cat([states, ones], -1), torch.cat([self.output_weight, self.output_bias[:, None]], 1)

    def predicted(self, batch: Batch) -> Tensor:
        """(B, L) bool, the positions whose next token the model predicts."""
        return batch.target_mask & (batch.target_output != EOS) if self.config.separate_segments else batch.target_mask

    def logit_parts(self, states: Tensor, documents: Tensor) -> Iterator[Tensor]:
        """The logits fp32 of states (L, D) in these documents of the batch (L,), some at a time; with 8-bit weights as
        few as have the numbers of a step."""
        size = LOGITS_AT_ONCE if self.output_int8 is None else FEW_ROWS
        for part in zip(states.split(size), documents.split(size), strict=True):
            yield self._mixed(*part)

    def to_int8(self) -> None:
        """Multiply by all weights in 8 bits (`Int8Weight`), for translation on a CPU. The weights themselves stay.
        Raises ValueError if torch has no 8-bit products for this machine."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.int8 = Int8Weight(module.weight, module.bias)
        self.output_int8 = Int8Weight(self.output_weight, self.output_bias)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Encoded:
        """source (B, S) long, source_mask (B, S) bool, source_segments (B, S) long -> Encoded"""
        if self.config.separate_segments:
            source_mask = source_mask & (source != EOS)
        if torch.is_inference_mode_enabled() and source.numel() > ENCODED_AT_ONCE and len(source) > 1:
            size = max(1, ENCODED_AT_ONCE // source.shape[1])
            parts = zip(*(x.split(size) for x in (source, source_mask, source_segments)), strict=True)
            states = torch.cat([self.encode(*part).states for part in parts])  # (B, S, D)
            return Encoded(states, source_mask, source_segments)
        first = nn.functional.pad(source[:, :-1] == SEP, (1, 0), value=True)  # (B, S)
        x = self._embed(self.source_embedding, source, self.source_positions, self._places(first))  # (B, S, D)
        layout = SegmentLayout(source_segments, source_segments, source_mask)
        lower = lower_layers(self.encoder_layers, x)
        if lower:
            x = run_packed(lower, self._run, x, layout, source_mask)
        for layer in self.encoder_layers[len(lower) :]:
            x = self._run(layer, x, layout)
        return Encoded(self.encoder_norm(x), source_mask, source_segments)

    def init_state(self, encoded: Encoded, beams: int) -> DecoderState:
        """The state before `<s>`, for K = `beams` hypotheses of each of the B documents; row = document * K + beam."""
        rows = encoded.states.shape[0] * beams
        starts = encoded.segments.new_zeros(rows) if self.places_begin_anew else None
        documents = None if self.caches is None else torch.arange(rows, device=encoded.mask.device) // beams
        return DecoderState(0, [layer.init_state(*encoded, rows) for layer in self.decoder_layers], starts, documents)

    @property
    def resumes(self) -> bool:
        """Whether it can go on from the middle of a given translation (`states_before`)."""
        attentions = [one for layer in self.decoder_layers for one in (layer.attention, layer.cross_attention)]
        whole = self.target_positions is None or self.config.sinusoids == "segments"
        return whole and not self.config.separate_segments and all(one.resumes for one in attentions)

    @property
    def ends_with_segments(self) -> bool:
        """Whether a translation ends with the separator that consumes the last source segment, without `</s>`."""
        return self.config.separate_segments

    def cross_states(self, encoded: Encoded) -> list[Any]:
        """The state of each layer's cross-attention, for `states_before`."""
        return [layer.cross_attention.init_state(*encoded, len(encoded.states)) for layer in self.decoder_layers]

    def read_target(
        self, encoded: Encoded, target: Tensor, segments: Tensor, mask: Tensor, before: Before | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """The input of each decoder layer for given translations, (B, L, D) each, for `states_before`; and the decoder
        states (B, L, D), as `forward` returns them.

        target, segments (B, L) long and mask (B, L) bool: as `target_input`, `target_segments` and `target_mask` of a
        `Batch`. before: the inputs of earlier translations of the same sources, and where each token stood in them
        (B, L) long, -1 for those in segments that differ; layers that see the own segment alone read these only.
        """
        inputs: list[Tensor] = []
        return inputs, self._decode(encoded, target, segments, mask, inputs, before)

    def states_before(
        self, cross: Sequence[Any], inputs: Sequence[Tensor], segments: Tensor, texts: Tensor, starts: Tensor,
        documents: Tensor | None = None,
    ) -> DecoderState:  # fmt: skip
        """The state of n hypotheses that continue given translations from several positions, each a document of its
        own that stays in its segment. Only of a model that `resumes`.

        cross, inputs: from `cross_states` and `read_target`; segments (B, L) long, as there; texts, starts (n,) long:
        row i is the state before position starts[i], the first of a segment, of translation texts[i]; documents (n,) as
        in a `DecoderState`.
        """
        layers = [
            layer.states_before(x, segments, texts, starts, state)
            for layer, x, state in zip(self.decoder_layers, inputs, cross, strict=True)
        ]
        rows = segments[texts]  # (n, L)
        here = (rows == rows.gather(1, starts[:, None])).long().argmax(1)  # (n,), where the segments begin
        return DecoderState(0, layers, here - starts if self.places_begin_anew else None, documents)

    def step(self, tokens: Tensor, segments: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One position of every hypothesis.

        tokens (B*K,) long, the input at this position; segments (B*K,) long, the number of `<sep>` up to and including
        it. Returns logits (B*K, V) fp32 of the next token, and the advanced state.
        """
        starts, places = state.starts, torch.full((1,), state.position, device=tokens.device)
        if starts is not None:
            starts = torch.where(is_separator(tokens), state.position, starts)
            places = (state.position - starts)[:, None]
        if self.config.separate_segments:
            tokens = torch.where(is_separator(tokens), BOS, tokens)
        x = self._embed(self.target_embedding, tokens[:, None], self.target_positions, places)[:, 0]  # (B*K, D)
        layers = []
        for layer, layer_state in zip(self.decoder_layers, state.layers, strict=True):
            x, layer_state = layer.step(x, state.position, segments, layer_state)
            layers.append(layer_state)
        logits = self._mixed(self.decoder_norm(x), state.documents)
        return logits, DecoderState(state.position + 1, layers, starts, state.documents)

    def reorder(self, state: DecoderState, rows: Tensor, documents: Tensor | None = None) -> DecoderState:
        """The state in which hypothesis n continues the old row rows[n]; the old state must not be used again.

        rows (B'*K,) long; documents (B',) long, the old document of each new one, or None if all stay in place.
        """
        for n, layer in enumerate(self.decoder_layers):  # in place: what a layer had is freed before the next one
            state.layers[n] = layer.reorder(state.layers[n], rows, documents)
        starts, numbers = (None if x is None else x[rows] for x in (state.starts, state.documents))
        return state._replace(starts=starts, documents=numbers)

    def _decode(
        self, encoded: Encoded, target: Tensor, segments: Tensor, mask: Tensor, inputs: list[Tensor] | None,
        before: Before | None = None,
    ) -> Tensor:  # fmt: skip
        """`forward` from an encoded source; the input of each layer is added to `inputs`, if given."""
        first = is_separator(target)  # (B, L)
        first[:, 0] = True
        if self.config.separate_segments:
            target = torch.where(first, BOS, target)
        x = self._embed(self.target_embedding, target, self.target_positions, self._places(first))  # (B, L, D)
        layout = SegmentLayout(segments, segments, mask)
        cross_layout = SegmentLayout(segments, encoded.segments, encoded.mask)
        lower = lower_layers(self.decoder_layers, x)
        if lower:
            new = mask if before is None else mask & (before[1] < 0)
            x = run_packed(lower, self._run, x, cross_layout, new, encoded.states, inputs)
            if before is not None and inputs is not None:
                known, places = mask & ~new, before[1].clamp(min=0)[:, :, None].expand_as(x)
                pairs = zip([*inputs, x], before[0], strict=False)
                *inputs[:], x = (torch.where(known[:, :, None], old.gather(1, places), here) for here, old in pairs)
        for layer in self.decoder_layers[len(lower) :]:
            if inputs is not None:
                inputs.append(x)
            x = self._run(layer, x, layout, encoded.states, cross_layout)
        return self.decoder_norm(x)  # (B, L, D)

    def _places(self, first: Tensor) -> Tensor:
        """The position (L,) of each token, or (B, L) from its segment's start, which first (B, L) bool marks."""
        index = torch.arange(first.shape[1], device=first.device)
        return index - (index * first).cummax(1).values if self.places_begin_anew else index

    def _embed(self, embedding: nn.Embedding, tokens: Tensor, positions: nn.Module | None, places: Tensor) -> Tensor:
        x = embedding(tokens)  # (B, L, D)
        if self.config.scale_embeddings:
            x = x * self.config.width**0.5
        if positions is not None:
            x = x + positions(places).to(x.dtype)  # (B, L, D)
        return self.dropout(x)

    def _run(self, layer: nn.Module, *inputs: Tensor | SegmentLayout) -> Tensor:
        if self.config.gradient_checkpointing and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)
