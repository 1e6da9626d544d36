"""The memory that documents take in translation, known before: states to the byte, a bound for all beside them.

Letters: B documents, K rows a document, S source tokens, D model width, H heads.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scaleformer.model.attention.estimates import Extent
from scaleformer.model.attention.state import FIRST_ROOM
from scaleformer.model.states import DecoderState, Encoded
from scaleformer.model.transformer import ENCODED_AT_ONCE, Transformer

# Bounds, which tests/model/test_footprint.py compares with what torch takes. Numbers of a token in a layer of the
# encoder, for each of the width and of the feed-forward width; the part of a layer's state that a step copies.
_WIDTHS, _FEEDFORWARDS, _COPIED = 24, 2, 2


class Footprint:
    """What a model takes beside its weights. The sizes of states are counted on small ones: they are linear in rows,
    documents, tokens and segments of the source. What they gain later says `Attention.later_bytes`."""

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        self.model = model
        weight = model.output_weight
        self.size = weight.element_size()

        def made(documents: int, beams: int, source: int, segments: int) -> DecoderState:
            numbers = torch.arange(source, device=weight.device) * segments // source
            numbers = numbers.repeat(documents, 1)
            states = weight.new_zeros(documents, source, model.config.width)
            return model.init_state(Encoded(states, torch.ones_like(numbers, dtype=torch.bool), numbers), beams)

        def count(*sizes: int) -> int:
            return tensor_bytes(made(*sizes).layers)

        one = count(1, 1, 8, 2)
        self._row = count(1, 2, 8, 2) - one
        self._document = count(2, 1, 8, 2) - one - self._row
        self._token = (count(1, 1, 16, 2) - one) // 8
        self._segment = (count(1, 1, 16, 4) - count(1, 1, 16, 2)) // 2
        self._document -= 8 * self._token + 2 * self._segment
        self._once = one - self._row - self._document - 8 * self._token - 2 * self._segment
        self._gained: list[int] = []  # by the state of a row in each layer, when its 65th position is written
        none, x = torch.zeros(1, dtype=torch.long, device=weight.device), weight.new_zeros(1, model.config.width)
        for layer, state in zip(model.decoder_layers, made(1, 1, 8, 2).layers, strict=True):
            before = tensor_bytes(state.own)
            self._gained.append(tensor_bytes(layer.attention.step(x, FIRST_ROOM, none, state.own)[1]) - before)

    def state_bytes(self, extent: Extent, documents: int, beams: int, used: bool = True) -> int:
        """The state of decoding at its largest; `used` False: before the first step."""
        rows = documents * beams
        each = self._document + extent.source * self._token + extent.segments * self._segment
        found = self._once + rows * self._row + documents * each
        if not used:
            return found
        for layer, gained in zip(self.model.decoder_layers, self._gained, strict=True):
            for attention, own in ((layer.attention, gained), (layer.cross_attention, 0)):
                found += attention.later_bytes(own, documents, rows, extent, self.size)
        return found

    def bytes(self, extent: Extent, documents: int, beams: int, logits: int) -> int:
        """All of it at its highest. logits: numbers that the search holds for each row and word of the vocabulary."""
        config, rows = self.model.config, documents * beams
        D, H, F = config.width, config.heads, config.feedforward
        encoder, *_ = self.model.encoder_layers
        decoder, *_ = self.model.decoder_layers
        source = documents * extent.source
        at_once = max(extent.source, min(source, ENCODED_AT_ONCE))
        by_head = encoder.attention.held.tiles + encoder.attention.held.scores * extent.source
        encoding = (_WIDTHS * D + _FEEDFORWARDS * F + H * by_head) * at_once
        begun = self.state_bytes(extent, documents, beams, used=False)
        begun += source * D * self.size * (1 + decoder.cross_attention.held.aside)
        state = self.state_bytes(extent, documents, beams)
        # what is written is kept once more, with the rows that it continues; limits of each segment
        search = 4 * rows * logits * config.target_vocabulary + 16 * rows * (extent.target + extent.segments)
        decoding = state + _COPIED * state // config.decoder_layers + search
        return max(source * D * self.size + encoding * self.size, begun, decoding)


def tensor_bytes(value: Any) -> int:
    """What the tensors of a nested structure take; those that share memory count once."""
    found: dict[int, int] = {}
    _collect(value, found)
    return sum(found.values())


def _collect(value: Any, found: dict[int, int]) -> None:
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    elif isinstance(value, dict):
        _collect(list(value.values()), found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
    elif isinstance(value, partial):
        _collect([value.args, value.keywords], found)
    elif is_dataclass(value):
        _collect([getattr(value, field.name) for field in fields(value)], found)
