"""New pieces in an existing vocabulary: used where they occur, and everything else is split as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2 as messages

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.data.tokenizer_extension import extend, read_words
from scaleformer.system.errors import DataError
from tests.data.test_tokenizer import TEXTS

TERMS = ["kubernetes", "hydroxychloroquine", "machine learning", "machine", "猫", "学习", "Ω", "a\ue000b"]
PIECES = ["▁kubernetes", "▁hydroxychloroquine", "▁machine▁learning", "▁machine", "猫", "学习", "Ω", "▁a\ue000\ue000b"]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=[True, False], ids=["bytes", "unknown"])
def tokenizer(kind: str, request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(TEXTS, 500 if request.param else 240, kind, byte_fallback=request.param)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(token) for token in tokenizer.encode(text)]


def test_old_texts_are_split_as_before(kind: str, tokenizer: Tokenizer) -> None:
    new = extend(tokenizer, TERMS, kind).tokenizer
    texts = [*TEXTS[:200], *(f"{text} ⟨1⟩ {text} ñÿ" for text in TEXTS[:20])]
    assert new.encode_batch(texts) == tokenizer.encode_batch(texts)
    size = tokenizer.vocab_size
    assert [new.piece(i) for i in range(size)] == [tokenizer.piece(i) for i in range(size)]
    assert [new.piece(i) for i in range(size, new.vocab_size)] == PIECES


def test_new_pieces_are_used(kind: str, tokenizer: Tokenizer) -> None:
    new = extend(tokenizer, TERMS, kind).tokenizer
    text = "kubernetes machine learning machine, a\ue000b 猫学习猫 kubernetes Ω"
    for term, piece in zip(TERMS, PIECES, strict=True):
        assert piece in pieces(new, term)
        assert piece in pieces(new, f"{TEXTS[0]} {term}, {TEXTS[1]}")
        assert piece in pieces(new, text) or piece == "▁hydroxychloroquine"
    assert new.decode(new.encode("kubernetes machine learning 猫学习 Ω")) == "kubernetes machine learning 猫学习 Ω"
    assert "▁kubernetes" not in pieces(new, "xkubernetes")


def test_what_they_were_split_into(kind: str, tokenizer: Tokenizer) -> None:
    split = extend(tokenizer, TERMS, kind).split
    assert len(split) == len(PIECES)
    for term, ids in zip(TERMS, split, strict=True):
        whole = tokenizer.encode(term)
        assert ids == (whole[1:] if term in ("猫", "学习", "Ω") else whole)


def test_a_longer_piece_stays_whole_with_unigram() -> None:
    """A new piece at the beginning of an old one does not break it up."""
    tokenizer = Tokenizer.train(TEXTS, 500)
    old = max(TEXTS[0].split(" "), key=lambda word: (len(pieces(tokenizer, word)) == 1, len(word)))
    assert pieces(tokenizer, old) == [f"▁{old}"]
    term = next(old[:n] for n in range(2, len(old)) if len(pieces(tokenizer, old[:n])) > 1)
    new = extend(tokenizer, [term], "unigram").tokenizer
    assert pieces(new, term) == [f"▁{term}"]
    assert pieces(new, f"{old} {term}") == [f"▁{old}", f"▁{term}"]


def test_terms_that_are_already_pieces_are_skipped(kind: str, tokenizer: Tokenizer) -> None:
    new = extend(tokenizer, TERMS, kind).tokenizer
    again = extend(new, [*TERMS, "another"], kind)
    assert again.tokenizer.vocab_size == new.vocab_size + 1
    assert again.tokenizer.piece(new.vocab_size) == "▁another"
    assert extend(new, TERMS, kind).split == []
    assert extend(new, TERMS, kind).tokenizer.proto == new.proto


def test_messages_follow_the_protocol_buffer_format(kind: str, tokenizer: Tokenizer) -> None:
    terms = ["k" * 300, "kubernetes"]
    model = messages.ModelProto.FromString(extend(tokenizer, terms, kind).tokenizer.proto)
    old = messages.ModelProto.FromString(tokenizer.proto)
    assert model.pieces[: len(old.pieces)] == old.pieces
    assert [(p.piece, p.type) for p in model.pieces[len(old.pieces) :]] == [
        (f"▁{term}", 1 if kind == "unigram" else 4) for term in terms
    ]
    assert min(p.score for p in model.pieces) == min(p.score for p in old.pieces)
    assert model.trainer_spec == old.trainer_spec


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_text("one\n\n  two\t words \none\n猫\r\n", encoding="utf-8")
    assert read_words(str(path)) == ["one", "two words", "猫"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, r"no such file"), ("", r"the file is empty: write one term"), (" \n\t\n", r"the file is empty")],
)
def test_files_without_terms(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "terms.txt"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read_words(str(path))
    assert "\n" not in str(caught.value)


def test_placeholders_are_refused(kind: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="the term 'a ⟨1⟩' contains a placeholder"):
        extend(tokenizer, ["a ⟨1⟩"], kind)
