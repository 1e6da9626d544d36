"""`tokenizer.extend`: training that starts from a model with new pieces in its vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.checkpoints.model_file import load_model
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.training import run as training
from scaleformer.training.interruption import SignalWatch
from scaleformer.translation.translator import Translator
from tests.processes import assert_same
from tests.trainings import FAST, Command, configure, only_line

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
OPTIONS = (*FAST, "trainer.val_check_interval=2", "schedule.warmup_steps=1")
TERMS = ["kubernetes", "猫", "machine learning"]
PIECES = ["▁kubernetes", "猫", "▁machine▁learning"]
SIDES = {
    "joint": (),
    "untied": ("model.tie_embeddings=false",),
    "separate": ("tokenizer.joint=false", "tokenizer.vocab_size=390"),
    "bpe": ("tokenizer.model_type=bpe",),
}


@pytest.fixture(scope="module", params=SIDES)
def parent(tmp_path_factory: pytest.TempPathFactory, cache: Path, request: pytest.FixtureRequest) -> Path:
    run = tmp_path_factory.mktemp(request.param) / "run"
    training.run(configure(run, cache, *OPTIONS, *SIDES[request.param], "trainer.max_steps=3"))
    return run


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    path = tmp_path / "terms.txt"
    path.write_text("\n".join([*TERMS, ""]), encoding="utf-8")
    return path


def options_of(parent: Path, terms: Path) -> tuple[str, ...]:
    return (*OPTIONS, *SIDES[parent.parent.name[:-1]], f"init_from={parent}", f"tokenizer.extend={terms}")


def split(tokenizer: Tokenizer, term: str) -> list[int]:
    """The tokens of a term; of a character without the space before it."""
    return tokenizer.encode(term)[1 if len(term) == 1 else 0 :]


def test_new_rows_start_as_means(parent: Path, terms: Path, cache: Path, tmp_path: Path) -> None:
    with SignalWatch() as signals:
        parts = training.build(configure(tmp_path / "run", cache, *options_of(parent, terms)), signals)
    theirs, own = load_model(parent), parts.module.model.state_dict()
    size = theirs.source_tokenizer.vocab_size
    sides = {"source_embedding.weight": theirs.source_tokenizer, "target_embedding.weight": theirs.target_tokenizer}
    sides["output_weight"] = theirs.target_tokenizer
    for name, weight in theirs.model.state_dict().items():
        if name not in sides:
            assert torch.equal(own[name], weight), name
            continue
        assert own[name].shape == (size + 3, 16)
        assert torch.equal(own[name][:size], weight)
        for row, term in zip(own[name][size:], TERMS, strict=True):
            tokens = split(sides[name], term)
            assert len(tokens) > 1
            assert torch.allclose(row, sum(weight[token] for token in tokens) / len(tokens))
    note, transfer = parts.notes
    added = f"3 pieces added, {size + 3} in total, 0 already there"
    both = theirs.source_tokenizer.proto != theirs.target_tokenizer.proto
    assert note == f"tokenizer.extend {terms}: " + (f"source {added}; target {added}" if both else added)
    assert "new, initialized as usual: none; not used from the parent: none" in transfer


def test_an_extended_model_resumes_and_translates(parent: Path, terms: Path, cache: Path, tmp_path: Path) -> None:
    options = options_of(parent, terms)
    whole, parts, child = tmp_path / "whole", tmp_path / "parts", tmp_path / "child"
    training.run(configure(whole, cache, *options, "trainer.max_steps=5"))
    training.run(configure(parts, cache, *options, "trainer.max_steps=3"))
    content = terms.read_text(encoding="utf-8")
    terms.unlink()  # the vocabulary is in the checkpoint
    training.run(configure(parts, cache, *options, "trainer.max_steps=5", f"resume={parts}"))
    assert_same(whole, parts)
    loaded = load_model(parts)
    size = load_model(parent).source_tokenizer.vocab_size
    for tokenizer in (loaded.source_tokenizer, loaded.target_tokenizer):
        assert [tokenizer.piece(i) for i in range(size, tokenizer.vocab_size)] == PIECES
    translator = Translator.load(parts)
    assert len(translator.translate([["kubernetes 猫", "machine learning"]], max_length_ratio=1.0)[0]) == 2
    terms.write_text(f"{content}another\n", encoding="utf-8")  # extended again: one of four terms is new
    again = (*options, f"init_from={parts}", "trainer.max_steps=1")
    training.run(configure(child, cache, *again))
    assert load_model(child).source_tokenizer.piece(size + 3) == "▁another"


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("one", (), "tokenizer.extend is {terms}: this adds pieces to the vocabulary of another run: add init_from"),
        ("\n \n", ("init_from={parent}",), "tokenizer.extend={terms}: the file is empty: write one term"),
        (None, ("init_from={parent}",), "{terms}: no such file"),
        ("a\n.", ("init_from={parent}",), "tokenizer.extend={terms}: the vocabulary already has all of its 2 terms"),
        ("x ⟨1⟩", ("init_from={parent}",), "tokenizer.extend: the term 'x ⟨1⟩' contains a placeholder"),
    ],
)
@pytest.mark.parametrize("parent", ["joint"], indirect=True)
def test_refusals(
    parent: Path,
    terms: Path,
    command: Command,
    tmp_path: Path,
    content: str | None,
    more: tuple[str, ...],
    message: str,
) -> None:
    terms.unlink()
    if content is not None:
        terms.write_text(content, encoding="utf-8")
    given = [argument.format(parent=parent) for argument in (*more, f"tokenizer.extend={terms}")]
    assert message.format(terms=terms) in only_line(command(f"hydra.run.dir={tmp_path / 'run'}", *given))
    assert not (tmp_path / "run").exists()
