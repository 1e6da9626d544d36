"""Reads a corpus and keeps of every segment and document what filters and reports ask for: numbers, no texts."""

from __future__ import annotations

import multiprocessing
import random
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from scaleformer.data.align.scoring import PairScorer
from scaleformer.data.quality.checks import BITS, UNSURE_BIT, SegmentChecks, other_language, require_languages
from scaleformer.data.quality.near import FEWEST, NearTexts, digests, near_documents, same_words, tokens
from scaleformer.data.quality.scorer import scores_by
from scaleformer.text.documents import Document
from scaleformer.text.words import hash_of_text, spaced

SPLITS = ("train", "valid", "test")
Split = tuple[str, Document]  # the name of a split, "" for none, and a document of it
SAMPLE = 20_000  # segments from which scripts, languages and a lexicon are learned
CHUNK = 1_000  # segments that a process takes at once
STRETCH = 5  # segments whose scores are looked at together
SOUND = 0.6  # confidence from which a segment is aligned, whatever stands around it
CERTAIN = 0.25  # confidence below which a single segment is misaligned whatever stands around it
COLUMNS = {"pairs": "q", "sources": "q", "faults": "i", "source_tokens": "i", "target_tokens": "i", "near": "b"}


@dataclass
class Survey:
    """A corpus in numbers: of documents (names, splits, languages of both sides, digests, starts of their segments,
    with the end of the last) and of segments:

    pairs, sources  a hash of each (both sides, source); faults: sums of `BITS`
    near            whether a training segment is nearly the same as one of another split
    stretches       confidence of the alignment around each
    near_pairs      documents with nearly the same source: (earlier, later), (pairs, 2)
    near_held_out   hashes of the sources in other splits to which training has a nearly equal one
    """

    names: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    languages: list[tuple[str, str]] = field(default_factory=list)
    digests: bytearray = field(default_factory=bytearray)
    starts: Any = field(default_factory=lambda: array("q", [0]))
    columns: dict[str, Any] = field(default_factory=lambda: {name: array(kind) for name, kind in COLUMNS.items()})
    stretches: Any = field(default_factory=lambda: array("f"))
    near_pairs: Any = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    near_held_out: set[int] = field(default_factory=set)

    def __getitem__(self, column: str) -> np.ndarray:
        return np.array(self.columns[column])

    @property
    def document_of(self) -> np.ndarray:
        """The number of the document of each segment."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.starts))

    def of_split(self, *names: str) -> np.ndarray:
        """Whether each segment belongs to one of these splits."""
        return np.isin(np.array(self.splits, dtype=str), names)[self.document_of]

    def seen(self, ours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of some segments of other splits stand in training by their source, and which nearly do."""
        exact = np.isin(self["sources"], self["sources"][self.of_split("train")]) & ours & (self["source_tokens"] > 0)
        return exact, np.isin(self["sources"], np.array([*self.near_held_out], dtype=np.int64)) & ours & ~exact


