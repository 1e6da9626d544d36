"""Changes of training documents: `data.mask_spans` replaces code, links, version numbers and so on by placeholders,
`data.annotate_terms` annotates sources with the translations of some of their words.

A lexicon of the training text (IBM model 1, `scaleformer.data.align.lexicon`) finds the words: a source word and a
target word that are each other's likeliest partner in their pair of segments, and likely enough. Two neighbours whose
partners are at most one word apart form a term of two words. Half of the pairs have only terms of one word. Scripts
without spaces have no terms.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import regex

from scaleformer.data.align.lexicon import WORD_PAIRS, Lexicon, Vocabulary, learn
from scaleformer.data.cache import made_once
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document
from scaleformer.text.spans import PATTERN, mask_pair
from scaleformer.text.terms import annotate
from scaleformer.text.words import unspaced

LIKELY = 0.2  # least probability of a partner, in both directions
LETTERS = 3  # fewest letters of a source word
MOST = 3  # terms per segment
_CACHE_VERSION = 1
_WORD = regex.compile(r"(?<!\w)[\p{L}\p{M}][\w\p{M}]*")  # excludes placeholders and numbers

Partners = dict[str, dict[str, float]]  # source word, target word: the lower of their two probabilities


@dataclass(frozen=True)
class Change(ABC):
    """A change to a share of the one-to-one beads of each document. The seed, the epoch, the document's name and the
    bead's number in it decide which."""

    share: float
    seed: int

    @property
    @abstractmethod
    def key(self) -> str:
        """Part of a cache's name: besides the corpus, everything that determines the changed documents."""

    @abstractmethod
    def change(self, source: str, target: str, key: str) -> tuple[str, str]:
        """A bead, changed or not; key: what decides."""

    def __call__(self, document: Document, epoch: int = 0) -> Document:
        """The document for one training epoch; for all epochs if the corpus is kept encoded."""
        parts = [
            [(text,) for text in self.change(*source, *target, f"{self.seed} {epoch} {number} {document.id}")]
            if len(source) == len(target) == 1
            else (source, target)
            for number, (source, target) in enumerate(document.parts())
        ]
        ours, theirs = (tuple(text for part in parts for text in part[side]) for side in (0, 1))
        return replace(document, source=ours, target=theirs)


