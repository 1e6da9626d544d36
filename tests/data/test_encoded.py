"""Token arrays: the same content on disk and in memory, cached by content."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaleformer.data.encoded import (
    EncodedCorpus,
    Names,
    encode_documents,
    merge_encoded,
    open_encoded,
    write_encoded,
)
from scaleformer.data.encoding_cache import cached_encoding
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

DOCUMENTS = [*generate(SyntheticConfig(train=300), "train"), Document("odd", ("", "日\n本"), (" ", "<sep>"))]


@pytest.fixture(scope="module")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    return (
        Tokenizer.train([text for d in DOCUMENTS for text in d.source], 412),
        Tokenizer.train([text for d in DOCUMENTS for text in d.target], 462),
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


def test_cached_and_memory_mapped(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)
    monkeypatch.setattr("scaleformer.data.encoding_cache.encode_documents", None)  # encoding again would fail
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


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.data.encoding_cache.PART_SEGMENTS", 40)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for found in (folder / "encoded").iterdir() for path in found.iterdir()}


@pytest.mark.usefixtures("small_parts")
def test_parts_and_processes_change_nothing(tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path) -> None:
    for processes in (1, 2):
        check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path / str(processes), processes), tokenizers)
    whole = tmp_path / "1" / "encoded"
    assert files(tmp_path / "1") == files(tmp_path / "2")
    write_encoded(encode_documents(DOCUMENTS, *tokenizers), tmp_path)
    assert all((tmp_path / name).read_bytes() == data for name, data in files(tmp_path / "1").items())
    assert [path.name.startswith(".") for path in whole.iterdir()] == [False]


@pytest.mark.usefixtures("small_parts")
def test_a_stopped_preparation_resumes(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []

    def stopping(documents: list[Document], *rest: Any, **options: Any) -> EncodedCorpus:
        encoded.append(documents[0].id)
        if len(encoded) == 3:
            raise KeyboardInterrupt
        return encode_documents(documents, *rest, **options)

    monkeypatch.setattr("scaleformer.data.encoding_cache.encode_documents", stopping)
    with pytest.raises(KeyboardInterrupt):
        cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path)
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)
    assert len(encoded) == len(set(encoded)) + 1 > 5  # only the unfinished part is encoded again
    assert encoded[2] == encoded[3]
    assert len(list((tmp_path / "encoded").iterdir())) == 1


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("processes", [1, 2])
def test_faults_of_the_documents_leave_nothing(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, processes: int
) -> None:
    class Broken:
        def __iter__(self) -> Iterator[Document]:
            yield from DOCUMENTS
            raise DataError("train.jsonl:61: not valid JSON")

    with pytest.raises(DataError, match=r"^train\.jsonl:61: not valid JSON$"):
        cached_encoding(Broken(), "f", *tokenizers, tmp_path, processes)
    assert list((tmp_path / "encoded").iterdir()) == []


@pytest.mark.usefixtures("small_parts")
def test_a_killed_process_is_named_and_finished_parts_stay(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(documents: list[Document], *rest: Any, **options: Any) -> EncodedCorpus:
        if documents[0].id != DOCUMENTS[0].id:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode_documents(documents, *rest, **options)

    monkeypatch.setattr("scaleformer.data.encoding_cache.encode_documents", dying)
    with pytest.raises(ValueError, match=r"was killed, .*: lower data\.num_proc"):
        cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path, 2)
    assert list((tmp_path / "encoded").glob(".*.parts/000000"))
    monkeypatch.undo()
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)


def test_processes_wait_for_the_one_that_encodes(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(*arguments: Any, **options: Any) -> EncodedCorpus:
        calls.append(1)
        return encode_documents(*arguments, **options)

    monkeypatch.setattr("scaleformer.data.encoding_cache.encode_documents", counted)
    found: list[EncodedCorpus] = []
    threads = [
        threading.Thread(target=lambda: found.append(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), len(found)) == (1, 3)


@pytest.mark.parametrize("name", ["source.bin", "ids.bin", "target_offsets.npy", "documents.npy"])
@pytest.mark.parametrize("left", [0, 10, None], ids=["empty", "cut short", "missing"])
def test_a_damaged_corpus_is_made_again(
    tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path, name: str, left: int | None
) -> None:
    cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path)
    before = files(tmp_path)
    (path,) = (tmp_path / "encoded").glob(f"*/{name}")
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    check(cached_encoding(DOCUMENTS, "f", *tokenizers, tmp_path), tokenizers)
    assert files(tmp_path) == before


def test_names() -> None:
    texts = ["a", "", "日本/é", "b" * 300]
    packed = [text.encode() for text in texts]
    names = Names(np.frombuffer(b"".join(packed), np.uint8), np.cumsum([0, *map(len, packed)]))
    assert list(names) == texts
    assert (names[-1], names[1:3], len(names)) == (texts[-1], texts[1:3], 4)
    with pytest.raises(IndexError):
        names[4]


def test_merging_nothing_gives_an_empty_corpus(tokenizers: tuple[Tokenizer, Tokenizer], tmp_path: Path) -> None:
    merge_encoded([], tmp_path)
    corpus = open_encoded(tmp_path, *tokenizers)
    assert (corpus.segments, len(corpus.ids), len(corpus.source)) == (0, 0, 0)
