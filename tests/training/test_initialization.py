"""`init_from`: training that starts from an existing model; `freeze`: parts of it that do not train."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

from scaleformer.checkpoints.model_file import export_model, load_model
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.model.transformer import Transformer
from scaleformer.training import run as training
from scaleformer.training.initialization import (
    check_tokenizers,
    inherited,
    load_parent,
    tokenizer_settings,
    transfer_weights,
)
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.resume import check_settings, open_checkpoint
from tests.processes import assert_same, finish
from tests.runs import DOCUMENTS, make_run, tokenizer
from tests.trainings import FAST, Command, configure, only_line, weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
OPTIONS = (
    *FAST,
    "trainer.val_check_interval=2",
    "model.dropout=0.1",
    "model.decoder_layers=2",
    "schedule.warmup_steps=1",
)
FROZEN = re.compile(r"model\.(encoder|encoder_norm|decoder\.0|\w+_embedding|output_weight)\b")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run with softmax attention."""
    run = tmp_path_factory.mktemp("parent") / "run"
    training.run(configure(run, cache, *OPTIONS, "model/attention=softmax", "trainer.max_steps=3"))
    return run


def model_of(run: Path, cache: Path, *overrides: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The initial weights, and the notes on them."""
    with SignalWatch() as signals:
        parts = training.build(configure(run, cache, *OPTIONS, *overrides), signals)
    return parts.module.model.state_dict(), parts.notes


def test_a_new_attention_and_more_layers_take_the_weights_that_fit(parent: Path, tmp_path: Path, cache: Path) -> None:
    more = ("model.decoder_layers=3", "model.attention.document_layers=null", "data.synthetic.train=50")
    model, notes = model_of(tmp_path / "run", cache, *more, f"init_from={parent}")
    theirs = load_model(parent).model.state_dict()
    usual, _ = model_of(tmp_path / "usual", cache, *more, "tokenizer.max_segments=1000")
    new = model.keys() - theirs
    assert all(torch.equal(model[name], theirs[name]) for name in model.keys() & theirs)
    assert {name.rpartition(".")[2] for name in new if not name.startswith("decoder.2.")} == {
        "log_gate",
        "salience",
        "relative_embedding",
    }
    assert all(torch.equal(model[name], usual[name]) for name in new)  # initialized as usual
    (note,) = notes
    assert f"{len(model) - len(new)} weights copied; new, initialized as usual: encoder.0.attention.relative" in note
    assert "decoder.1.cross_attention.salience, decoder.2; not used from the parent: none" in note


def test_unused_weights_of_the_parent_are_named(parent: Path, cache: Path, tmp_path: Path) -> None:
    _, (note,) = model_of(
        tmp_path / "run", cache, "model/attention=softmax", "model.decoder_layers=1", f"init_from={parent}"
    )
    assert note.endswith("initialized as usual: none; not used from the parent: decoder.1")


def test_the_gates_of_a_model_of_sentences_begin_shut_for_documents(
    cache: Path, command: Command, tmp_path: Path
) -> None:
    parent, said = tmp_path / "sentences", "a model of sentences: model.attention.shut=true"
    training.run(configure(parent, cache, *OPTIONS, "trainer.max_steps=2", "data.level=segment"))

    def gates(name: str, *more: str, steps: int = 2) -> tuple[dict[str, torch.Tensor], str]:
        place = f"hydra.run.dir={tmp_path / name}", f"init_from={parent}"
        code, out, err = command(*(more or place), f"trainer.max_steps={steps}")
        assert code == 0, err
        model = load_model(tmp_path / name).model.state_dict()
        return {key: weight for key, weight in model.items() if "gate_" in key or "_gate" in key}, out

    with SignalWatch() as signals:
        config = configure(tmp_path, cache, *OPTIONS, f"init_from={parent}", "adapter.rank=2")
        parts = training.build(config, signals, ["init_from=x"])
    assert f"init_from {parent}: {said}" in parts.notes
    trained = {key for key, weight in parts.module.model.named_parameters() if weight.requires_grad}
    assert sum(key.endswith("gate_factor") for key in trained) == 3  # beside adapters, too
    shut = {key: weight for key, weight in parts.module.model.state_dict().items() if key.endswith("gate_factor")}
    assert len(shut) == 3  # of the layer of encoder and of decoder that sees the document
    assert all(weight.sum(1).tolist() == [1, 1] for weight in shut.values())
    assert all(weight[:, weight.shape[1] // 2].tolist() == [1, 1] for weight in shut.values())
    for n, kept in enumerate(("data.level=segment", "model.attention.shut=false")):
        found, out = gates(f"kept{n}", f"hydra.run.dir={tmp_path / f'kept{n}'}", f"init_from={parent}", kept)
        assert all(key.endswith("log_gate") for key in found)
        assert said not in out
    whole, out = gates("whole", steps=4)
    assert said in out
    assert whole.keys() == shut.keys()
    named = f"hydra.run.dir={tmp_path / 'parts'}", f"init_from={parent}", "model/attention=segment_recall"
    gates("parts", *named)
    gates("parts", f"resume={tmp_path / 'parts'}", steps=4)  # keeps to it
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_every_record_of_a_run_holds_the_hash_of_its_parent(parent: Path, cache: Path, tmp_path: Path) -> None:
    run, child = tmp_path / "run", tmp_path / "child"
    options = (*OPTIONS, "trainer.max_steps=2", "test.ter=false", "decoding.max_length_ratio=0.1")
    options += ("trainer.precision=bf16-mixed",)
    training.run(configure(run, cache, *options, "test.enabled=true", f"init_from={parent}"))
    wanted = {"path": str(parent / "checkpoints" / "best.ckpt"), "sha256": load_model(parent).sha256, "parent": None}
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["scaleformer"]["parent"] == wanted
    assert content["global_step"] == 2  # not that of the parent
    assert json.loads((run / "environment.json").read_text(encoding="utf-8"))["starts"][0]["parent"] == wanted
    for name in ("bleu-test", "data"):
        assert json.loads((run / "results" / f"{name}.json").read_text(encoding="utf-8"))["parent"] == wanted
    exported = tmp_path / "exported"
    export_model(load_model(run), exported)
    assert yaml.safe_load((exported / "config.yaml").read_text(encoding="utf-8"))["parent"] == wanted
    training.run(configure(child, cache, *options, f"init_from={exported}"))  # with its own ancestors
    grandchild = open_checkpoint(child)[1]["parent"]
    assert (grandchild["path"], grandchild["parent"]) == (str(exported), wanted)


def test_a_run_resumes_exactly_without_its_parent(parent: Path, cache: Path, tmp_path: Path) -> None:
    own = shutil.copytree(parent, tmp_path / "parent")
    more = (*OPTIONS, "callbacks.ema.decay=0.5", "freeze=[encoder]", f"init_from={own}")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *more, "trainer.max_steps=7"))
    training.run(configure(parts, cache, *more, "trainer.max_steps=3"))
    shutil.rmtree(own)
    training.run(configure(parts, cache, *more, "trainer.max_steps=7", f"resume={parts}"))
    assert_same(whole, parts)
    assert open_checkpoint(parts)[1]["parent"] == open_checkpoint(whole)[1]["parent"] != None  # noqa: E711


@pytest.mark.parametrize(("setting", "value"), [("init_from", None), ("freeze", ["decoder"])])
def test_a_resume_keeps_parent_and_frozen_parts(parent: Path, cache: Path, tmp_path: Path, setting: str, value) -> None:
    config = configure(tmp_path, cache, *OPTIONS, f"init_from={parent}", "freeze=[encoder]")
    package = {"config": config, "step": 0}
    check_settings(package, config)
    with pytest.raises(ValueError, match=rf"resume: {setting}=.*, but the run has {setting}="):
        check_settings(package, {**config, setting: value})


@pytest.mark.parametrize("strategy", ["auto", "ddp", "fsdp"])
def test_frozen_weights_stay_bit_for_bit_and_have_no_state(
    parent: Path, cache: Path, tmp_path: Path, strategy: str
) -> None:
    run, world = tmp_path / "run", 1 if strategy == "auto" else 2
    more = (*OPTIONS, "trainer.max_steps=3", f"init_from={parent}", "freeze=[encoder,embeddings,decoder.0]")
    finish(run, cache, *more, "optimizer.weight_decay=0.5", world=world, strategy=strategy)
    theirs = {f"model.{name}": tensor for name, tensor in load_model(parent).model.state_dict().items()}
    trained = weights(run)
    for name in trained.keys() & theirs:
        assert torch.equal(trained[name], theirs[name]) == bool(FROZEN.match(name)), name
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["optimizer_states"][0]
    free = sum(not FROZEN.match(name) for name in trained)
    assert sum(len(group["params"]) for group in state["param_groups"]) == len(state["state"]) == free
    out = (run / "output.log").read_text(encoding="utf-8")
    total = sum(p.numel() for p in load_model(run).model.parameters())
    assert f"frozen: embeddings, 6,592 of {total:,} parameters ({659200 / total:.1f}%)" in out
    assert f"frozen: total, {sum(t.numel() for n, t in trained.items() if FROZEN.match(n)) - 2 * 6592:,} of" in out
    parts = tmp_path / "parts"
    for steps in (2, 3):
        last = (*more, "optimizer.weight_decay=0.5", f"trainer.max_steps={steps}")
        finish(parts, cache, *last, *([f"resume={parts}"] if steps == 3 else []), world=world, strategy=strategy)
    assert_same(run, parts)


@pytest.mark.parametrize(
    ("pattern", "frozen"),
    [
        ("decoder", r"decoder\.|decoder_norm\."),
        ("embeddings", r"\w+_embedding\."),
        ("decoder.*.cross_attention", r"decoder\.\d+\.cross_attention\."),
        ("*.feed_forward", r"\w+\.\d+\.feed_forward\."),
    ],
)
def test_any_part_may_be_frozen(cache: Path, tmp_path: Path, pattern: str, frozen: str) -> None:
    options = ("model.gradient_checkpointing=true", "trainer.max_steps=1", f"freeze=['{pattern}']")
    before, _ = model_of(tmp_path / "other", cache, *options)
    training.run(configure(tmp_path / "run", cache, *OPTIONS, *options))
    after = weights(tmp_path / "run")
    kept = [name for name in before if re.match(frozen, name)]
    assert kept
    assert all(torch.equal(before[name], after[f"model.{name}"]) for name in kept)
    assert not all(torch.equal(before[name], after[f"model.{name}"]) for name in before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("freeze=[encoder,encodr]",),
            "freeze=encodr: matches no weight: choose from embeddings, encod",
        ),
        (("freeze=[dropout]",), "freeze=dropout: matches no weight"),
        (("freeze=[encoder,decoder,embeddings]",), "freeze=[encoder,decoder,embeddings]: this freezes every weight"),
        (("freeze=encoder",), "freeze is 'encoder': it must be a list of str"),
        (("init_from=nothing",), "init_from: nothing: no such run directory, checkpoint file or exported model"),
        (("init_from={foreign}",), "not a scaleformer checkpoint"),
        (
            ("init_from={parent}", "model.width=32"),
            "output_weight is (412, 16) there and (412, 32) here, source_embedding.weight is (412, 16) there and (412, "
            "32) here, target_embedding.weight is (412, 16) there and (412, 32) here and ",
        ),
        (("init_from={parent}", "model.heads=4"), "has 2 heads, this model has 4: set model.heads=2"),
        (
            ("init_from={parent}", "model.width=32", "model.decoder_layers=1"),
            "more: set model.decoder_layers=2 model.width=16",
        ),
        (
            ("init_from={parent}", "tokenizer.vocab_size=450", "tokenizer.byte_fallback=false"),
            "its tokenizers differ from tokenizer.vocab_size=450, tokenizer.byte_fallback=false: set "
            "tokenizer.vocab_size=412 tokenizer.byte_fallback=true",
        ),
    ],
)
def test_mismatches_are_refused_in_one_line(
    parent: Path, command: Command, tmp_path: Path, monkeypatch, arguments: tuple[str, ...], message: str
) -> None:
    foreign = tmp_path / "foreign.ckpt"
    torch.save({"state_dict": {}}, foreign)
    monkeypatch.chdir(tmp_path)
    given = [argument.format(parent=parent, foreign=foreign) for argument in arguments]
    assert message in only_line(command(f"hydra.run.dir={tmp_path / 'run'}", *given))
    assert not (tmp_path / "run").exists()


def test_untied_weights_do_not_fit_tied_ones(tmp_path: Path) -> None:
    loaded = load_model(make_run(tmp_path / "run"))
    config = loaded.model.config
    apart = Transformer(type(config)(**{**vars(config), "tie_embeddings": False}))
    loaded = type(loaded)(**{**vars(loaded), "model": apart})
    model = Transformer(config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"differ there but are tied here: set model\.tie_embeddings=false"):
        transfer_weights(loaded, model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    untied = Transformer(apart.config)
    assert transfer_weights(load_model(tmp_path / "run"), untied).new == ()
    assert torch.equal(untied.output_weight, load_model(tmp_path / "run").model.output_weight)


def test_separate_tokenizers_do_not_fit_a_joint_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    path = run / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    texts = [text for document in DOCUMENTS for side in ("source", "target") for text in document[side]]
    other = Tokenizer.train(texts, tokenizer().vocab_size, "bpe")
    content["scaleformer"]["target_tokenizer"] = torch.frombuffer(bytearray(other.proto), dtype=torch.uint8)
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"differ from tokenizer\.joint=true: set tokenizer\.joint=false"):
        check_tokenizers(load_parent(str(run)), TokenizerConfig())
    check_tokenizers(load_parent(str(run)), TokenizerConfig(joint=False))


def test_sizes_and_vocabulary_are_those_of_the_parent_unless_given(
    parent: Path, cache: Path, command: Command, tmp_path: Path
) -> None:
    loaded = load_parent(str(parent))
    sizes = asdict(loaded.model.config), tokenizer_settings(loaded)
    config = configure(tmp_path, cache, "model.width=32", "tokenizer.vocab_size=500", f"init_from={parent}")
    taken, (note,) = inherited(config, *sizes, ["init_from=x"])
    assert (taken["model"]["width"], taken["model"]["decoder_layers"], taken["tokenizer"]["vocab_size"]) == (16, 2, 412)
    assert taken["model"]["dropout"] == config["model"]["dropout"]
    assert taken["model"]["attention"] == config["model"]["attention"]  # another one than the parent's
    assert note == f"init_from {parent}: as there: model.decoder_layers=2, model.width=16, tokenizer.vocab_size=412"
    for given in (["model.width=32", "+tokenizer.vocab_size=500"], ["model=small", "tokenizer=separate"]):
        kept, _ = inherited(config, *sizes, given)
        assert (kept["model"]["width"], kept["tokenizer"]["vocab_size"]) == (32, 500)
    same = {**config["model"]["attention"], "near": 5, "algorithm": "quadratic"}
    options, _ = inherited(config, {**taken["model"], "attention": same}, {}, [])
    assert options["model"]["attention"] == {**config["model"]["attention"], "near": 5}

    run = tmp_path / "run"
    places = (f"hydra.run.dir={run}", f"init_from={parent}", "trainer.max_steps=1")
    code, out, err = command(*places)
    assert code == 0, err
    assert "as there: model.decoder_layers=2" in out
    content = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert content["model"]["decoder_layers"] == 2
    code, out, err = command(f"resume={run}", "trainer.max_steps=2")
    assert (code, load_model(run).model.config.decoder_layers) == (0, 2), err
