"""Are requested terms used? Tests words of the test split that the training split translates in two ways.

A lexicon of the training split (IBM model 1, `scaleformer.data.align.lexicon`) finds the two ways.

    python -m scripts.terms CHECKPOINT [--data FOLDER] [--count 300] [--ask other]

Each word is requested as in the reference, or in the other way, with two segments on either side. Prints and writes the
share of requested forms without and with the term, BLEU likewise, and how many segments without a term changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import regex
import sacrebleu

from scaleformer.data.align.lexicon import WORD_PAIRS, Lexicon, Vocabulary, learn
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import check_file
from scaleformer.system.provenance import write_result
from scaleformer.text.documents import Document
from scaleformer.text.stems import stem
from scaleformer.text.terms import Term, find_terms
from scaleformer.text.words import unspaced
from scaleformer.translation.request import Request
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator
from scripts.arguments import Parser

Ask = Literal["reference", "other"]
LIKELY = 0.1  # least probability of each of the two translations, in either direction
SHORTEST = 4  # letters in such a word
_WORD = regex.compile(r"(?<!\w)[\p{L}\p{M}][\w\p{M}]*")  # excludes placeholders and numbers

Partners = dict[str, dict[str, float]]  # source word, target word: the lower of their two probabilities


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


def learn_partners(documents: Iterable[Document], likely: float) -> Partners:
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


def two_ways(documents: Iterable[Document], language: str = "") -> dict[str, tuple[str, str]]:
    """Words with their two most likely translations in these documents, which differ by more than an ending."""
    found = {}
    for word, ways in learn_partners(documents, LIKELY).items():
        best = sorted(ways, key=lambda way: (-ways[way], way))
        second = [way for way in best[1:] if stem(way, language) != stem(best[0], language) and best[0][:4] != way[:4]]
        if len(word) >= SHORTEST and second and word != best[0] and word != second[0]:
            found[word] = (best[0], second[0])
    return found


def find_required(
    documents: Iterable[Document],
    ways: dict[str, tuple[str, str]],
    count: int,
    ask: Ask,
    around: int = 2,
    languages: tuple[str, str] = ("", ""),
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
                term = Term(word, way, languages)
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


def main(given: Sequence[str] | None = None) -> None:
    """The program: its arguments are those in the text of the module."""
    parser = Parser("python -m scripts.terms", __doc__)
    parser.add_argument("checkpoint", help="a run directory, a checkpoint file or an exported model")
    parser.add_argument("--data", help="folder of a corpus in JSON Lines instead of that of the run")
    parser.add_argument("--count", type=int, default=300, help="segments with a term; at most a tenth with the same")
    parser.add_argument("--ask", choices=get_args(Ask), default="reference", help="which translation to request")
    parser.add_argument("--split", default="test", help="of the segments; the translations come from train")
    parser.add_argument("--output", help="file of the result; None is results/terms-ASK-SPLIT.json of the run")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    options = parser.parse_args(given)
    check_file("output", options.output)
    translator = Translator.load(options.checkpoint, options.device)
    data = None if options.data is None else {"format": "jsonl", "path": options.data}
    train, test = (choose_corpus(translator.config, data, split).source.read() for split in ("train", options.split))
    languages = translator.languages()
    required = find_required(test, two_ways(train, languages[1]), options.count, options.ask, languages=languages)
    score = score_terms(translator, required, translator.decoding)
    path = Path(options.output or results_folder(translator.path) / f"terms-{options.ask}-{options.split}.json")
    conditions = {"kind": "terms", "ask": options.ask, "split": options.split, "required": options.count}
    write_result(path, {**provenance_of(translator), **conditions, "scores": asdict(score)})
    print(f"{score.terms:,} terms, {score.words:,} words, requested as the {options.ask}")
    print(f"requested form: {score.before:.1%} without, {score.after:.1%} with ({score.inflected:.1%} with endings)")
    print(f"BLEU: {score.bleu_before:.2f} without terms, {score.bleu_after:.2f} with")
    print(f"segments without a term: {score.changed:,} of {score.others:,} changed")
    print(f"written to {path}")


if __name__ == "__main__":
    with one_line_errors():
        main()