def _number(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Masking(Change):
    """Masks the spans (`mask_pair`) of beads."""

    @property
    def key(self) -> str:
        return f"masked {self.share} {self.seed} {hashlib.sha256(PATTERN.encode()).hexdigest()}"

    def change(self, source: str, target: str, key: str) -> tuple[str, str]:
        return mask_pair(source, target) if _number(key) < self.share * 2**64 else (source, target)


@dataclass(frozen=True)
class Annotating(Change):
    """Annotates one to three terms of beads."""

    fingerprint: str
    partners: Partners = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        return f"annotated {_CACHE_VERSION} {self.share} {self.seed} {self.fingerprint}"

    def change(self, source: str, target: str, key: str) -> tuple[str, str]:
        rng = np.random.default_rng(_number(f"terms {key}"))
        if rng.random() >= self.share:
            return source, target
        terms = find_pairs(source, target, self.partners, join=bool(rng.random() < 0.5))
        if not terms:
            return source, target
        chosen = rng.permutation(len(terms))[: rng.integers(1, MOST, endpoint=True)]
        return annotate(source, [terms[n] for n in sorted(chosen)]), target


def find_pairs(source: str, target: str, partners: Partners, join: bool = True) -> list[tuple[int, str]]:
    """The terms of a pair of segments, without overlaps: where each ends in the source, and its translation.
    join: whether two words may form a term."""
    ours, theirs = ([match.span() for match in _WORD.finditer(text)] for text in (source, target))
    names = [target[start:stop].casefold() for start, stop in theirs]
    values = np.zeros((len(ours), len(theirs)))
    for n, (start, stop) in enumerate(ours):
        if stop - start >= LETTERS and (known := partners.get(source[start:stop].casefold())):
            values[n] = [known.get(name, 0.0) for name in names]
    if not values.any():
        return []
    links = {n: int(row.argmax()) for n, row in enumerate(values) if row.any()}
    links = {n: m for n, m in links.items() if int(values[:, m].argmax()) == n}
    terms, n = [], 0
    while n < len(ours):
        if n in links:
            first = last = links[n]
            beside = join and n + 1 in links and source[ours[n][1] : ours[n + 1][0]].strip() == ""
            if beside and abs(links[n + 1] - first) <= 2:
                low, high = sorted((first, links[n + 1]))
                inside = target[theirs[low][0] : theirs[high][1]]
                if len(inside.split()) == high - low + 1 and not any(low < m < high for m in links.values()):
                    first, last, n = low, high, n + 1
            terms.append((ours[n][1], target[theirs[first][0] : theirs[last][1]]))
        n += 1
    return terms


def annotating_for(
    share: float,
    seed: int,
    tokenizer: Tokenizer,
    documents: Iterable[Document],
    fingerprint: str,
    cache_dir: str | Path,
) -> Annotating | None:
    """The annotation of a share of the beads, None for 0. The lexicon is kept in `cache_dir`/terms under the documents'
    fingerprint. Raises DataError if the source vocabulary lacks the pieces for terms, and like the documents."""
    if share == 0:
        return None
    if not tokenizer.has_terms:
        raise DataError(
            f"data.annotate_terms={share}: the vocabulary of init_from has no pieces for terms: set "
            "data.annotate_terms=0, or train without init_from"
        )
    name = hashlib.sha256(f"{_CACHE_VERSION} {fingerprint}".encode()).hexdigest()[:32]
    path = Path(cache_dir) / "terms" / f"{name}.json"

    def make() -> None:
        with atomic_writer(path) as file:
            json.dump(learn_partners(documents), file, ensure_ascii=False)

    partners = made_once(path, lambda: json.loads(path.read_text(encoding="utf-8")), make)
    return Annotating(share, seed, fingerprint, partners)


def learn_partners(documents: Iterable[Document], likely: float = LIKELY) -> Partners:
    """Words that are likely translations of each other, learned from the one-to-one beads until these have `WORD_PAIRS`
    pairs of words; likely: the least probability, in both directions. Cost O(WORD_PAIRS)."""
    stems: dict[str, int] = {}
    sides = Vocabulary(stems), Vocabulary(stems)
    beads: list[tuple[np.ndarray, np.ndarray]] = []
    names: tuple[dict[int, str], dict[int, str]] = ({}, {})
    pairs = 0
    for document in documents:
        for source, target in document.parts():
            if len(source) == len(target) == 1 and pairs < WORD_PAIRS:
                bead = []
                for vocabulary, texts, known in zip(sides, (source, target), names, strict=True):
                    words = [word.casefold() for word in _WORD.findall(texts[0]) if not unspaced(word)]
                    numbers = vocabulary.add(" ".join(words))
                    known.update(zip(numbers.tolist(), words, strict=True))
                    bead.append(numbers)
                pairs += (len(bead[0]) + 1) * (len(bead[1]) + 1)
                beads.append((bead[0], bead[1]))
        if pairs >= WORD_PAIRS:
            break
    forward, backward = learn(beads, [len(side) for side in sides], seed=0)
    back = _likely(backward, likely)
    found: Partners = {}
    for (source_word, target_word), probability in _likely(forward, likely).items():
        least = min(probability, back.get((target_word, source_word), 0.0))
        if least >= likely:
            found.setdefault(names[0][source_word], {})[names[1][target_word]] = round(least, 4)
    return found


def _likely(lexicon: Lexicon, least: float) -> dict[tuple[int, int], float]:
    return {(given, other): value for given, other, value in lexicon.pairs(least)}


@dataclass(frozen=True)
class Changes:
    """The changes to documents of a training split, applied in order."""

    parts: tuple[Change, ...]

    @property
    def key(self) -> str:
        """Part of a cache's name: everything that determines the changes."""
        return " ".join(part.key for part in self.parts)

    def __call__(self, document: Document, epoch: int = 0) -> Document:
        """The document for one training epoch."""
        for part in self.parts:
            document = part(document, epoch)
        return document
