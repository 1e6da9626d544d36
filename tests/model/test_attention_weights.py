"""Weights of attention by layer, whatever rows the layers run on."""

from __future__ import annotations

import torch

from scaleformer.model.attention_weights import recorded_weights
from tests.helpers import make_batch, make_model


@torch.no_grad()
def test_layers_of_the_own_segment_are_recorded_on_the_documents() -> None:
    batch = make_batch([([5, 3, 4], [4, 4, 2]), ([1, 2], [2, 3])])
    model = make_model(attention={"name": "segment_recall", "near": 1, "document_layers": 1})
    expected = model(batch)
    with recorded_weights(model) as found:
        out = model(batch)
    torch.testing.assert_close(out[batch.target_mask], expected[batch.target_mask], rtol=0, atol=1e-10)
    own = batch.target_segments[:, :, None] == batch.source_segments[:, None]  # (B, L, S)
    lower, top = (weights.double() for weights in found["cross"])
    assert lower.shape == top.shape == (2, 4, *own.shape[1:])
    outside = ~own[:, None] & batch.target_mask[:, None, :, None]
    assert lower.masked_select(outside).abs().max() == 0 < top.masked_select(outside).abs().max()
    assert all(layer.own_segment for layer in (model.encoder_layers[0], model.decoder_layers[0]))  # as before
