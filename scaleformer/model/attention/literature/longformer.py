"""Softmax attention to a sliding window and a few global tokens."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.estimates import Extent, doubled
from scaleformer.model.attention.literature.marked_cache import MarkedCache
from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.model.attention.state import FIRST_ROOM, KeyValueCache, room
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import windowed_attention
from scaleformer.system.schema import Natural, Positive


class LongformerAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over j = i + m dilation, |m| <= window, and the global tokens j.

    Global are the first `global_tokens` positions and, with `segment_tokens`, the first token of every segment. In the
    encoder they see all tokens, as in LED, with `global_projections` by other Q, K and V (first the same numbers). The
    decoder's window is causal, and global tokens see what others see. Dilated heads have the same number of keys
    farther apart. With `bottom_window` the window grows from the bottom layer to the top, by the same factor from each
    layer to the next, and the dilation from 1.
    Cost O(L (window + G) d) time, O(L (window + G)) memory for G global tokens: linear, but for `segment_tokens`.
    Decoding keeps window * dilation + 1 + G keys and values, however long the text.
    Source: [Beltagy 2020, sections 3.1 and 4.1], with positions added to the embeddings; segment tokens are our choice
    of the global ones. Left out: LED's full attention in the decoder.

    window              keys on either side; in the top layer, if it grows
    global_tokens       number of initial tokens that all tokens see
    segment_tokens      whether all tokens see the first of every segment (if causal, of the earlier ones) as well
    global_projections  whether global tokens gather by projections of their own, in the encoder
    bottom_window       the window of the bottom layer, 0 for `window` in all layers
    dilation            distance between the keys of a dilated head, in tokens; in the top layer, if the window grows
    dilated_heads       number of heads, the last ones, that are dilated
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(
        self, site: str, width: int, heads: int, window: Positive = 64, global_tokens: Natural = 1,
        segment_tokens: bool = False, global_projections: bool = False, bottom_window: Natural = 0,
        dilation: Positive = 1, dilated_heads: Natural = 0, layer: int = 0, layers: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        if dilated_heads > heads:
            raise ValueError(f"model.attention.dilated_heads is {dilated_heads}: it must be at most {heads}")
        if bottom_window and layers > 1:
            share = layer / (layers - 1)
            window, dilation = round(bottom_window ** (1 - share) * window**share), round(dilation**share)
        self.window = window
        self.segment_tokens = segment_tokens
        self.global_tokens = max(global_tokens, int(segment_tokens))  # the first token begins a segment
        self.dilation, self.dilated_heads = dilation, dilated_heads
        if global_projections and not self.global_tokens:
            raise ValueError("model.attention.global_projections is true, but no token is global: set global_tokens or "
                             "segment_tokens")  # fmt: skip
        self.own_projections = global_projections and site == "encoder"
        if self.own_projections:
            self.global_query, self.global_key, self.global_value = (Linear(width, width, bias=False) for _ in range(3))
            for name in ("query", "key", "value"):
                getattr(self, f"global_{name}").load_state_dict(getattr(self, name).state_dict())

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        if not self.own_projections:
            return super().forward(x, encoded, layout)
        near = self._project(x, self.query, self.key, self.value)  # (B, H, L, d) each
        far = self._project(x, self.global_query, self.global_key, self.global_value)
        query, key, value = (torch.cat(pair, dim=1) for pair in zip(near, far, strict=True))  # (B, 2H, L, d) each
        return self.output(self._merge(self.attend(query, key, value, layout)))  # (B, L, D)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        """With their own projections, global tokens are further heads: query, key, value (B, 2H, L, d)."""
        mask = None if self.causal else layout.mask  # pads stand at the end: no real query sees one
        chosen = self._chosen(layout) if self.segment_tokens else self.global_tokens
        parts = []
        for heads, dilation in self._groups():
            q, k, v = (x[:, : self.heads][:, heads] for x in (query, key, value))
            options: dict[str, Any] = {"causal": self.causal, "key_mask": mask, "dilation": dilation}
            if self.own_projections:
                options["everywhere"] = tuple(x[:, self.heads :][:, heads] for x in (query, key, value))
            parts.append(windowed_attention(q, k, v, self.window, chosen, **options))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (B, H, L, d)

    def _groups(self) -> list[tuple[slice, int]]:
        """Heads of one dilation, and the dilation."""
        near = self.heads - self.dilated_heads
        if self.dilation == 1 or near == self.heads:
            return [(slice(None), 1)]
        far = (slice(near, None), self.dilation)
        return [(slice(near), 1), far] if near else [far]

    def _chosen(self, layout: SegmentLayout) -> tuple[Tensor, Tensor]:
        """Positions (B, G) of the global tokens, and whether each of them counts (B, G)."""

        def make() -> tuple[Tensor, Tensor]:
            segments, _ = layout.clean(self.causal)  # (B, L)
            begins = segments.diff(dim=1, prepend=segments[:, :1]) > 0
            begins[:, : self.global_tokens] = True
            begins &= layout.mask
            count = begins.sum(1, keepdim=True)  # (B, 1)
            places = (~begins).byte().argsort(dim=1, stable=True)[:, : int(count.max())]
            return places, torch.arange(places.shape[1], device=places.device) < count

        return layout.derived(("longformer", self.global_tokens, self.causal), make)

    @property
    def _fixed(self) -> int:
        """Slots of the state before those of segment tokens: the first tokens, then a ring."""
        return self.global_tokens + self.window * max(dilation for _, dilation in self._groups()) + 1

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        size = self._fixed + (FIRST_ROOM if self.segment_tokens else 0)
        key, value = (room(like, size, rows, self.heads, self.head_width) for _ in range(2))  # (B*K, H, T, d)
        if self.segment_tokens:
            return MarkedCache.begin(key, value, self._fixed)
        return KeyValueCache(key, value, size)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        few, ring = self.global_tokens, self._fixed - self.global_tokens
        slot = position if position < few else few + (position - few) % ring
        state.key[:, :, slot], state.value[:, :, slot] = key, value
        if isinstance(state, MarkedCache):
            begins = (segments > state.segment) & (position >= few)  # (B*K,)
            state = state.mark(key, value, slot, begins, segments)
        out = []
        for heads, dilation in self._groups():
            slots = self._slots(position, dilation, state)
            mask = None if state.mask is None else state.mask[:, None, None, slots]
            keys, values = (x[:, heads, slots] for x in (state.key, state.value))  # (B*K, H, T, d)
            out.append(fused(query[:, heads, None], keys, values, mask))  # (B*K, H, 1, d)
        return torch.cat(out, dim=1)[:, :, 0], state

    def _slots(self, position: int, dilation: int, state: KeyValueCache) -> slice | list[int]:
        few, fixed = self.global_tokens, self._fixed
        if len(self._groups()) == dilation == 1:  # all of the ring; its order does not matter
            return slice(min(position + 1, fixed) if state.mask is None else state.length)
        near = range(position, max(few, position - self.window * dilation) - 1, -dilation)
        slots = [few + (p - few) % (fixed - few) for p in near]
        return [*range(min(few, position + 1)), *slots, *range(fixed, state.length)]

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        if not self.segment_tokens:
            return 0
        first = self._fixed + FIRST_ROOM
        have = doubled(first, self._fixed + len(extent.target_spans))
        return rows * (have - first) * (2 * self.heads * self.head_width * size + 1)
