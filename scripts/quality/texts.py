"""A corpus as lines for other programs, and their translations of it as segments again.

A line is an example, in numbers of our subwords with spaces between them: programs that take words take these, no
character of a text can part a line or a word, and all train on the same subwords. Of the level `sentences` a line is a
segment (or bead), of `documents` as many segments as `data.max_tokens` allows, `<sep>` between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from scaleformer.data.cutting import Cutting, make_plan
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document, from_parts, one_line
from scaleformer.translation.pieces import cut_pieces
from scaleformer.vocabulary import SEP, SEPARATORS

LEVELS = ("sentences", "documents")


def training_lines(corpus: EncodedCorpus, level: str, max_tokens: int) -> Iterator[tuple[str, str]]:
    """The source and the target of each example, cut as our own training cuts documents without
    `data.multi_resolution`, and in their order; those with an empty side are left out."""
    cutting = Cutting(max_tokens, level="segment" if level == "sentences" else "document")
    plan = make_plan(corpus, cutting, np.random.default_rng(0))  # of which nothing is drawn
    for example in range(len(plan)):
        segments = plan.segments(example)
        source, target = (
            _line([token for n in segments for token in tokens[offsets[n] : offsets[n + 1]].tolist()])
            for tokens, offsets in ((corpus.source, corpus.source_offsets), (corpus.target, corpus.target_offsets))
        )
        if source and target:
            yield source, target


def _line(tokens: Sequence[int]) -> str:
    """Without the separator that ends it; "" where there are no words."""
    return "" if set(tokens) <= set(SEPARATORS) else " ".join(map(str, tokens[:-1]))


def first_segments(document: Document, count: int | None) -> Document:
    """The first so many beads of a document; None: all."""
    return document if count is None else from_parts(document.id, document.parts()[:count])


class Test:
    """Documents to be translated, as lines; a line without text is not sent."""

    def __init__(self, documents: Sequence[Document], tokenizer: Tokenizer, level: str, max_tokens: int) -> None:
        self.documents = documents
        if level == "sentences":
            self._pieces = [[[segment] for segment in d.source] for d in documents]
        else:
            self._pieces = [cut_pieces(d.source, tokenizer, max_tokens) for d in documents]
        self._lines = [[_line(tokenizer.encode_segments(piece)) for piece in pieces] for pieces in self._pieces]

    @property
    def lines(self) -> list[str]:
        """The sources of all pieces, in order."""
        return [line for lines in self._lines for line in lines if line]

    def hypotheses(self, written: Sequence[str], tokenizer: Tokenizer) -> tuple[list[list[str] | str], int]:
        """The translation of each document, from that of each line; and how many pieces have other numbers of segments
        than requested. A document with such a piece is one text, for the scorer to cut. Words that are no numbers are
        left out.

        Raises ValueError for another number of lines.
        """
        if len(written) != len(self.lines):
            raise ValueError(f"{len(written)} translations of {len(self.lines)} lines")
        rest, found, wrong = iter(written), [], 0
        for pieces, lines in zip(self._pieces, self._lines, strict=True):
            segments: list[str] = []
            right = True
            for piece, line in zip(pieces, lines, strict=True):
                answer = next(rest) if line else ""
                words = [int(word) for word in answer.split() if word.isdecimal()]
                texts = tokenizer.decode_segments([*words, SEP])
                if len(piece) == 1:
                    texts = [one_line(texts)]
                elif not line:
                    texts = [""] * len(piece)
                segments += texts
                wrong += len(texts) != len(piece)
                right &= len(texts) == len(piece)
            found.append(segments if right else one_line(segments))
        return found, wrong


def write_lines(path: Path, lines: Sequence[str]) -> None:
    with atomic_writer(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def longest(texts: Path) -> int:
    """Of all lines in a folder, in tokens."""
    files = sorted(texts.iterdir())
    return max(len(line.split()) for file in files for line in file.read_text(encoding="utf-8").splitlines())
