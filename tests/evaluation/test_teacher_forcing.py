"""Teacher-forced losses against the log-softmax of one example at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from scaleformer.evaluation.length.views import View, Window, views
from scaleformer.evaluation.teacher_forcing import EncodedDocument, loss_by_position, position_bins, token_losses
from tests.helpers import BOS, EOS, SEP, make_model


def make_documents(*segments: int) -> list[EncodedDocument]:
    generator = random.Random(1)

    def side(count: int) -> tuple[tuple[int, ...], ...]:
        return tuple((*(generator.randrange(5, 20) for _ in range(generator.randint(1, 4))), SEP) for _ in range(count))

    return [EncodedDocument(side(count), side(count)) for count in segments]


def slow(model, source: list[int], target: list[int]) -> list[float]:
    """The loss of each target token of one example, from the model's own decoding steps."""
    sources = torch.tensor([[*source, EOS]])
    separators = (sources == SEP).long()
    memory = model.encode(sources, torch.ones_like(sources).bool(), separators.cumsum(1) - separators)
    state, found, count = model.init_state(memory, 1), [], 0
    for given, wanted in zip([BOS, *target], [*target, EOS], strict=True):
        count += given == SEP
        logits, state = model.step(torch.tensor([given]), torch.tensor([count]), state)
        found.append(-float(logits.double().log_softmax(1)[0, wanted]))
    return found


@pytest.mark.parametrize("attention", ["scaleformer", "segment_recall", "softmax"])
@pytest.mark.parametrize("mode", ["pass", "segments", "window"])
@torch.inference_mode()
def test_every_token_of_the_document_once(attention, mode):
    model = make_model(attention={"name": attention})
    documents = make_documents(5, 1, 3)
    seen = [views(mode, [len(s) for s in d.source], Window("segments", 2, 1)) for d in documents]
    found = token_losses(model, documents, seen, batch_tokens=60)
    for document, of_one, loss in zip(documents, seen, found, strict=True):
        expected: list[float] = []
        for view in of_one:
            context = sum(len(s) for s in document.target[view.start : view.new])
            sides = [
                [t for s in side[view.start : view.stop] for t in s] for side in (document.source, document.target)
            ]
            own = slow(model, *sides)[context:]
            expected += own if view.stop == len(document.target) else own[:-1]
        assert len(loss) == sum(len(s) for s in document.target) + 1
        np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)


def test_the_batch_budget_changes_nothing():
    model, documents = make_model(), make_documents(4, 2, 7, 1)
    seen = [[View(0, 0, len(d.source))] for d in documents]
    shares: list[float] = []
    alone = token_losses(model, documents, seen, batch_tokens=1, progress=lambda share, tokens: shares.append(share))
    together = token_losses(model, documents, seen, batch_tokens=10_000)
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (4, 1.0)


def test_damaged_weights_are_reported():
    model = make_model()
    with torch.no_grad():
        model.output_weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        token_losses(model, make_documents(2), [[View(0, 0, 2)]])


def test_the_curve_by_hand():
    assert position_bins(10) == [(0, 16)]
    assert position_bins(40) == [(0, 16), (16, 23), (23, 32), (32, 45)]
    curve = loss_by_position([np.arange(20.0), np.full(16, 2.0)])
    assert [(c["documents"], c["interval"] is None) for c in curve] == [(2, False), (1, True)]
    assert [(c["from"], c["to"], c["tokens"]) for c in curve] == [(0, 16, 32), (16, 23, 4)]
    assert curve[0]["nats_per_token"] == pytest.approx((7.5 + 2) / 2)
    assert curve[1]["nats_per_token"] == pytest.approx(17.5)
