"""The bytes of decoding states, estimated and counted on those that were made, for every mechanism and mixture."""

from __future__ import annotations

import pytest
import torch

from scaleformer.model.attention.estimates import Extent
from scaleformer.model.footprint import Footprint, tensor_bytes
from scaleformer.model.transformer import ENCODED_AT_ONCE, Transformer
from tests.helpers import make_batch, make_model
from tests.model.test_transformer import CHOICES

LENGTHS = [(1, 1, 9), (3, 2, 25), (2, 1, 50)]  # documents, beams, steps


def spans(size: int, count: int) -> tuple[int, ...]:
    return tuple(size * n for n in range(1, count + 1))


@torch.inference_mode()
def largest(model: Transformer, documents: int, beams: int, steps: int, segment: int) -> tuple[int, int, Extent]:
    """Bytes of the state before the first step, and the most after one, of documents of 12 segments of 10 tokens."""
    batch = make_batch([([9] * 12, [1])] * documents)
    extent = Extent(121, steps, 13, (*spans(10, 12), 121), (*spans(segment, 12), steps))
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), beams)
    first = most = tensor_bytes(state.layers)
    for position in range(steps):
        # beams that are in different segments now and then, as those of a search are
        segments = (position + torch.arange(documents * beams) % beams) // segment
        _, state = model.step(torch.full_like(segments, 7), segments, state)
        most = max(most, tensor_bytes(state.layers))
    return first, most, extent


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize(("documents", "beams", "steps"), LENGTHS)
def test_states_take_what_is_estimated(name: str, documents: int, beams: int, steps: int) -> None:
    model = make_model(**CHOICES[name]).float()
    first, most, extent = largest(model, documents, beams, steps, 10)
    footprint = Footprint(model)
    assert footprint.state_bytes(extent, documents, beams, used=False) == first
    estimated = footprint.state_bytes(extent, documents, beams)
    if name.startswith(
        ("segment_recall", "g_transformer", "hibert")
    ):  # what its rows see depends on where they are: a bound, and a near one
        assert most <= estimated <= 1.1 * most
    else:
        assert estimated == most


def test_the_table_of_recall_doubles_when_its_near_segments_fill_it() -> None:
    """Four segments of 60 tokens are near: 64, 128 and 256 slots are too few, since a quarter must be free again."""
    model = make_model(attention={"name": "segment_recall"}).float()
    footprint = Footprint(model)
    _, most, extent = largest(model, 1, 1, 520, 60)
    assert most <= footprint.state_bytes(extent, 1, 1) <= 1.6 * most
    slot = 2 * (4 * (2 * 8 + 2) * 4 + 8)  # of two layers
    assert footprint.state_bytes(extent, 1, 1) - footprint.state_bytes(extent._replace(target=64), 1, 1) == slot * 448


def test_the_tables_of_hibert_double_when_its_segments_fill_them() -> None:
    """Of twenty segments of three tokens, nineteen are finished: sixteen slots are too few."""
    model = make_model(attention={"name": "hibert", "fallback": "softmax"}).float()
    footprint = Footprint(model)
    _, most, extent = largest(model, 2, 2, 60, 3)
    estimated = footprint.state_bytes(extent._replace(segments=20), 2, 2)
    assert most <= estimated <= 1.1 * most
    vectors = 4 * 4 * 16 * 32 * 4  # of four rows, in one layer
    assert estimated - footprint.state_bytes(extent._replace(segments=16), 2, 2) == 2 * vectors


def test_caches_that_forget_and_caches_of_segments_take_what_is_estimated() -> None:
    spans_of_58 = {"name": "adaptive_span", "max_span": 50, "ramp": 8, "initial": 1.0, "fallback": "softmax"}
    model = make_model(attention=spans_of_58).float()
    _, most, extent = largest(model, 1, 2, 200, 10)
    footprint = Footprint(model)
    assert footprint.state_bytes(extent, 1, 2) == most == footprint.state_bytes(extent._replace(target=10_000), 1, 2)
    model = make_model(**CHOICES["longformer with all"]).float()
    _, most, extent = largest(model, 1, 2, 200, 2)  # a hundred segments: more than there is room for at first
    estimated = Footprint(model).state_bytes(extent._replace(target_spans=spans(2, 100)), 1, 2)
    assert estimated == most + 2 * 8  # layers share the numbers of segments after the first step


def test_the_state_of_a_linear_attention_does_not_grow_with_what_is_written() -> None:
    short = Extent(121, 100, 13, (*spans(10, 12), 121), (*spans(10, 12), 100))
    for name, grows in (("scaleformer", False), ("segment_recall", False), ("softmax", True)):
        footprint = Footprint(make_model(attention={"name": name}).float())
        sizes = [footprint.state_bytes(short._replace(target=target), 4, 2) for target in (1000, 100_000)]
        assert (sizes[1] > sizes[0]) == grows


@torch.inference_mode()
def test_many_documents_are_encoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    batch = make_batch([([5, 3], [1]), ([2], [1]), ([4, 4, 4], [1]), ([7], [1]), ([1, 1], [1])])
    source = batch.source, batch.source_mask, batch.source_segments
    assert batch.source.numel() < ENCODED_AT_ONCE
    expected = model.encode(*source)
    sizes: list[int] = []
    model.encoder[0].register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    monkeypatch.setattr("scaleformer.model.transformer.ENCODED_AT_ONCE", 2 * batch.source.shape[1])
    found = model.encode(*source)
    assert sizes == [2, 2, 1]
    for part, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(part, wanted, rtol=0, atol=1e-12)
