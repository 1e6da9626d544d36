"""Models that translate as one: against the averages of their own probabilities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS, consumed
from tests import runs
from tests.runs import DOCUMENTS, make_run
from tests.search import batch

SOURCE = [document["source"] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """With different attentions, whose states differ."""
    folder = tmp_path_factory.mktemp("ensemble")
    kinds = ({"name": "scaleformer"}, {"name": "softmax"})
    return [make_run(folder / kind["name"], attention=kind) for kind in kinds]


@pytest.mark.parametrize("average", ["probabilities", "logs"])
def test_probabilities_are_averaged_along_every_hypothesis(paths, average):
    """With a beam, which reorders rows, and documents that end at different steps."""
    ensemble = Translator.load(paths, "cpu", ensemble=average)
    models = [Translator.load(path, "cpu").model for path in paths]
    vocabulary = ensemble.source_tokenizer
    sources = [[*vocabulary.encode_segments(segments), EOS] for segments in SOURCE]
    config = DecodingConfig(beam_size=3, n_best=2, max_length_ratio=0.3, max_length_offset=3)
    for source, found in zip(sources, decode(ensemble.model, *batch(*sources), config), strict=True):
        for hypothesis in found:
            tokens = torch.tensor([BOS, *hypothesis.tokens])
            segments = consumed(tokens).cumsum(0)
            logs = []
            for model in models:
                state, steps = model.init_state(model.encode(*batch(source)), 1), []
                for place in range(len(tokens)):
                    logits, state = model.step(tokens[[place]], segments[[place]], state)
                    steps.append(logits.log_softmax(1)[0])
                logs.append(torch.stack(steps))  # (L, V)
            both = torch.stack(logs)
            mean = both.exp().mean(0).log() if average == "probabilities" else both.mean(0).log_softmax(1)
            expected = mean.gather(1, torch.tensor([*hypothesis.tokens, EOS])[:, None]).sum()
            assert hypothesis.log_probability == pytest.approx(expected.item(), rel=1e-4)


def test_a_model_twice_is_the_model(paths):
    settings = {"strategy": "beam", "beam_size": 2}
    twice, once = Translator.load([paths[0]] * 2, "cpu"), Translator.load([paths[0]], "cpu")
    assert twice.translate(SOURCE, **settings) == once.translate(SOURCE, **settings)
    known = {"fixed": [{0: "die katze sieht"}, {}, {1: "ein baum"}], **settings}  # in a cache of each model
    assert twice.translate(SOURCE, **known) == once.translate(SOURCE, **known)
    assert twice.translate(SOURCE, **known) != twice.translate(SOURCE, **known, cache="none")
    assert once.sha256 == Translator.load(paths[0], "cpu").sha256 != twice.sha256


def test_what_is_no_ensemble_is_one_line(paths, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="ensemble is 'mean': it must be one of probabilities, logs"):
        Translator.load(paths, "cpu", ensemble="mean")
    other = Tokenizer.train([text[::-1] for d in DOCUMENTS for side in ("source", "target") for text in d[side]], 302)
    monkeypatch.setattr(runs, "tokenizer", lambda: other)
    path = make_run(tmp_path / "other")
    with pytest.raises(ValueError, match=r"other/checkpoints/best\.ckpt: its source vocabulary differs from that of"):
        Translator.load([paths[0], path], "cpu")
