"""Scores what only earlier segments decide: pronouns, terms, anything with known right and wrong translations.

Contrastive [Bawden 2018; Müller 2018, ContraPro]: a model is right if it gives the right translation of a segment a
higher probability than every wrong one, given the segments before. Generative: it is right if its own translation of
the segment has the words by which the right one differs from the wrong ones, and none of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.significance import wilson
from scaleformer.system.bars import Progress
from scaleformer.system.schema import check_type
from scaleformer.text.words import bare_words
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.translator import Translator

Verdict = Literal["right", "wrong", "unclear"]
T = TypeVar("T")


@dataclass(frozen=True)
class Phenomenon:
    """A segment with known right and wrong translations; the right one is the reference's.

    segment   its index
    wrong     translations of the segment, each wrong; at least one
    distance  segments back to the deciding one; None if unknown
    kind      "pronoun", "term" ...
    """

    segment: int
    wrong: tuple[str, ...]
    distance: int | None = None
    kind: str = ""


@dataclass(frozen=True)
class ContextDocument:
    """Segments in order, with their reference and the phenomena to test. target may end with the last phenomenon's
    segment; segments after it are not read."""

    id: str
    source: Sequence[str]
    target: Sequence[str]
    phenomena: tuple[Phenomenon, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of a model on one phenomenon.

    margin    log p(right) - max log p(wrong) of the segment, in nats; None if not scored
    verdict   on its own translation: "right" (words of the right one, none of the wrong ones), "wrong" (the reverse),
              "unclear" (both or neither); None if not translated
    """

    document: str
    phenomenon: Phenomenon
    margin: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class ContextScore:
    """The outcomes of one kind at one distance (or in a range of distances, "9-16").

    count           phenomena
    chance          share that guessing gets right: the mean of 1 / (1 + wrong translations)
    contrastive     share whose right translation is the most probable; None if not scored
    generative      share of verdicts that are "right"; wrong and unclear are the other shares
    """

    kind: str
    distance: str
    count: int
    chance: float
    contrastive: float | None
    generative: float | None
    wrong: float | None
    unclear: float | None

    def interval(self, share: float) -> tuple[float, float]:
        """The 95% interval of a share of `count`."""
        return wilson(share, self.count)


