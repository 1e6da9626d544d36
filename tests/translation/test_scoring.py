"""Losses of given targets against the decoding steps of one example at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scaleformer.data.batching import Example
from scaleformer.decoding.ensemble import Ensemble
from scaleformer.translation.scoring import target_losses
from tests.helpers import BOS, EOS, SEP, make_model
from tests.search import batch


@pytest.mark.parametrize("budget", [1, 10_000])
@pytest.mark.parametrize("average", [None, "probabilities", "logs"])
@torch.inference_mode()
def test_losses_are_those_of_the_steps(average: str | None, budget: int) -> None:
    """Of the target's own tokens, and of one token at every position."""
    models = [make_model(attention={"name": name, "horizon": 3}) for name in ("segment_recall", "scaleformer")]
    model = models[0] if average is None else Ensemble(models, average).eval()
    sources = [[9, SEP, 10, 11, SEP, EOS], [12, SEP, EOS]]
    targets = [(0, [9, 10, SEP, EOS]), (0, [10, EOS]), (0, [EOS]), *[(1, [11, 12, 13, SEP, 9, EOS])] * 3]
    examples = [Example("", np.array(sources[n]), np.array(target), True) for n, target in targets]
    other = [10, 9, 11, 12, 9, EOS]
    found, wanted = (target_losses(model, examples, budget, other=tokens) for tokens in (None, other))
    for (n, target), token, own, second in zip(targets, other, found, wanted, strict=True):
        state, segment, logs = model.init_state(model.encode(*batch(sources[n])), 1), 0, []
        for read in (BOS, *target[:-1]):
            segment += read == SEP
            logits, state = model.step(torch.tensor([read]), torch.tensor([segment]), state)
            logs.append(logits[0].double().log_softmax(0))
        np.testing.assert_allclose(own, [-float(log[t]) for log, t in zip(logs, target, strict=True)], atol=1e-5)
        np.testing.assert_allclose(second, [-float(log[token]) for log in logs], atol=1e-5)
