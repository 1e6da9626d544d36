"""Documents as lines of numbers, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.data.encoded import EncodedCorpus, encode_documents
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.text.documents import Document, one_line
from scripts.quality.texts import Test, first_segments, longest, training_lines, write_lines

Test.__test__ = False  # no class of tests
DOCUMENTS = (
    Document("a", ("one two three", "four", "five six"), ("uno dos tres", "cuatro", "cinco seis")),
    Document("b", ("seven  eight", "", "\u00a0nine\u2028"), ("siete ocho", "", "nueve")),
    Document("c", ("ten", "eleven", "twelve"), ("diez once", "doce"), beads=((2, 1), (1, 1))),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for d in DOCUMENTS for text in (*d.source, *d.target)] * 3, 310)


@pytest.fixture(scope="module")
def corpus(tokenizer: Tokenizer) -> EncodedCorpus:
    return encode_documents(DOCUMENTS, tokenizer, tokenizer)


def texts(tokenizer: Tokenizer, line: str) -> list[str]:
    return tokenizer.decode_segments([int(word) for word in line.split()])


def test_a_sentence_is_a_line(tokenizer: Tokenizer, corpus: EncodedCorpus) -> None:
    pairs = [(texts(tokenizer, s), texts(tokenizer, t)) for s, t in training_lines(corpus, "sentences", max_tokens=512)]
    assert pairs == [
        (["one two three"], ["uno dos tres"]),
        (["four"], ["cuatro"]),
        (["five six"], ["cinco seis"]),
        (["seven  eight"], ["siete ocho"]),  # the empty one after it is left out
        (["\u00a0nine\u2028"], ["nueve"]),
        (["ten", "eleven"], ["diez once"]),  # a bead is an example
        (["twelve"], ["doce"]),
    ]


def test_documents_are_cut_between_segments(tokenizer: Tokenizer, corpus: EncodedCorpus) -> None:
    whole = [texts(tokenizer, source) for source, _ in training_lines(corpus, "documents", max_tokens=512)]
    assert whole == [list(d.source) for d in DOCUMENTS]
    cut = list(training_lines(corpus, "documents", max_tokens=20))
    assert len(cut) > len(whole)
    words = [segment for source, _ in cut for segment in texts(tokenizer, source) if segment]
    assert words == [segment for d in DOCUMENTS for segment in d.source if segment]
    assert sum(" 4 " in source for source, _ in cut) >= 1  # `<sep>` stands between segments
    assert not any(line.endswith(" 4") for pair in cut for line in pair)


@pytest.mark.parametrize("level", ["sentences", "documents"])
@pytest.mark.parametrize("max_tokens", [12, 512])
def test_there_and_back(tokenizer: Tokenizer, level: str, max_tokens: int) -> None:
    """A program that copies gives back the source."""
    test = Test(DOCUMENTS, tokenizer, level, max_tokens)
    assert all(test.lines)
    hypotheses, wrong = test.hypotheses(test.lines, tokenizer)
    assert wrong == 0
    assert [[one_line([s]) for s in d] for d in hypotheses] == [[one_line([s]) for s in d.source] for d in DOCUMENTS]


def test_a_document_with_other_segments_is_one_text(tokenizer: Tokenizer) -> None:
    test = Test(DOCUMENTS[:1], tokenizer, "documents", 512)
    (line,) = test.lines
    joined = " ".join(word for word in line.split() if word != "4")
    for answer, text, wrong in (
        (joined, tokenizer.decode([int(word) for word in joined.split()]), 1),
        (f"<unk> {line} <s>", list(DOCUMENTS[0].source), 0),  # no numbers
        ("", "", 1),
    ):
        assert test.hypotheses([answer], tokenizer) == ([text], wrong)
    with pytest.raises(ValueError, match="2 translations of 1 lines"):
        test.hypotheses([line, line], tokenizer)


def test_first_segments_keep_beads_whole() -> None:
    assert first_segments(DOCUMENTS[2], 1) == Document("c", ("ten", "eleven"), ("diez once",), beads=((2, 1),))
    assert first_segments(DOCUMENTS[0], 2) == Document("a", DOCUMENTS[0].source[:2], DOCUMENTS[0].target[:2])
    assert first_segments(DOCUMENTS[0], None) is DOCUMENTS[0]


def test_the_longest_line(tmp_path: Path) -> None:
    write_lines(tmp_path / "a", ["5 6", "7 8 9"])
    write_lines(tmp_path / "b", ["5"])
    assert longest(tmp_path) == 3