@dataclass(frozen=True)
class ContextReport:
    """Scores of everything (kind "all") and of each kind, at all distances together ("all") and at each."""

    outcomes: tuple[Outcome, ...]
    context: int | None

    @cached_property
    def scores(self) -> tuple[ContextScore, ...]:
        """The scores of the outcomes, in that order."""
        groups = grouped(self.outcomes, lambda outcome: (outcome.phenomenon.kind, outcome.phenomenon.distance))
        return tuple(_summary(*group) for group in groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; with the intervals of the shares."""
        rows = []
        for score in self.scores:
            row = asdict(score)
            for name in ("contrastive", "generative"):
                share = getattr(score, name)
                row[f"{name}_interval"] = None if share is None else list(score.interval(share))
            rows.append(row)
        return {"context": self.context, "scores": rows}


def context_report(
    translator: Translator, documents: Sequence[ContextDocument], *, contrastive: bool = True, generative: bool = True,
    context: int | None = None, mode: Mode = "document", decoding: DecodingConfig | None = None, tag: str | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> ContextReport:  # fmt: skip
    """Contrastive and generative scores of all phenomena of the documents.

    context   segments before a phenomenon that the model sees; None for all, 0 for none (what can be guessed)
    mode      of the translation, as in `Request`
    decoding  of the translation; None for the settings of the model's own run. It must write as many segments as the
              source has, so that they can be compared one by one
    tag       of what is scored; None for the translator's
    progress  called with "scoring" or "translating", returns the function to report progress to
    Raises ValueError without phenomena, for one outside its document, and for a wrong translation equal to the right.
    """
    for document in documents:
        _check(document)
    cases = [(document, phenomenon) for document in documents for phenomenon in document.phenomena]
    if not cases:
        raise ValueError("no document has a labelled segment: there is nothing to score")
    if context is not None and context < 0:
        raise ValueError(f"context={context}: wanted 0 or more segments, or null for all")
    check_type("mode", mode, Mode)  # before the scoring, which takes long
    if not contrastive and not generative:
        raise ValueError("contrastive=false and generative=false: set one of them to true")
    track: Callable[[str], Progress | None] = progress if progress is not None else lambda what: None
    margins: Sequence[float | None] = [None] * len(cases)
    verdicts: Sequence[Verdict | None] = [None] * len(cases)
    if contrastive:
        margins = _margins(translator, cases, context, tag, track("scoring"))
    if generative:
        verdicts = _verdicts(translator, cases, context, mode, decoding or translator.decoding, track("translating"))
    outcomes = (
        Outcome(document.id, phenomenon, margin, verdict)
        for (document, phenomenon), margin, verdict in zip(cases, margins, verdicts, strict=True)
    )
    return ContextReport(tuple(outcomes), context)


def judge(hypothesis: str, right: str, wrong: Sequence[str]) -> Verdict:
    """Judge a translation by the words in which right and wrong ones differ, case ignored.

    Words that the right one has more often than a wrong one count for it; words that a wrong one has more often count
    against it. Where the wrong ones only add words, having none of them counts as right.
    """
    words, good = _words(hypothesis), _words(right)
    bad = [_words(text) for text in wrong]
    needed = {word for other in bad for word in good - other}
    forbidden = {word for other in bad for word in other - good} - needed
    has_right = any(words[word] >= good[word] for word in needed)
    has_wrong = any(words[word] > good[word] for word in forbidden)
    if forbidden and not needed:
        has_right = not has_wrong
    if has_right == has_wrong:
        return "unclear"
    return "right" if has_right else "wrong"


def distance_range(distance: int | None, unknown: str = "?") -> str:
    """The row of a distance: the distance itself up to 8, then 9-16, 17-32 and so on; `unknown` for None."""
    if distance is None:
        return unknown
    if distance <= 8:
        return str(distance)
    top = 1 << (distance - 1).bit_length()
    return f"{top // 2 + 1}-{top}"


def grouped(
    members: Sequence[T], place: Callable[[T], tuple[str, int | None]], unknown: str = "?"
) -> Iterator[tuple[str, str, list[T]]]:
    """Kind, distance and members of each group: of all kinds ("all"), then of each if there are several; of these at
    all distances ("all"), then at each, as `distance_range` has it.

    place    kind and distance of a member
    unknown  the distance None
    """
    kinds = sorted({place(member)[0] for member in members})
    groups = {"all": list(members)}
    if len(kinds) > 1:
        groups |= {kind or "other": [m for m in members if place(m)[0] == kind] for kind in kinds}
    for name, own in groups.items():
        yield name, "all", own
        by_range: dict[str, list[T]] = {}
        for member in sorted(own, key=lambda m: (place(m)[1] is None, place(m)[1] or 0)):
            by_range.setdefault(distance_range(place(member)[1], unknown), []).append(member)
        for distance, some in by_range.items():
            yield name, distance, some


def _check(document: ContextDocument) -> None:
    for phenomenon in document.phenomena:
        place = phenomenon.segment
        if not 0 <= place < min(len(document.source), len(document.target)):
            raise ValueError(
                f"document {document.id!r}: segment {place} is labelled, but there are {len(document.source)} source "
                f"and {len(document.target)} target segments"
            )
        if not phenomenon.wrong:
            raise ValueError(f"document {document.id!r}, segment {place}: no wrong translation to compare with")
        if document.target[place] in phenomenon.wrong:
            raise ValueError(f"document {document.id!r}, segment {place}: a wrong translation equals the right one")


def _start(phenomenon: Phenomenon, context: int | None) -> int:
    return 0 if context is None else max(0, phenomenon.segment - context)


def _margins(
    translator: Translator,
    cases: Sequence[tuple[ContextDocument, Phenomenon]],
    context: int | None,
    tag: str | None,
    progress: Progress | None,
) -> list[float]:
    sources, targets = [], []
    for document, phenomenon in cases:
        start, end = _start(phenomenon, context), phenomenon.segment
        for variant in (document.target[end], *phenomenon.wrong):
            sources.append(list(document.source[start : end + 1]))
            targets.append([*document.target[start:end], variant])
    scores = iter(score_documents(translator, sources, targets, tag=tag, progress=progress))
    margins = []
    for _, phenomenon in cases:
        right, *wrong = (next(scores).segments[-1].log_probability for _ in range(1 + len(phenomenon.wrong)))
        margins.append(right - max(wrong))
    return margins


def _verdicts(
    translator: Translator,
    cases: Sequence[tuple[ContextDocument, Phenomenon]],
    context: int | None,
    mode: Mode,
    decoding: DecodingConfig,
    progress: Progress | None,
) -> list[Verdict]:
    """With all context, translate each document once; otherwise each phenomenon with its context."""
    matched = replace(decoding, match_segments=True, n_best=1)
    windows = []
    for document, phenomenon in cases:
        last = max(p.segment for p in document.phenomena) if context is None else phenomenon.segment
        windows.append((document.id, tuple(document.source[_start(phenomenon, context) : last + 1])))
    unique = list(dict.fromkeys(windows))
    request = Request([segments for _, segments in unique], matched, [name for name, _ in unique], mode)
    found = translator.translate_documents(request, Listener(progress))
    translated = dict(zip(unique, found, strict=True))
    verdicts = []
    for (document, phenomenon), window in zip(cases, windows, strict=True):
        start = _start(phenomenon, context)
        reference = document.target[start : start + len(window[1])]
        aligned = align_segments(translated[window].segments, reference)  # a cut document has fewer segments
        hypothesis = aligned[phenomenon.segment - start]
        verdicts.append(judge(hypothesis, document.target[phenomenon.segment], phenomenon.wrong))
    return verdicts


def _words(text: str) -> Counter[str]:
    return Counter(bare_words(text.casefold()))


def _summary(kind: str, distance: str, outcomes: Sequence[Outcome]) -> ContextScore:
    margins = [o.margin for o in outcomes if o.margin is not None]
    verdicts = [o.verdict for o in outcomes if o.verdict is not None]

    def share(verdict: Verdict) -> float | None:
        return verdicts.count(verdict) / len(verdicts) if verdicts else None

    return ContextScore(
        kind=kind,
        distance=distance,
        count=len(outcomes),
        chance=sum(1 / (1 + len(o.phenomenon.wrong)) for o in outcomes) / len(outcomes),
        contrastive=sum(margin > 0 for margin in margins) / len(margins) if margins else None,
        generative=share("right"),
        wrong=share("wrong"),
        unclear=share("unclear"),
    )
