"""Token arrays: what is in them, on disk as in memory, by content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scaleformer.data.encoded import EncodedCorpus, cached_encoding, encode_documents
from scaleformer.data.errors import DataError
from scaleformer.data.formats import Document
from scaleformer.data.synthetic import SyntheticConfig, generate
from scaleformer.data.tokenizer import Tokenizer, seed_sampling

DOCUMENTS = [*generate(SyntheticConfig(train=300), "train"), Document("odd", ("", "日\n本"), (" ", "<sep>"))]


@pytest.fixture(scope="module")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    return (
        Tokenizer.train([text for d in DOCUMENTS for text in d.source], 400),
        Tokenizer.train([text for d in DOCUMENTS for text in d.target], 450),
    )


def check(corpus: EncodedCorpus, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Every document comes back from its tokens."""
    assert list(corpus.ids) == [d.id for d in DOCUMENTS]
    assert corpus.segments == sum(len(d.source) for d in DOCUMENTS)
    for number, document in enumerate(DOCUMENTS):
        first, last = corpus.documents[number : number + 2]
        assert set(corpus.document_of[first:last]) == {number}
        source = corpus.source[corpus.source_offsets[first] : corpus.source_offsets[last]]
        target = corpus.target[corpus.target_offsets[first] : corpus.target_offsets[last]]
        assert tuple(tokenizers[0].decode_segments(source.tolist())) == document.source
        assert tuple(tokenizers[1].decode_segments(target.tolist())) == document.target
    assert corpus.source_lengths.sum() == len(corpus.source)
    assert corpus.target_lengths.sum() == len(corpus.target)


def test_in_memory(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    check(encode_documents(DOCUMENTS, *tokenizers), tokenizers)


def test_sampled_is_the_same_text_and_reproducible(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    one, again = (encode_documents(DOCUMENTS, *tokenizers, sample=seed_sampling, alpha=0.2) for _ in range(2))
    check(one, tokenizers)
    assert np.array_equal(one.source, again.source)
    assert len(one.source) > len(encode_documents(DOCUMENTS, *tokenizers).source)


def test_kept_and_memory_mapped(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)
    monkeypatch.setattr("scaleformer.data.encoded.encode_documents", None)  # to encode again would fail
    kept = cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path)
    check(kept, tokenizers)
    assert isinstance(kept.source, np.memmap)
    assert [path.name.startswith(".") for path in (tmp_path / "encoded").iterdir()] == [False]


def test_key_is_fingerprint_and_tokenizers(tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path) -> None:
    for fingerprint, pair in (("f", tokenizers), ("g", tokenizers), ("f", tokenizers[::-1]), ("f", tokenizers)):
        cached_encoding(DOCUMENTS[:3], fingerprint, *pair, tmp_path)
    assert len(list((tmp_path / "encoded").iterdir())) == 3


def test_large_vocabulary_needs_wider_numbers(
    tokenizers: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert encode_documents(DOCUMENTS[:2], *tokenizers).source.dtype == np.uint16
    monkeypatch.setattr(Tokenizer, "vocab_size", 2**16 + 1)
    assert encode_documents(DOCUMENTS[:2], *tokenizers).source.dtype == np.int32


def test_full_disk_leaves_nothing(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", full)
    with pytest.raises(DataError, match=r"cannot write the cache \(No space left on device\): set data\.cache_dir"):
        cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path)
    assert list((tmp_path / "encoded").iterdir()) == []


def test_another_process_was_faster(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(documents: list[Document], *rest: object, **options: object) -> EncodedCorpus:
        monkeypatch.undo()
        cached_encoding(documents, "f", *tokenizers, tmp_path)
        return encode_documents(documents, *tokenizers)

    monkeypatch.setattr("scaleformer.data.encoded.encode_documents", race)
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)
    assert len(list((tmp_path / "encoded").iterdir())) == 1
