"""What validation translates, and the BLEU of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.metrics import Metrics
from scaleformer.training.callbacks import ValidationBleu
from tests.helpers import make_batch
from tests.trainings import Batches, Words, make_module, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


class Perfect:
    """Replaces `decode`: knows the translations of some batches, and records which sources it got together."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.decoded: list[list[str]] = []
        self.known = {
            tuple(row.tolist()): (tuple(segments.tolist()), name, target[real].tolist())
            for batch in batches
            for row, segments, name, target, real in zip(
                *unpadded(batch.source, batch.source_segments, batch.source_mask),
                batch.ids,
                batch.target_output,
                batch.target_mask,
                strict=True,
            )
        }

    def __call__(self, model, source, mask, segments, decoding) -> list[list[Any]]:
        self.decoded.append([])
        rows = []
        for row, own in zip(*unpadded(source, segments, mask), strict=True):
            known, name, target = self.known[tuple(row.tolist())]
            assert tuple(own.tolist()) == known
            self.decoded[-1].append(name)
            rows.append([SimpleNamespace(tokens=target)])
        return rows


def unpadded(source: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> tuple[list[torch.Tensor], ...]:
    return tuple([row[real] for row, real in zip(rows, mask, strict=True)] for rows in (source, segments))


def sorted_batches(rows: int, count: int) -> list[Batch]:
    """Batches of named examples, from short to long."""
    batches = []
    for i in range(count):
        numbers = range(i * rows, (i + 1) * rows)
        batch = make_batch([([2 + n // 4, 2], [3]) for n in numbers], list(numbers))
        batches.append(replace(batch, ids=tuple(f"d{n}" for n in numbers)))
    return batches


def translated(examples: int, batches: list[Batch], monkeypatch, rank: int = 0, world: int = 1) -> list[list[str]]:
    """The names that one process of `world` translates, call by call."""
    perfect = Perfect(batches)
    monkeypatch.setattr("scaleformer.training.callbacks.decode", perfect)
    names = [name for batch in batches for name in batch.ids]
    bleu = ValidationBleu(Words(*names), examples, DecodingConfig(), Metrics("none"))  # type: ignore[arg-type]
    trainer: Any = SimpleNamespace(sanity_checking=False, world_size=1)
    module, logged = make_module(), []
    monkeypatch.setattr(module, "log_dict", lambda scores, **_: logged.append(scores))
    for batch in batches[rank::world]:
        bleu.on_validation_batch_end(trainer, module, None, batch, 0)
    bleu.on_validation_epoch_end(trainer, module)
    assert [scores["val/bleu"] for scores in logged] == pytest.approx([100])
    assert bleu.waiting == bleu.translated == []
    return perfect.decoded


def test_validation_bleu_samples_all_lengths(monkeypatch) -> None:
    batches = sorted_batches(5, 16)
    calls = translated(12, batches, monkeypatch)
    names = list(chain(*calls))
    assert len(names) == len(set(names)) == 12
    assert {4 * int(name[1:]) // 80 for name in names} == {0, 1, 2, 3}  # in every quarter
    assert translated(12, batches, monkeypatch) == calls  # the same in every validation
    assert all(len(call) <= 5 for call in calls)
    assert len(calls) <= 4  # not one by one
    two = [translated(12, batches, monkeypatch, rank=rank, world=2) for rank in range(2)]
    assert sorted(chain(*two[0], *two[1])) == sorted(names)


@pytest.mark.parametrize("examples", [20, 21])
def test_validation_bleu_of_all_examples_keeps_the_batches(monkeypatch, examples: int) -> None:
    batches = sorted_batches(5, 4)
    assert translated(examples, batches, monkeypatch) == [list(batch.ids) for batch in batches]


def test_validation_bleu_counts_examples_of_one_name(monkeypatch) -> None:
    batches = [replace(batch, ids=batch.ids[::2] * 2) for batch in sorted_batches(4, 5)]
    assert len(list(chain(*translated(6, batches, monkeypatch)))) == 6


def test_validation_bleu_of_perfect_and_limited_translations(tmp_path: Path, monkeypatch) -> None:
    for examples, expected in ((1, [1]), (10, [2])):
        perfect = Perfect(Batches(1))
        monkeypatch.setattr("scaleformer.training.callbacks.decode", perfect)
        bleu = ValidationBleu(Words(), examples, DecodingConfig(), Metrics("none"))  # type: ignore[arg-type]
        trainer = make_trainer(tmp_path, [bleu])
        trainer.validate(make_module(), Batches(1), verbose=False)
        assert [len(call) for call in perfect.decoded] == expected
        assert float(trainer.callback_metrics["val/bleu"]) == pytest.approx(100)
        assert float(trainer.callback_metrics["val/chrf"]) == pytest.approx(100)
        assert not bleu.translated
