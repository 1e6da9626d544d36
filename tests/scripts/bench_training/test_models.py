"""Models and documents of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml

from scaleformer.vocabulary import BOS, EOS, SEP
from scripts.bench_training.models import OPTIONS, Sizes, available_memory, make_batch, make_model


def test_documents_are_batches_as_in_training() -> None:
    batch = make_batch(2, 11, 4, 50, torch.Generator().manual_seed(1))
    assert batch.source.shape == batch.target_input.shape == (2, 11)
    for side in (batch.source, batch.target_output):
        assert (side == SEP).nonzero()[:, 1].tolist() == 2 * [3, 7, 9]
        assert (side == EOS).nonzero()[:, 1].tolist() == 2 * [10]
    assert batch.target_input[:, 0].tolist() == [BOS, BOS]
    assert batch.target_input[:, 1:].equal(batch.target_output[:, :-1])
    assert batch.source_segments[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3]
    assert batch.target_segments[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3]
    assert batch.source_mask.all()
    assert batch.target_mask.all()


def test_models_have_the_sizes() -> None:
    model = make_model("softmax", Sizes(layers=1, width=8, feedforward=12, heads=2, vocabulary=30))
    assert model.output_weight.shape == (30, 8)
    assert len(model.encoder_layers) == len(model.decoder_layers) == 1


def test_attentions_have_the_options_that_trainings_have() -> None:
    for name, options in OPTIONS.items():
        shipped = yaml.safe_load((Path("conf/model/attention") / f"{name}.yaml").read_text(encoding="utf-8"))
        assert options.items() <= shipped.items()


def test_some_memory_is_free() -> None:
    assert available_memory() > 0
