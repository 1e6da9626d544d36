"""Annotated training sources: pairs by hand, and a whole corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.augment.annotating import Annotating, Changes, Masking, find_pairs, learn_partners
from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from scaleformer.vocabulary import TERM_PIECES

PARTNERS = {
    "kernel": {"núcleo": 0.9, "kernel": 0.3},
    "command": {"orden": 0.5, "órdenes": 0.5},
    "line": {"línea": 0.8},
    "starts": {"inicia": 0.7},
    "boot": {"inicia": 0.6},
}
WORDS = {"cat": "gato", "dog": "perro", "tree": "árbol", "house": "casa", "bird": "pájaro", "road": "camino"}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The Kernel starts.", "El núcleo inicia.", [("Kernel starts", "núcleo inicia")]),
        ("The command line", "La línea de órdenes", [("command line", "línea de órdenes")]),
        ("The command, line", "La línea de órdenes", [("command", "órdenes"), ("line", "línea")]),
        ("command line", "línea x y z orden", [("command", "orden"), ("line", "línea")]),
        ("boot starts", "inicia", [("starts", "inicia")]),
        ("kernel ⟨1⟩ 12", "⟨1⟩ 12 el kernel", [("kernel", "kernel")]),
        ("nothing", "nada", []),
        ("", "", []),
    ],
)
def test_pairs_are_mutual_best_partners(source: str, target: str, expected: list[tuple[str, str]]) -> None:
    found = find_pairs(source, target, PARTNERS)
    assert [translation for _, translation in found] == [translation for _, translation in expected]
    for (end, _), (form, _) in zip(found, expected, strict=True):
        assert source[:end].endswith(form)
    alone = [translation for _, translation in find_pairs(source, target, PARTNERS, join=False)]
    assert sorted(alone) == sorted(part for _, text in expected for part in text.split() if part != "de")


def make_documents(count: int, split: str = "a") -> list[Document]:
    """Segments of two words each, of which every one has one translation."""
    names = list(WORDS)
    documents = []
    for n in range(count):
        pairs = [(names[(n + i) % 6], names[(n + i * i + 1) % 6]) for i in range(8)]
        source = tuple(f"a {one} and a {other}" for one, other in pairs)
        target = tuple(f"un {WORDS[one]} y un {WORDS[other]}" for one, other in pairs)
        documents.append(Document(f"{split}{n}", source, target))
    return documents


def test_partners_are_learned_from_the_text() -> None:
    partners = learn_partners(make_documents(30))
    assert {word: max(found, key=found.__getitem__) for word, found in partners.items() if word in WORDS} == WORDS
    assert learn_partners([]) == {}


def annotating(share: float, seed: int = 1) -> Annotating:
    return Annotating(share, seed, "x", {source: {target: 0.9} for source, target in WORDS.items()})


def test_a_share_of_the_pairs_is_annotated() -> None:
    documents = make_documents(100)
    changed = [annotating(0.3)(document) for document in documents]
    assert changed == [annotating(0.3)(document) for document in documents]
    assert [d.target for d in changed] == [d.target for d in documents]
    pairs = [pair for a, b in zip(documents, changed, strict=True) for pair in zip(a.source, b.source, strict=True)]
    assert 180 < sum(a != b for a, b in pairs) < 300  # of 800
    for before, after in pairs:
        parts = after.replace(TERM_PIECES[0], "|").replace(TERM_PIECES[1], "|").split("|")
        assert "".join(parts[::2]) == before
        for text, form in zip(parts[::2], parts[1::2], strict=False):
            assert WORDS[text.split()[-1]] == form.strip()
    other = [annotating(0.3)(document, 1) for document in documents]
    assert changed != other
    assert changed != [annotating(0.3, 2)(document) for document in documents]


def test_beads_of_several_segments_stay() -> None:
    document = Document("a", ("a cat", "a dog", "a tree"), ("un gato y un perro", "un árbol"), beads=((2, 1), (1, 1)))
    assert annotating(1.0)(document).source == ("a cat", "a dog", "a tree⟨=⟩ árbol⟨/⟩")
    assert annotating(1.0)(Document("a", ("a cat",))).source == ("a cat",)


def test_changes_apply_in_order_and_a_single_one_keeps_its_key() -> None:
    document = Document("a", ("a cat `x`",), ("un gato `x`",))
    both = Changes((Masking(1.0, 1), annotating(1.0)))
    assert both(document).source == ("a cat⟨=⟩ gato⟨/⟩ ⟨1⟩",)
    assert Changes((Masking(1.0, 1),)).key == Masking(1.0, 1).key
    assert both.key == f"{Masking(1.0, 1).key} {annotating(1.0).key}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("annotating") / "corpus"
    folder.mkdir()
    for split, count in (("train", 30), ("valid", 3)):
        lines = [document.to_json() + "\n" for document in make_documents(count, split)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def make_data(corpus: Path, tokenizers: Any = None, **options: Any) -> DocumentDataModule:
    settings = {"cache_dir": str(corpus.parent / "cache"), "max_tokens": 200, "batch_tokens": 2000, "window": 30}
    config = DataConfig("jsonl", str(corpus), **{**settings, **options})
    return DocumentDataModule(config, TokenizerConfig(vocab_size=300), tokenizers)


@pytest.mark.parametrize("streaming", [False, True])
def test_only_training_is_annotated(corpus: Path, streaming: bool) -> None:
    data, usual = make_data(corpus, annotate_terms=0.5, streaming=streaming), make_data(corpus, streaming=streaming)
    data.prepare_data()
    assert data.source_tokenizer.has_terms
    assert not usual.source_tokenizer.has_terms
    begin = data.source_tokenizer.encode(TERM_PIECES[0])[-1]
    for loader, some in ((data.train_dataloader(), True), (data.val_dataloader(), False)):
        batches = list(loader)
        assert any((batch.source == begin).any() for batch in batches) is some
        assert not any((batch.target_output == begin).any() for batch in batches)
    assert data.state_dict()["signature"] != usual.state_dict()["signature"]


def test_the_lexicon_is_cached(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_data(corpus, annotate_terms=0.5)._changes
    monkeypatch.setattr(
        "scaleformer.data.augment.annotating.learn_partners", lambda documents: pytest.fail("learned again")
    )
    assert make_data(corpus, annotate_terms=0.5)._changes == first
    [path] = (corpus.parent / "cache" / "terms").glob("*.json")
    assert json.loads(path.read_text(encoding="utf-8"))["cat"]["gato"] >= 0.2


def test_a_vocabulary_without_the_pieces_is_refused(corpus: Path) -> None:
    usual = make_data(corpus)
    with pytest.raises(DataError, match=r"data\.annotate_terms=0\.5: the vocabulary of init_from has no pieces"):
        make_data(corpus, usual.tokenizers, annotate_terms=0.5).prepare_data()
    with pytest.raises(ValueError, match=r"data\.annotate_terms is 1\.5: it must be a float from 0 to 1"):
        make_data(corpus, annotate_terms=1.5)
