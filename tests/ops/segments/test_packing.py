"""Whole segments in packed rows: each token has one place, segments stay whole, and layers compute the same there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.model import transformer
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.segments.packing import ROW, pack_segments
from tests.helpers import make_model


def ragged(texts: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Segments (B, L) of 1 to 99 tokens and the mask (B, L); pads hold another number."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 100, (texts, length), generator=generator)
    segments = torch.stack([torch.arange(length).repeat_interleave(row)[:length] for row in lengths])
    ends = torch.randint(length // 2, length + 1, (texts, 1), generator=generator)
    mask = torch.arange(length) < ends
    return segments.masked_fill(~mask, 1 << 40), mask


def test_each_token_has_one_place_in_a_row_of_whole_segments() -> None:
    (queries, query_mask), (keys, key_mask) = ragged(3, 300, 1), ragged(3, 350, 2)
    packed, beside = pack_segments(SegmentLayout(queries, keys, key_mask), query_mask)
    identity = torch.stack([torch.arange(3)[:, None].expand_as(queries) + 1, queries + 1], -1)  # text and segment
    parts = packed.split(identity)
    torch.testing.assert_close(packed.join(parts, identity), identity * query_mask[..., None])
    others = beside.split(torch.stack([torch.arange(3)[:, None].expand_as(keys) + 1, keys + 1], -1))
    placed = 0
    for rows, row_keys, layout, alone in zip(parts, others, beside.layouts, packed.layouts, strict=True):
        together = layout.query_segments[:, :, None] == layout.key_segments[:, None]  # (m, T, S)
        real = (rows[..., :1] > 0) & layout.mask[:, None] & (row_keys[:, None, :, 0] > 0)
        same = (rows[:, :, None] == row_keys[:, None]).all(-1)
        assert torch.equal(together & real, same & real)  # of a row's pairs those of one text and segment
        placed += int(alone.mask.sum())
    assert placed == int(query_mask.sum())
    # Every pair of a query and a key of one segment is there.
    wanted = (queries[:, :, None] == keys[:, None]) & query_mask[:, :, None] & key_mask[:, None]
    found = [
        ((x[:, :, None] == y[:, None]).all(-1) & (x[..., :1] > 0)).sum() for x, y in zip(parts, others, strict=True)
    ]
    assert sum(found) == wanted.sum()


def test_rows_are_well_filled() -> None:
    segments = (torch.arange(2000) // 20).repeat(2, 1)
    packed, _ = pack_segments(SegmentLayout(segments, segments), torch.ones_like(segments, dtype=torch.bool))
    assert packed.shapes == [(67, ROW - 4)]  # 200 segments of 20, three a row


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_layers_give_the_same_numbers_on_rows(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gradients. Some segments are longer than a row; some of the target have no source."""
    attention = {"name": "segment_recall", "near": 1, "kept": 8, "document_layers": layers}
    model = make_model(attention=attention, encoder_layers=2, decoder_layers=2)
    generator = torch.Generator().manual_seed(4)
    (source_segments, source_mask), (segments, mask) = ragged(3, 260, 3), ragged(3, 300, 4)
    source, target = (torch.randint(6, 18, x.shape, generator=generator) for x in (source_segments, segments))

    def run() -> tuple[Tensor, ...]:
        states = model._decode(model.encode(source, source_mask, source_segments), target, segments, mask, inputs := [])
        leaves = [x for x in model.parameters() if x.requires_grad]
        used = torch.cat([states, *inputs], -1)[mask]
        return used, *torch.autograd.grad(used.square().sum(), leaves, allow_unused=True, materialize_grads=True)

    found = run()
    monkeypatch.setattr(transformer, "lower_layers", lambda *_: [])
    for x, y in zip(found, run(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_lower_layers_see_their_own_segment_alone() -> None:
    model = make_model(attention={"name": "segment_recall", "document_layers": 0})
    source = torch.randint(6, 18, (1, 12), generator=torch.Generator().manual_seed(5))
    segments, mask = torch.arange(12)[None] // 4, torch.ones(1, 12, dtype=torch.bool)
    whole = model.encode(source, mask, segments).states
    alone = model.encode(source[:, 4:8], mask[:, :4], segments[:, :4]).states
    torch.testing.assert_close(whole[:, 4:8], alone, rtol=0, atol=1e-10)
