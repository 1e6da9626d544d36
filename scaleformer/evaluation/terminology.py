"""Are requested terms used? Tests words that the training text translates in two ways, requesting one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import sacrebleu

from scaleformer.data.augment.annotating import learn_partners
from scaleformer.decoding.config import DecodingConfig
from scaleformer.text.documents import Document
from scaleformer.text.terms import Term, find_terms, pattern_of
from scaleformer.translation.request import Request
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator

Ask = Literal["reference", "other"]
LIKELY = 0.1  # least probability of each of the two translations, in either direction
SHORTEST = 4  # letters in such a word


@dataclass(frozen=True)
class RequiredTerm:
    """A segment of a test document with its neighbours, and the term requested for it."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    segment: int
    term: Term


@dataclass(frozen=True)
class TermScore:
    """The results on a number of segments with a term.

    before, after          share of segments whose translation has the requested target form, case ignored, without and
                           with the terms; inflected: with them, also with a different ending
    bleu_before, bleu_after  of all segments of the windows
    others, changed        segments without a term, and how many of them change when terms are given
    """

    terms: int
    words: int
    before: float
    after: float
    inflected: float
    bleu_before: float
    bleu_after: float
    others: int
    changed: int


def two_ways(documents: Iterable[Document]) -> dict[str, tuple[str, str]]:
    """Words with their two most likely translations in these documents, which differ by more than an ending."""
    found = {}
    for word, ways in learn_partners(documents, LIKELY).items():
        best = sorted(ways, key=lambda way: (-ways[way], way))
        second = [way for way in best[1:] if not (_same(best[0], way) or _same(way, best[0]))]
        if len(word) >= SHORTEST and second and word != best[0] and word != second[0]:
            found[word] = (best[0], second[0])
    return found


def _same(form: str, other: str) -> bool:
    return pattern_of(form).fullmatch(other) is not None or form[:4] == other[:4]


def find_required(
    documents: Iterable[Document], ways: dict[str, tuple[str, str]], count: int, ask: Ask, around: int = 2
) -> list[RequiredTerm]:
    """The first `count` segments whose source has exactly one of the words and whose reference has one translation.
    No segment is in two windows, and no word is tested more often than a tenth of `count`, rounded up.

    ask: "reference" for the translation in the reference, "other" for the other one; around: segments on either side.
    """
    found: list[RequiredTerm] = []
    used: dict[str, int] = {}
    for document in documents:
        if len(document.source) != len(document.target):
            continue
        free = 0
        for n, (source, target) in enumerate(zip(document.source, document.target, strict=True)):
            if n < free or len(found) == count:
                continue
            words = [word for word in re.findall(r"\w+", source.casefold()) if word in ways]
            theirs = re.findall(r"\w+", target.casefold())
            for word in words:
                there = [way for way in ways[word] if way in theirs]
                if len(there) != 1 or used.get(word, 0) >= -(-count // 10):
                    continue
                way = there[0] if ask == "reference" else next(way for way in ways[word] if way != there[0])
                term = Term(word, way)
                first, stop = max(free, n - around), min(n + 1 + around, len(document.source))
                if len(find_terms(" ".join(document.source[first:stop]), [term])) == 1:
                    window = document.source[first:stop], document.target[first:stop]
                    found.append(RequiredTerm(*window, n - first, term))
                    used[word], free = used.get(word, 0) + 1, stop
                    break
    return found


def score_terms(translator: Translator, required: Sequence[RequiredTerm], config: DecodingConfig) -> TermScore:
    """Translate the windows without and with the terms. Raises ValueError without windows."""
    if not required:
        raise ValueError("no segment has a word that the training text translates in two ways")
    sources = [one.source for one in required]
    usual = translator.translate_documents(Request(sources, config))
    terms = [{one.term.source: one.term.target} for one in required]
    given = translator.translate_documents(Request(sources, config, terms=terms))

    def has(one: RequiredTerm, translation: Translation) -> bool:
        return re.search(rf"\b{re.escape(one.term.target)}\b", translation.segments[one.segment], re.I) is not None

    def share(hits: Iterable[bool]) -> float:
        return sum(hits) / len(required)

    def bleu(translations: Sequence[Translation]) -> float:
        written = [text for translation in translations for text in translation.segments]
        return sacrebleu.corpus_bleu(written, [[text for one in required for text in one.target]]).score

    rest = [
        (old, new)
        for one, before, after in zip(required, usual, given, strict=True)
        for n, (old, new) in enumerate(zip(before.segments, after.segments, strict=True))
        if n != one.segment
    ]
    return TermScore(
        len(required),
        len({one.term.source for one in required}),
        share(has(*pair) for pair in zip(required, usual, strict=True)),
        share(has(*pair) for pair in zip(required, given, strict=True)),
        share(a.term.count(t.segments[a.segment]) > 0 for a, t in zip(required, given, strict=True)),
        bleu(usual),
        bleu(given),
        len(rest),
        sum(old != new for old, new in rest),
    )
