"""Memory carried from one example of a document to the next, in trainings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.training import run as training
from scaleformer.training.carried_memory import CarriedMemory, check_consecutive
from scaleformer.training.module import TranslationModule
from tests.data.toy import module as make_data
from tests.trainings import FAST, Batches, configure, make_module, make_trainer, read_metrics, weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
TIMES = ("train/tokens_per_second", "train/data_share")
CHOICE = {"name": "transformer_xl", "piece": 4, "memory": 4, "fallback": "softmax"}
OPTIONS = (
    *FAST,
    "model/attention=transformer_xl",
    "model.attention.piece=8",
    "model.attention.memory=8",
    "data.consecutive=true",
    "data.max_tokens=40",
    "trainer.val_check_interval=2",
)


def test_a_killed_run_resumes_exactly(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of documents, so that what is carried counts; and forgetting it changes the weights."""
    options = (*OPTIONS, "model.dropout=0.1", "trainer.max_steps=6")
    whole, parts, forgetful = tmp_path / "whole", tmp_path / "parts", tmp_path / "forgetful"
    continued = []
    step = TranslationModule.training_step

    def noted(self: TranslationModule, batch: Batch, index: int) -> torch.Tensor:
        assert batch.continues is not None
        continued.append(bool(batch.continues.any()))
        return step(self, batch, index)

    def killed(self: TranslationModule, batch: Batch, index: int) -> torch.Tensor:
        if self.global_step == 4:
            raise KeyError("killed")
        return step(self, batch, index)

    monkeypatch.setattr(TranslationModule, "training_step", noted)
    training.run(configure(whole, cache, *options))
    assert continued[3]  # the first step after the checkpoint
    for folder in (parts, forgetful):
        monkeypatch.setattr(TranslationModule, "training_step", killed)
        with pytest.raises(KeyError, match="killed"):
            training.run(configure(folder, cache, *options))
        assert weights(folder, "global_step") == 3
        monkeypatch.setattr(TranslationModule, "training_step", step)
        if folder is forgetful:
            monkeypatch.setattr(CarriedMemory, "on_load_checkpoint", lambda *_: None)
        training.run(configure(folder, cache, *options, f"resume={folder}"))
    assert read_metrics(parts, *TIMES) == read_metrics(whole, *TIMES)
    expected = weights(whole)
    assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts).items())
    assert any(not torch.equal(expected[name], tensor) for name, tensor in weights(forgetful).items())


def test_gradient_checkpointing_reads_what_the_batch_before_left(tmp_path: Path) -> None:
    batches = [
        Batch(**{**vars(batch), "continues": torch.tensor([number > 0, number == 2])})
        for number, batch in enumerate(Batches(3))
    ]
    found = []
    for checkpointing in (False, True):
        module = make_module(attention=CHOICE, gradient_checkpointing=checkpointing, decoder_layers=2)
        trainer = make_trainer(tmp_path, max_steps=3, callbacks=[CarriedMemory()])
        trainer.fit(module, Batches(0, batches), Batches(1))
        found.append(module.state_dict())
    assert all(torch.equal(found[0][name], weight) for name, weight in found[1].items())
    module = make_module(attention=CHOICE, decoder_layers=2)
    alone = [Batch(**{**vars(batch), "continues": None}) for batch in batches]
    make_trainer(tmp_path, max_steps=3).fit(module, Batches(0, alone))
    assert any(not torch.equal(found[0][name], weight) for name, weight in module.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("model/attention=softmax",), "the decoder's attention carries no memory"),
        (("data.streaming=true",), "does not work with data.streaming"),
        (("data.level=segment",), "does not work with data.level"),
        (("data.join_segments=[1,2]",), "does not work with data.join_segments"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_consecutive_does_not_work_with(
    tmp_path: Path, cache: Path, change: tuple[str, ...], message: str
) -> None:
    options = OPTIONS[:-1] if change[0] != "model/attention=softmax" else (*FAST, *OPTIONS[-3:-1])
    with pytest.raises(ValueError, match=message):
        training.build(configure(tmp_path / "run", cache, *options, *change), training.SignalWatch())


def test_several_processes_are_refused(cache: Path) -> None:
    data = make_data(cache, consecutive=True)
    model = make_module(attention=CHOICE).model
    check_consecutive(model, data, 1)
    with pytest.raises(ValueError, match=r"trainer\.devices times trainer\.num_nodes is 2: make it 1"):
        check_consecutive(model, data, 2)
