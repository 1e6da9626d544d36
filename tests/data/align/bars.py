"""Alignment quality on documents with known alignment: joined to prose, damaged on purpose, split and aligned again.

    python -m tests.data.align.bars FILE.jsonl[.gz] [en es]
    python -m tests.data.align.bars FILE.jsonl[.gz] en es FOLDER

prints the F1 of the links of aligned documents, intact and damaged, and the speed in pages (of 300 words) per minute;
the second form writes the prose of each side as text files below FOLDER, for `prepare format=raw`.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scaleformer.data.align.beads import Bead
from scaleformer.data.align.passes import LABELS, Segments, align_corpus
from scaleformer.formats.blocks import BlockBuilder
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.segments import split_block
from scaleformer.text.documents import Document

SHARE = 0.1  # of the segments to remove, and to merge
PAGE = 300  # words

Paragraph = list[tuple[int, str]]  # numbers of the document's segments, and their texts
Origins = list[Counter[int]]  # for each aligned segment: its characters by the document segment that they come from


def prose(document: Document, rng: random.Random) -> list[list[Paragraph]]:
    """Both sides in paragraphs of 3 to 8 segments."""
    sides: list[list[Paragraph]] = [[], []]
    start = 0
    while start < len(document.source):
        stop = start + rng.randint(3, 8)
        for side, texts in zip(sides, (document.source, document.target), strict=True):
            side.append([(n, " ".join(text.split())) for n, text in enumerate(texts)][start:stop])
        start = stop
    return sides


def spoil(sides: list[list[Paragraph]], rng: random.Random) -> list[list[Paragraph]]:
    """A tenth of the segments of one side removed, a tenth of those of either side made one sentence with the next."""
    removed, merged = rng.randrange(2), rng.randrange(2)
    sides[removed] = [[part for part in paragraph if rng.random() >= SHARE] for paragraph in sides[removed]]
    for paragraph in sides[merged]:
        for i, (number, text) in enumerate(paragraph[:-1]):
            if rng.random() < SHARE and text[-1:] in ".!?":
                following, after = paragraph[i + 1]
                paragraph[i] = number, f"{text[:-1]},"
                paragraph[i + 1] = following, after[:1].lower() + after[1:]
    return [[paragraph for paragraph in side if paragraph] for side in sides]


def split(paragraphs: Sequence[Paragraph], language: str) -> tuple[Segments, Origins]:
    """The sentences of paragraphs, and which segments they come from."""
    texts: list[str] = []
    labels: list[int] = []
    origins: Origins = []
    for paragraph in paragraphs:
        numbers = [number for number, text in paragraph for _ in f"{text} "]
        builder = BlockBuilder()
        builder.text(" ".join(text for _, text in paragraph), 0)
        if block := builder.build():
            for place, segment in enumerate(split_block(block, language, "sentence")):
                texts.append(segment.unmasked)
                labels.append(LABELS.index("inside" if place else block.kind))
                origins.append(Counter(numbers[slice(*block.origin(segment.start, segment.stop))]))
    return (texts, labels), origins


def links(origins: Sequence[tuple[Origins, Origins]], aligned: Sequence[Sequence[Bead]]) -> dict[str, float]:
    """Precision, recall and F1 of links, weighted by characters.

    A bead is right to the extent that both its sides come from the same segments: the sum over segments of the smaller
    of the two shares of characters. Precision is the mean over the characters of beads with two sides, recall over
    those of segments that both sides have.
    """
    right = proposed = wanted = 0.0
    for (source, target), beads in zip(origins, aligned, strict=True):
        whole = sum(source, Counter[int]()), sum(target, Counter[int]())
        wanted += sum(whole[0][n] + whole[1][n] for n in whole[0] if n in whole[1])
        for bead in beads:
            ours = sum(source[bead.i : bead.i + bead.s], Counter[int]())
            theirs = sum(target[bead.j : bead.j + bead.t], Counter[int]())
            if ours and theirs:
                size = ours.total() + theirs.total()
                proposed += size
                right += size * sum(min(ours[n] / ours.total(), theirs[n] / theirs.total()) for n in ours)
    precision, recall = right / proposed, right / wanted
    return {"precision": precision, "recall": recall, "F1": 2 * precision * recall / (precision + recall)}


def measure(documents: Sequence[Document], languages: Sequence[str], spoilt: bool, seed: int = 0) -> dict[str, float]:
    """`links`, and the pages a minute of all from prose to beads."""
    rng = random.Random(seed)
    joined = [prose(document, rng) for document in documents]
    joined = [spoil(sides, rng) for sides in joined] if spoilt else joined
    start = time.process_time()
    texts = [[split(side, language) for side, language in zip(sides, languages, strict=True)] for sides in joined]
    aligned = align_corpus([(source[0], target[0]) for source, target in texts])
    minutes = (time.process_time() - start) / 60
    words = sum(len(text.split()) for sides in joined for paragraph in sides[0] for _, text in paragraph)
    found = links([(source[1], target[1]) for source, target in texts], aligned)
    return {**found, "pages a minute": words / PAGE / minutes}


def write(documents: Sequence[Document], languages: Sequence[str], folder: Path) -> None:
    """A file of each document in a folder of each language, a line between paragraphs."""
    rng = random.Random(1)
    for document in documents:
        for language, side in zip(languages, prose(document, rng), strict=True):
            path = folder / language / f"{document.id.replace('/', '__')}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n\n".join(" ".join(text for _, text in p) for p in side) + "\n", encoding="utf-8")


if __name__ == "__main__":
    corpus = list(read_jsonl(sys.argv[1]))
    if sys.argv[4:]:
        write(corpus, sys.argv[2:4], Path(sys.argv[4]))
        sys.exit()
    for name, bad in (("as they are", False), ("spoilt", True)):
        found = measure(corpus, sys.argv[2:4] or ("en", "es"), bad)
        print(name, ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