@dataclass
class Reader:
    """Looks at documents, in any process: `__call__` returns their rows of the survey. keys: hashes of `held_out`."""

    checks: SegmentChecks
    scorers: Sequence[PairScorer]  # of the documents of each half, learned from the other; none: nothing is scored
    held_out: NearTexts
    keys: Sequence[int]
    least: float  # confidence below which a stretch is misaligned

    def __call__(self, chunk: Sequence[Split]) -> list[tuple[Any, ...]]:
        texts = [[(" ".join(s), " ".join(t)) for s, t in document.parts()] for _, document in chunk]
        flat = [pair for document in texts for pair in document]
        paired = np.array([bool(s and t) for _, document in chunk for s, t in document.parts()])
        halves = np.repeat([half_of(document) for _, document in chunk], [*map(len, texts)])
        scores = np.zeros(len(flat))
        for half, scorer in enumerate(self.scorers):
            places = np.flatnonzero(halves == half)
            scores[places] = scorer.scores([flat[n] for n in places])
        scores *= paired  # text without a partner tells nothing of its neighbours
        sources = [spaced(source) for source, _ in flat]
        asked = [n for n, split in enumerate(np.repeat([s for s, _ in chunk], [*map(len, texts)])) if split == "train"]
        close = [(asked[n], self.keys[other]) for n, other in self.held_out.find([sources[n] for n in asked])]
        near = {n for n, _ in close}
        signed = digests([tokens(" ".join(s for s, _ in parts)) for parts in texts])
        rows, start = [], 0
        for (split, document), parts, digest in zip(chunk, texts, signed, strict=True):
            own = slice(start, start + len(parts))
            faults, spoken = self.checks.document(parts)
            lengths = np.array([len(s) + len(t) for s, t in parts]) * paired[own]
            stretches, misaligned = self._alignment(scores[own], lengths, half_of(document))
            marked = np.array(faults, np.int64) | BITS["alignment"] * misaligned
            marked = np.where(misaligned, marked, marked & ~UNSURE_BIT) * paired[own]  # two doubts are a fault
            columns = (
                [hash_of_text(f"{s}\n{spaced(t)}") for s, (_, t) in zip(sources[own], parts, strict=True)],
                [hash_of_text(source) for source in sources[own]],
                marked.tolist(),
                [len(s.split()) for s, _ in parts],
                [len(t.split()) for _, t in parts],
                [n in near for n in range(own.start, own.stop)],
            )
            rows.append((split, document.id, columns, stretches, digest, spoken))
            start = own.stop
        return [(*row, [] if number else [key for _, key in close]) for number, row in enumerate(rows)]

    def _alignment(self, scores: np.ndarray, lengths: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
        """The confidence of the `STRETCH` segments around each one, and which segments are misaligned."""
        if not self.scorers or not len(scores):
            return np.ones(len(scores)), np.zeros(len(scores), dtype=bool)
        summed = [np.convolve(values, np.ones(STRETCH))[STRETCH // 2 :][: len(values)] for values in (scores, lengths)]
        stretches, sure = (self.scorers[half].confidence(*some) for some in (summed, (scores, lengths)))
        whole = self.scorers[half].confidence(scores.sum(), lengths.sum())
        doubtful = np.minimum(whole, stretches) < self.least  # of these, those that do not stand out by themselves
        return stretches, (doubtful & (sure < SOUND)) | (sure < min(CERTAIN, self.least))


def survey(
    read: Callable[[], Iterable[Split]],
    filters: Mapping[str, Any],
    languages: Sequence[str | None],
    everything: bool = False,
    processes: int = 1,
) -> Survey:
    """The survey of the documents that `read` yields (up to four times), the same for any number of processes.

    languages: of both sides; None where they are those of most segments. everything: look for what no filter takes, too
    Memory: of the segments outside of train, and some hundred bytes for every other one and for every document.
    Raises DataError as `SegmentChecks` and `scores_by` do.
    """
    # first, since a command may fail
    low = _low_scores(read(), *filters["score"]) if "score" in filters else np.zeros(1, dtype=bool)
    sample: list[tuple[str, str, int]] = []
    held_out: dict[int, str] = {}
    chosen, met = random.Random(1), 0
    for split, document in read():
        for source, target in ((" ".join(s), " ".join(t)) for s, t in document.parts()):
            if split in ("valid", "test") and "leakage" in filters:
                held_out.setdefault(hash_of_text(spaced(source)), spaced(source))
            met += 1  # a seeded reservoir
            place = met - 1 if met <= SAMPLE else chosen.randrange(met)
            if place < SAMPLE:
                sample[place : place + 1] = [(source, target, half_of(document))]
    if everything or "language" in filters:
        languages = [code or usual_language(str(pair[side]) for pair in sample) for side, code in enumerate(languages)]
    checks = SegmentChecks(filters, [[str(pair[side]) for pair in sample] for side in (0, 1)], languages, everything)
    others = [[(s, t) for s, t, own in sample if own != half and s and t] for half in (0, 1)]
    scorers = [PairScorer(some) for some in others] if "alignment" in filters else []
    reader = Reader(checks, scorers, NearTexts(held_out.values()), list(held_out), filters.get("alignment", 0.0))
    found = Survey()
    for rows in _in_order(reader, _chunks(read()), processes):
        for split, name, columns, stretches, digest, spoken, close in rows:
            found.names.append(name)
            found.splits.append(split)
            found.languages.append(spoken)
            found.digests += digest.tobytes()
            found.starts.append(found.starts[-1] + len(stretches))
            for column, values in zip(found.columns.values(), columns, strict=True):
                column.extend(values)
            found.stretches.extend(stretches)
            found.near_held_out.update(close)
    if found.digests and not {"duplicates", "leakage"}.isdisjoint(filters):
        digest = np.frombuffer(bytes(found.digests), dtype=np.uint32).reshape(len(found.names), -1)
        found.near_pairs = _verified(read(), near_documents(digest))
    found.columns["faults"] = found["faults"] | BITS["score"] * low
    return found


def _low_scores(documents: Iterable[Split], scorer: str, least: float) -> np.ndarray:
    """Which segments have less than this from a scorer; text without a partner has not."""
    paired = array("b")

    def pairs() -> Iterator[tuple[str, str]]:
        for source, target in (part for _, document in documents for part in document.parts()):
            paired.append(bool(source and target))
            yield " ".join(source), " ".join(target)

    scores = scores_by(scorer, pairs())
    return ~(scores >= least) & (np.array(paired) > 0)  # what is not a number is low


def half_of(document: Document) -> int:
    """0 or 1: what is learned from one half judges the other, so that no document vouches for itself."""
    return hash_of_text(document.id) & 1


def _verified(documents: Iterable[Split], pairs: np.ndarray) -> np.ndarray:
    """Those pairs of documents whose sources have most of their words in common. Memory: of the earlier ones."""
    earlier: dict[int, list[str]] = {number: [] for number in pairs[:, 0].tolist()}
    partners: dict[int, list[int]] = {}
    for one, other in pairs.tolist():
        partners.setdefault(other, []).append(one)
    found = []
    for number, (_, document) in enumerate(documents):
        own = tokens(" ".join(document.source)) if number in earlier or number in partners else []
        found += [(n, number) for n in partners.get(number, ()) if len(own) >= FEWEST and same_words(earlier[n], own)]
        if number in earlier:
            earlier[number] = own
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def usual_language(texts: Iterable[str]) -> str:
    """The language of most texts, "" where none can be told. Raises DataError without py3langid."""
    require_languages()
    counts = Counter(other_language(text, "") for text in islice(texts, SAMPLE // 20))
    return max(counts.keys() - {""}, key=lambda code: (counts[code], code), default="")


def _chunks(documents: Iterable[Split]) -> Iterator[list[Split]]:
    chunk: list[Split] = []
    size = 0
    for pair in documents:
        chunk.append(pair)
        size += len(pair[1].shapes)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _in_order(work: Any, chunks: Iterator[Any], processes: int) -> Iterator[Any]:
    """The results for all chunks, in their order; few chunks are in memory at once."""
    if processes == 1:
        yield from map(work, chunks)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (work,)) as pool:
        waiting: deque[Future[Any]] = deque(pool.submit(_work, chunk) for chunk in islice(chunks, 2 * processes))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(_work, chunk) for chunk in islice(chunks, 1))


_kept: list[Any] = []  # what a process works with


def _begin(work: Any) -> None:
    _kept[:] = [work]


def _work(chunk: Any) -> Any:
    return _kept[0](chunk)
