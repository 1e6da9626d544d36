"""The module: its losses, its logs, and trainer options that must take effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import Callback
from torch.nn.functional import cross_entropy

from scaleformer.training.metrics_csv import MetricsCsv
from scaleformer.training.module import TranslationModule
from tests.trainings import Batches, make_module, make_trainer, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


def test_losses_match_torch_with_label_smoothing_in_training_only(tmp_path: Path) -> None:
    module, batches = make_module(label_smoothing=0.2), Batches(1)
    (batch,) = batches
    logits = module.model.logits(module.model(batch))[batch.target_mask]
    targets = batch.target_output[batch.target_mask]
    smoothed, plain = cross_entropy(logits, targets, label_smoothing=0.2), cross_entropy(logits, targets)
    trainer = make_trainer(tmp_path, max_steps=1, val_check_interval=1)
    trainer.validate(module, batches, verbose=False)
    torch.testing.assert_close(trainer.callback_metrics["val/loss"], plain)
    trainer.fit(module, batches)
    torch.testing.assert_close(trainer.callback_metrics["train/loss"], smoothed)


def test_the_validation_loss_is_a_mean_over_tokens(tmp_path: Path) -> None:
    module, batches = make_module(), Batches(3)
    trainer = make_trainer(tmp_path)
    trainer.validate(module, batches, verbose=False)
    total = tokens = 0.0
    for batch in batches:
        logits = module.model.logits(module.model(batch))[batch.target_mask]
        total += cross_entropy(logits, batch.target_output[batch.target_mask], reduction="sum").item()
        tokens += int(batch.target_mask.sum())
    assert float(trainer.callback_metrics["val/loss"]) == pytest.approx(total / tokens, rel=1e-5)


def test_one_row_per_step_for_training_and_validation(tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path, logger=[MetricsCsv(tmp_path)], max_steps=5, val_check_interval=2, log_every_n_steps=2
    )
    trainer.fit(make_module(), Batches(5), Batches(1))
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == ["2", "4"]
    assert all(row["train/loss"] and row["val/loss"] and row["train/gradient_norm"] for row in rows)
    assert [float(row["train/learning_rate"]) for row in rows] == pytest.approx([0.01, 0.01])


class Spy(Callback):
    """Records the dtype of the decoder's states."""

    def __init__(self) -> None:
        self.dtypes: set[torch.dtype] = set()

    def on_fit_start(self, trainer, pl_module) -> None:
        layer = pl_module.model.decoder[0].feed_forward.expand
        layer.register_forward_hook(lambda _module, _input, output: self.dtypes.add(output.dtype))


def fit(folder: Path, module: TranslationModule, **options) -> tuple[Spy, float]:
    spy = Spy()
    trainer = make_trainer(folder, [spy], **options)
    trainer.fit(module, Batches(4))
    return spy, float(trainer.callback_metrics["train/loss"])


def gradient(module: TranslationModule) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def test_accumulated_gradients_average_over_all_tokens(tmp_path: Path) -> None:
    trained = make_module()
    options = {"max_steps": 1, "accumulate_grad_batches": 2, "gradient_clip_val": None}
    _, logged = fit(tmp_path, trained, **options)
    module, losses = make_module(), []
    for batch in Batches(2):
        loss, tokens = module._loss(batch, 0.1)
        losses.append((loss * tokens, tokens))
    mean = sum(loss for loss, _ in losses) / sum(tokens for _, tokens in losses)
    mean.backward()
    torch.testing.assert_close(gradient(trained), gradient(module))
    assert logged == pytest.approx(mean.item(), rel=1e-6)
    assert len({tokens for _, tokens in losses}) == 2  # so that the mean over tokens differs from the mean of means


def test_a_penalty_weighs_as_much_as_the_loss_per_token(tmp_path: Path) -> None:
    """For any number of tokens in a batch and of batches in a step."""
    options = {"max_steps": 1, "gradient_clip_val": None}
    for batches in (1, 4):
        spans = []
        for penalty in (0.0, 0.25):
            sites = {"encoder": {"name": "adaptive_span", "max_span": 8, "ramp": 2, "penalty": penalty}}
            module = make_module(sites=sites)
            fit(tmp_path, module, accumulate_grad_batches=batches, **options)
            spans.append(module.model.encoder[0].attention.span.grad)
        torch.testing.assert_close(spans[1] - spans[0], torch.full((2,), 0.25 * 8 / 2), rtol=1e-4, atol=1e-5)


def test_a_batch_without_target_tokens_has_no_weight(tmp_path: Path) -> None:
    (batch,) = Batches(1)
    filler = replace(batch, target_mask=torch.zeros_like(batch.target_mask), ids=())
    gradients, losses = [], []
    for batches in ([batch], [batch, filler]):
        module = make_module()
        trainer = make_trainer(tmp_path, max_steps=1, accumulate_grad_batches=len(batches))
        trainer.fit(module, Batches(0, batches))
        gradients.append(gradient(module))
        trainer.validate(module, Batches(0, batches), verbose=False)
        losses.append(float(trainer.callback_metrics["val/loss"]))
    torch.testing.assert_close(gradients[1], gradients[0])
    assert losses[1] == losses[0]


def test_a_step_of_fillers_changes_nothing(tmp_path: Path) -> None:
    (batch,) = Batches(1)
    module = make_module()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    filler = replace(batch, target_mask=torch.zeros_like(batch.target_mask), ids=())
    make_trainer(tmp_path, max_steps=1).fit(module, Batches(0, [filler]))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_gradient_checkpointing_changes_only_memory(tmp_path: Path) -> None:
    plain, module = make_module(), make_module(gradient_checkpointing=True)
    _, loss = fit(tmp_path, plain)
    _, same_loss = fit(tmp_path, module)
    assert same_loss == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(gradient(module), gradient(plain))


def test_gradient_checkpointing_runs_the_layers_twice() -> None:
    calls = []
    for checkpointing in (False, True):
        module = make_module(gradient_checkpointing=checkpointing).train()
        calls.append(0)
        module.model.encoder[0].register_forward_pre_hook(lambda *_: calls.append(calls.pop() + 1))
        module._loss(next(iter(Batches(1))), 0.0)[0].backward()
    assert calls == [1, 2]


def test_bf16_mixed_computes_in_bf16_and_keeps_weights_in_fp32(tmp_path: Path) -> None:
    module = make_module()
    spy, loss = fit(tmp_path, module, precision="bf16-mixed")
    assert spy.dtypes == {torch.bfloat16}
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    _, exact = fit(tmp_path, make_module())
    assert loss == pytest.approx(exact, rel=0.02)
    assert loss != exact


def test_clipping_bounds_the_step_not_the_logged_norm(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=1, gradient_clip_val=1e-3)
    module = make_module()
    trainer.fit(module, Batches(1))
    norm = torch.nn.utils.get_total_norm([p.grad for p in module.parameters()])
    assert float(norm) == pytest.approx(1e-3, rel=1e-2)
    assert float(trainer.callback_metrics["train/gradient_norm"]) > 0.1
