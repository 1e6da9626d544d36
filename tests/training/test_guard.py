"""Bad steps are skipped, counted, and reported when there are too many."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.training.guard import CALM, StepGuard, name_documents
from scaleformer.training.module import TranslationModule
from tests.trainings import Batches, make_module, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


class Wrong(TranslationModule):
    """A module with a given loss, or infinite gradients, in some steps."""

    wrong: dict[int, float] = {}  # noqa: RUF012
    gradients_alone = False

    def _loss(self, batch: Batch, label_smoothing: float) -> tuple[torch.Tensor, int]:
        loss, tokens = super()._loss(batch, label_smoothing)
        value = self.wrong.get(self.trainer.global_step, 0.0)
        if self.gradients_alone and value:
            loss.register_hook(lambda gradient: gradient * value)
            return loss, tokens
        return loss + value, tokens


def fit(folder: Path, wrong: dict[int, float], gradients: bool = False, most: int = 10, **options) -> TranslationModule:
    module = make_module()
    module.__class__ = Wrong
    module.wrong, module.gradients_alone = wrong, gradients  # type: ignore[assignment]
    module.guard = StepGuard(most)
    make_trainer(folder, **{"gradient_clip_val": 1.0, **options}).fit(module, Batches(4))
    return module


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
@pytest.mark.parametrize("gradients", [False, True], ids=["loss", "gradients"])
def test_a_bad_step_is_skipped_and_counted(tmp_path: Path, caplog, value: float, gradients: bool) -> None:
    with caplog.at_level(logging.WARNING):
        module = fit(tmp_path, {3: value}, gradients)
    assert module.guard.skipped == 1
    before = fit(tmp_path, {}, max_steps=3)
    assert all(torch.equal(before.state_dict()[name], tensor) for name, tensor in module.state_dict().items())
    assert module.trainer.global_step == 4
    assert float(module.trainer.callback_metrics["train/skipped_steps"]) == 1
    (message,) = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert message.startswith("step 4: loss")
    assert "documents 0, 1: skipped (1 in a row)" in message


def test_training_continues_after_bad_steps(tmp_path: Path) -> None:
    module = fit(tmp_path, {0: math.nan, 2: math.nan}, most=1)
    assert (module.guard.skipped, module.guard.in_a_row) == (2, 0)
    assert all(torch.isfinite(p).all() for p in module.parameters())


def test_too_many_bad_steps_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"more than callbacks\.max_bad_steps=1") as error:
        fit(tmp_path, {1: math.nan, 2: math.nan, 3: math.nan}, most=1)
    message = str(error.value)
    assert re.match(
        r"step 3: loss nan, gradient norm [\d.]+; documents 0, 1; largest gradients: model\.\S+ [\d.]+, ", message
    )
    assert "lower optimizer.learning_rate" in message


def test_a_spike_is_reported_once_the_loss_is_calm(caplog) -> None:
    guard = StepGuard()
    with caplog.at_level(logging.WARNING):
        guard.good(1, 50.0, ["early"])
        for step in range(2, CALM + 400):
            guard.good(step, 2 + 0.1 * (step % 2), [f"d{step}"])
        assert not caplog.records
        guard.good(500, 4.0, ["odd", "one"])
    assert guard.spikes == 1
    assert "step 500: loss 4 is far above the recent 2.0" in caplog.text
    assert "documents odd, one" in caplog.text


def test_the_guard_is_in_the_checkpoint() -> None:
    guard, again = StepGuard(), StepGuard()
    guard.bad(1, math.nan, 1.0, ["a"], "none")
    guard.good(2, 3.0, ["a"])
    again.load_state_dict(guard.state_dict())
    assert vars(again) == vars(guard)


def test_long_lists_of_documents_are_shortened() -> None:
    assert name_documents([str(n) for n in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert name_documents([]) == "unknown"
