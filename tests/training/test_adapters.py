"""`adapter.rank`: small matrices that train beside the weights of a parent, which stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from scaleformer.checkpoints.model_file import export_model, load_model
from scaleformer.model.adapter import AdapterConfig, add_adapters, merge_adapters
from scaleformer.model.transformer import Transformer
from scaleformer.training import run as training
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.settings import read_settings
from tests.helpers import make_batch
from tests.processes import assert_same
from tests.runs import make_run, tokenizer
from tests.trainings import FAST, configure, make_module, weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
SIZES = ("model.encoder_layers=1", "model.decoder_layers=1", f"tokenizer.vocab_size={tokenizer().vocab_size}")
OPTIONS = (*FAST, *SIZES, "model/attention=softmax", "model.dropout=0.1", "adapter.rank=2", "adapter.alpha=6")
SITES = ("encoder.0.attention", "decoder.0.attention", "decoder.0.cross_attention")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return make_run(tmp_path / "parent", attention={"name": "softmax"})


def test_a_model_begins_as_its_parent_and_learns_what_the_parent_lacks(
    parent: Path, tmp_path: Path, cache: Path
) -> None:
    more = ("model/attention=segment_recall", f"init_from={parent}", "freeze=[encoder]")
    with SignalWatch() as signals:
        parts = training.build(configure(tmp_path / "run", cache, *OPTIONS, *more), signals)
    model, theirs = parts.module.model, load_model(parent).model.state_dict()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    new = {"relative_embedding", "log_gate", "salience"}
    assert {name.rpartition(".")[2] for name in trained} == {"down_weight", "up_weight"} | new
    assert not any(name.startswith("encoder") for name in trained)
    free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert parts.notes[-1] == f"adapter.rank=2: {free:,} parameters train, the parent's stay"
    merge_adapters(model)
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in theirs.items())


def test_a_run_resumes_exactly_and_its_checkpoints_hold_no_weight_of_the_parent(
    parent: Path, tmp_path: Path, cache: Path
) -> None:
    more = (*OPTIONS, f"init_from={parent}", "callbacks.ema.decay=0.5", "optimizer.weight_decay=0.5")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *more, "trainer.max_steps=5", "test.enabled=true", "test.ter=false"))
    training.run(configure(parts, cache, *more, "trainer.max_steps=2"))
    training.run(configure(parts, cache, *more, "trainer.max_steps=5", f"resume={parts}"))
    assert_same(whole, parts)
    assert (whole / "results" / "bleu-test.json").is_file()
    theirs, adapters = load_model(parent).model.state_dict(), weights(whole)
    places = [f"{site}.{one}" for site in SITES for one in ("query", "key", "value", "output")]
    matrices = ("down_weight", "up_weight")
    wanted = {f"model.{place}.parametrizations.weight.0.{matrix}" for place in places for matrix in matrices}
    assert adapters.keys() == weights(whole, "current_model_state").keys() == wanted
    found = load_model(whole / "checkpoints" / "last.ckpt").model.state_dict()
    for name, weight in theirs.items():  # W + 6 / 2 B A, and all others bit for bit
        module = f"model.{name.removesuffix('.weight')}.parametrizations.weight.0"
        if name.removesuffix(".weight") in places:
            weight = weight + 3.0 * (adapters[f"{module}.up_weight"] @ adapters[f"{module}.down_weight"])
            assert not torch.equal(found[name], theirs[name])
        assert torch.equal(found[name], weight), name

    exported = tmp_path / "exported"
    export_model(load_model(whole), exported)
    best = load_model(whole).model.state_dict()
    checkpoint = parent / "checkpoints" / "best.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"]["model.output_weight"][0] += 1
    torch.save(content, checkpoint)
    with pytest.raises(ValueError, match=r"last\.ckpt: its adapters belong to another .*best\.ckpt: its sha256 was "):
        load_model(whole / "checkpoints" / "last.ckpt")
    shutil.rmtree(parent)
    for broken in (load_model, lambda run: training.run(configure(run, cache, *more, f"resume={run}"))):
        with pytest.raises(ValueError, match=r"its adapters need their parent: .*parent.*: no such .* put it back"):
            broken(whole)
    alone = load_model(exported).model.state_dict()
    assert all(torch.equal(alone[name], weight) for name, weight in best.items())


def test_adapters_of_an_imported_model(tmp_path: Path, cache: Path) -> None:
    from tests.public_models import make

    make(tmp_path / "marian", "marian")
    options = (*FAST, "adapter.rank=2", "trainer.max_steps=2", f"init_from={tmp_path / 'marian'}")
    start = training.Start("", ["init_from=", "adapter.rank="], {"hydra": {"runtime": {"choices": {"experiment": ""}}}})
    training.run(configure(tmp_path / "run", cache, *options), start)
    theirs, own = load_model(tmp_path / "marian").model, load_model(tmp_path / "run").model
    assert own.config.separate_segments
    differing = {name for name, w in theirs.state_dict().items() if not torch.equal(w, own.state_dict()[name])}
    assert len(differing) == 4 * (2 + 2 * 3)  # the projections' weights, without their biases
    assert not any("feed_forward" in name or "norm" in name or "embedding" in name for name in differing)


@pytest.mark.parametrize("attention", ["segment_recall", "reformer", "compressive"])
def test_every_reader_of_a_weight_sees_its_adapter(attention: str) -> None:
    module = make_module(attention={"name": attention, "fallback": "softmax"})
    model: Transformer = module.model.eval()
    add_adapters(model, {"source_embedding.weight"}, AdapterConfig(rank=3))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("up_weight"):
                parameter.normal_()
    batch = make_batch([([3, 5, 7, 9], [4, 6]), ([5, 8], [2, 7, 9])], seeds=[1, 2])

    def logits() -> torch.Tensor:
        encoded = model.encode(batch.source, batch.source_mask, batch.source_segments)
        state, steps = model.init_state(encoded, 1), []
        for n in range(batch.target_input.shape[1]):
            step, state = model.step(batch.target_input[:, n], batch.target_segments[:, n], state)
            steps.append(step)
        return torch.stack([model.logits(model(batch)), torch.stack(steps, 1)])  # (2, B, L, V)

    with torch.inference_mode():
        before = logits()
        merge_adapters(model)
        torch.testing.assert_close(logits(), before, rtol=1e-5, atol=1e-5)
    assert not [name for name in model.state_dict() if "parametrizations" in name]


def test_a_parent_is_found_after_a_resume_in_another_folder(
    parent: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    training.run(configure(run, cache, *OPTIONS, f"init_from={parent.name}", "trainer.max_steps=1"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for steps in (2, 3):
        training.run(
            configure(run, cache, *OPTIONS, f"init_from={parent.name}", f"trainer.max_steps={steps}", f"resume={run}")
        )
        assert load_model(run).parent["path"] == str(parent / "checkpoints" / "best.ckpt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("adapter.rank=8",), "adapter.rank is 8: this trains small matrices beside a model that stays: add init_from"),
        (
            ("adapter.rank=8", "init_from=x", "tokenizer.extend=y"),
            ".* stays: leave tokenizer.extend out, or set adapter.",
        ),
        (("adapter.rank=-1",), "adapter.rank is -1: it must be an int of at least 0"),
        (("adapter.rank=1", "adapter.alpha=0"), "adapter.alpha is 0: it must be a float above 0"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}.*$"):
        read_settings(configure(tmp_path, tmp_path, *arguments))
