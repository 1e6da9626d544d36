"""Training on pairs with masked spans: which ones, when, and what stays unchanged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scaleformer.batch import Batch
from scaleformer.data.augment.masking import Masking
from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.text.documents import Document
from scaleformer.text.spans import mask_pair


def make_documents(count: int, name: str) -> list[Document]:
    """Of eight pairs each; on both sides of a pair the same code, and a word that no other pair has."""
    rng = random.Random(name)
    documents = []
    for number in range(count):
        words = [f"{name}{number}w{place}" for place in range(8)]
        code = [f"`f{rng.randrange(9)}()`" for _ in words]
        source = tuple(f"call {c} of {w}" for c, w in zip(code, words, strict=True))
        target = tuple(f"el {w} llama {c}" for c, w in zip(code, words, strict=True))
        documents.append(Document(f"{name}/{number}", source, target))
    return documents


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, count in (("train", 20), ("valid", 3)):
        lines = [document.to_json() + "\n" for document in make_documents(count, split)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def make_data(corpus: Path, **options: Any) -> DocumentDataModule:
    settings = {
        "cache_dir": str(corpus.parent / "cache"),
        "max_tokens": 200,
        "batch_tokens": 2000,
        "window": 30,
        **options,
    }
    config = DataConfig(format="jsonl", path=str(corpus), **settings)
    return DocumentDataModule(config, TokenizerConfig(vocab_size=310))


def pairs(data: DocumentDataModule, batches: Iterable[Batch]) -> list[tuple[str, str]]:
    """All pairs of some batches, decoded, in the order of their texts."""
    found = []
    for batch in batches:
        for source, target in zip(batch.source.tolist(), batch.target_output.tolist(), strict=True):
            sides = data.source_tokenizer.decode_segments(source), data.target_tokenizer.decode_segments(target)
            found += list(zip(*sides, strict=True))
    return sorted(found)


def pairs_of(documents: Iterable[Document]) -> list[tuple[str, str]]:
    return sorted(pair for d in documents for pair in zip(d.source, d.target, strict=True))


def test_a_share_of_the_pairs_whatever_the_order() -> None:
    documents = make_documents(100, "a")

    def chosen(masking: Masking, epoch: int = 0) -> list[bool]:
        """Of each pair whether it is masked."""
        found = []
        for before in documents:
            after = masking(before, epoch)
            assert after.id == before.id
            for ((source,), (target,)), now in zip(before.parts(), after.parts(), strict=True):
                masked = mask_pair(source, target)
                assert now in [((source,), (target,)), ((masked[0],), (masked[1],))]
            found += ["⟨1⟩" in text for text in after.source]
        return found

    some = chosen(Masking(0.3, 1))
    assert 190 < sum(some) < 290  # of 800
    assert chosen(Masking(0.3, 1)) == some
    assert all(b for a, b in zip(some, chosen(Masking(0.6, 1)), strict=True) if a)
    for other in (chosen(Masking(0.3, 2)), chosen(Masking(0.3, 1), 1)):
        assert 400 < sum(a == b for a, b in zip(some, other, strict=True)) < 530  # 58% by chance


def test_beads_of_several_segments_stay() -> None:
    document = Document("a", ("`x` a", "`y`", "b `z`"), ("`x` `y` c", "`z` d"), beads=((2, 1), (1, 1)))
    masked = Masking(1.0, 1)(document)
    assert masked.source == ("`x` a", "`y`", "b ⟨1⟩")
    assert masked.target == ("`x` `y` c", "⟨1⟩ d")
    assert masked.beads == document.beads
    alone = Document("a", ("`x`",))
    assert Masking(1.0, 1)(alone) == alone


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_only_training_is_masked(corpus: Path, streaming: bool, share: float) -> None:
    data, usual = make_data(corpus, mask_spans=share, streaming=streaming), make_data(corpus)
    data.prepare_data()
    assert data.source_tokenizer.hash == usual.source_tokenizer.hash  # trained on unmasked text
    loader = data.train_dataloader()
    for epoch in range(2):
        masking = Masking(share, data.config.seed)
        wanted = [masking(document, epoch if streaming else 0) for document in data.documents("train")]
        assert pairs(data, loader) == pairs_of(wanted)
    assert pairs(data, data.val_dataloader()) == pairs_of(usual.documents("valid"))
    assert pairs(usual, usual.train_dataloader()) == pairs_of(usual.documents("train"))


def test_without_masking_nothing_changes(corpus: Path) -> None:
    usual, without, masked = (
        make_data(corpus, **options) for options in ({}, {"mask_spans": 0.0}, {"mask_spans": 1.0})
    )
    usual.prepare_data()
    folder = corpus.parent / "cache" / "encoded"
    kept = {path.name for path in folder.iterdir()}
    without.prepare_data()
    assert {path.name for path in folder.iterdir()} == kept
    masked.prepare_data()
    assert len({path.name for path in folder.iterdir()} - kept) == 1
    signatures = [data.state_dict()["signature"] for data in (usual, without, masked)]
    assert signatures[0] == signatures[1] != signatures[2]
    assert signatures[2] != make_data(corpus, mask_spans=0.5).state_dict()["signature"]


@pytest.mark.parametrize("streaming", [False, True])
def test_processes_change_nothing(corpus: Path, streaming: bool) -> None:
    options = {"mask_spans": 0.5, "streaming": streaming}
    one = make_data(corpus, **options)
    two = make_data(corpus, **options, num_workers=2, num_proc=2, cache_dir=str(corpus.parent / "other"))
    found = [[batch.source.tolist() for batch in data.train_dataloader()] for data in (one, two)]
    assert found[0] == found[1]


@pytest.mark.parametrize("streaming", [False, True])
def test_report(corpus: Path, streaming: bool) -> None:
    data = make_data(corpus, mask_spans=0.5, streaming=streaming, window=1000)
    split = next(iter(data.report.splits.values()))
    counts = Counter("⟨1⟩" in text for d in data.documents("train") for text in Masking(0.5, 1)(d).source)
    assert split.masked_segments == split.masked_spans == counts[True]
    assert 50 < counts[True] < 110
    assert data.report.splits["valid"].masked_segments == 0
