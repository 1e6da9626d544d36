"""Does a translation choose the class of words that the reference has, where only other sentences decide it?

As in ACT [Hajlaoui & Popescu-Belis 2013], a segment counts where its reference uses exactly one class, and its
translation uses the same, the other, both or none. As in MuDA [Fernandes 2023], words of the target side tell the
class, and the measure of a class is F1, here over segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.context.choices import Choice
from scaleformer.evaluation.context.contrastive import ContextDocument, Phenomenon, context_report, grouped
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.significance import wilson
from scaleformer.system.bars import Progress
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Use:
    """A segment whose classes compete and whose reference uses exactly one of them.

    reference   that class
    used        the classes that the translation uses
    distance    segments back to the last such segment of the document, None if none is within reach
    shown       the class of the reference there, None without a distance
    steady      whether a translation of one class uses that of its own last one, None if none is within reach
    source, target, hypothesis  the texts
    wrong       the reference with another class, None where it cannot be swapped
    margin      log p(reference) - log p(wrong) of the segment, in nats; None if not scored
    """

    document: str
    segment: int
    choice: str
    reference: str
    used: tuple[str, ...]
    distance: int | None
    shown: str | None
    steady: bool | None
    source: str
    target: str
    hypothesis: str
    wrong: str | None
    margin: float | None = None

    @property
    def outcome(self) -> Literal["same", "other", "both", "none"]:
        """What the translation uses: the class of the reference, another one, several or none."""
        if len(self.used) != 1:
            return "both" if self.used else "none"
        return "same" if self.used[0] == self.reference else "other"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "outcome": self.outcome}


def find_uses(choices: Sequence[Choice], document: TranslatedDocument, reach: int) -> list[Use]:
    """The uses of a document, choice by choice; its hypothesis is aligned. Distances are at most `reach`. None where
    source and reference differ in segment count."""
    if len(document.source) != len(document.target):
        return []
    hypothesis = align_segments(document.hypothesis, document.target)
    found = []
    for choice in choices:
        last: tuple[int, str] | None = None
        own: tuple[int, str] | None = None
        for place, texts in enumerate(zip(document.source, document.target, hypothesis, strict=True)):
            source, target, written = texts
            if not choice.competes(source) or len(classes := choice.used(target)) != 1:
                continue
            used = choice.used(written)
            near, before = (kept if kept and place - kept[0] <= reach else None for kept in (last, own))
            steady = used[0] == before[1] if before and len(used) == 1 else None
            distance, shown = (place - near[0], near[1]) if near else (None, None)
            where = document.id, place, choice.name
            found.append(Use(*where, classes[0], used, distance, shown, steady, *texts, choice.swapped(target)))
            last, own = (place, classes[0]), (place, used[0]) if len(used) == 1 else own
    return found


def with_margins(
    documents: Sequence[TranslatedDocument],
    uses: Sequence[Sequence[Use]],
    translator: Translator,
    context: int,
    tag: str | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> list[list[Use]]:
    """The uses of each document, with the margins of those that can be swapped; the model sees `context` segments of
    source and reference before them."""
    labelled = []
    for document, own in zip(documents, uses, strict=True):
        phenomena = tuple(Phenomenon(u.segment, (u.wrong,), u.distance, u.choice) for u in own if u.wrong is not None)
        labelled.append(ContextDocument(document.id, document.source, document.target, phenomena))
    if not any(document.phenomena for document in labelled):
        return [list(own) for own in uses]
    report = context_report(translator, labelled, generative=False, context=context, tag=tag, progress=progress)
    margins = iter(outcome.margin for outcome in report.outcomes)
    return [[use if use.wrong is None else replace(use, margin=next(margins)) for use in own] for own in uses]


def score_choices(uses: Sequence[Use], reach: int) -> list[dict[str, Any]]:
    """The scores of each choice, and of all if there are several: at all distances, within reach, and at each. Plain
    values for JSON (docs/result-files.md)."""
    scores, single = [], len({use.choice for use in uses}) == 1
    for name, distance, own in grouped(uses, lambda use: (use.choice, use.distance), "none"):
        choice = own[0].choice if single else name
        scores.append({"choice": choice, "distance": distance, **_score(own)})
        near = [use for use in own if use.distance is not None]
        if distance == "all" and reach > 1 and near:
            scores.append({"choice": choice, "distance": f"1-{reach}", **_score(near)})
    return scores


def score_classes(choices: Sequence[Choice], uses: Sequence[Use]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of the classes that references or translations use alone. Plain values for JSON."""
    found = []
    for choice in choices:
        own = [use for use in uses if use.choice == choice.name]
        for name in choice.classes:
            wanted, given = sum(use.reference == name for use in own), sum(use.used == (name,) for use in own)
            right = sum(use.outcome == "same" for use in own if use.reference == name)
            if wanted + given:
                row = {"choice": choice.name, "class": name, "references": wanted, "translations": given}
                row |= {"precision": right / given if given else None, "recall": right / wanted if wanted else None}
                found.append({**row, "f1": 2 * right / (wanted + given)})
    return found


def count_right(uses: Sequence[Sequence[Use]], choice: str) -> list[tuple[int, int]]:
    """Right uses and all uses of each document that has any, of one choice or of "all": what `Accuracy` compares."""
    own = [[use.outcome == "same" for use in document if choice in ("all", use.choice)] for document in uses]
    return [(sum(right), len(right)) for right in own if right]


def _score(uses: Sequence[Use]) -> dict[str, Any]:
    outcomes = [use.outcome for use in uses]
    margins = [use.margin > 0 for use in uses if use.margin is not None]
    accuracy = outcomes.count("same") / len(uses)
    return {
        "count": len(uses),
        **{outcome: outcomes.count(outcome) for outcome in ("same", "other", "both", "none")},
        "accuracy": accuracy,
        "interval": wilson(accuracy, len(uses)),
        "as_shown": _share([use.shown == use.reference for use in uses if use.shown is not None]),
        "steady": _share([use.steady for use in uses if use.steady is not None]),
        "swapped": len(margins),
        "contrastive": _share(margins),
    }


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
