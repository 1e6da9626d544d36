"""How sure a model is of each segment that it wrote: a prediction of the segment's chrF++ from its probability, alone
and among its neighbours, and from what the texts themselves tell.

Signs are turned so that more is better, weighed with no negative weight, and calibrated by a rising curve (isotonic
regression) on translations whose references are known. Related: [Fomicheva 2020, arXiv 2005.10608].
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translations import Judged, Translation
from scaleformer.translation.translator import Translator

NAME = "confidence.json"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
#: The signs of a segment, and what a reader is told where one is bad.
SIGNS = {
    "probability": "improbable words",
    "least": "one very improbable word",
    "alone": "improbable without its neighbours",
    "length": "unusual length",
    "numbers": "numbers differ",
    "repeats": "words repeated",
    "copied": "same as the source",
}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Confidence:
    """A calibration.

    means, deviations, weights  of the signs, in their order
    curve      the summed signs and the chrF++ expected there, both rising
    model      sha256 of the weights that it was made for
    """

    means: list[float]
    deviations: list[float]
    weights: list[float]
    curve: list[list[float]]
    model: str

    @classmethod
    def of(cls, translator: Translator) -> Confidence:
        """That of a model, beside its results. Raises DataError without one, or where it is of other weights."""
        path = place_of(translator)
        make = f"`scaleformer confidence checkpoint={translator.path}` makes it"
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DataError(f"{path}: missing: {make}") from None
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: not a calibration ({error}): {make}") from None
        if found.model != translator.sha256:
            raise DataError(f"{path}: of another checkpoint: {make}")
        return found

    def write(self, path: Path) -> None:
        """Raises OSError."""
        with atomic_writer(path) as file:
            json.dump(asdict(self), file, indent=2)

    def expect(self, signs: Array) -> Array:
        """The chrF++ to be expected, from 0 to 100, of segments with these signs (segments, signs)."""
        values = (signs - self.means) / self.deviations @ np.array(self.weights)
        return np.interp(values, self.curve[0], self.curve[1])

    def judge(
        self,
        translator: Translator,
        sources: Sequence[Sequence[str]],
        translations: Sequence[Translation],
        forced: Sequence[ForcedTexts] = (),
        tag: str | None = None,
    ) -> list[Translation]:
        """Translations of documents with what is to be expected of their segments; without it stay documents that have
        no text, or other segments than their source. forced: by document, the texts that were given, not written."""
        found = list(translations)
        told = [
            n for n, one in enumerate(found) if len(sources[n]) == len(one.segments) and any(map(str.strip, sources[n]))
        ]
        texts = [sources[n] for n in told], [found[n].segments for n in told]
        for n, signs in zip(told, signs_of(translator, *texts, tag), strict=True):
            passed = {*(forced[n].fixed if forced else ()), *found[n].hypotheses[0].shared}
            judged = [
                Judged(round(float(value), 1), self.reasons(row)) if text.strip() and place not in passed else None
                for place, (text, value, row) in enumerate(zip(sources[n], self.expect(signs), signs, strict=True))
            ]
            found[n] = replace(found[n], judged=tuple(judged))
        return found

    def reasons(self, signs: Array) -> tuple[str, ...]:
        """What is bad about a segment: signs at least two deviations below their mean, the weightiest first."""
        below = -(signs - np.array(self.means)) / self.deviations
        order = np.argsort(-below * np.array(self.weights), kind="stable")
        names = list(SIGNS)
        return tuple(SIGNS[names[i]] for i in order if below[i] >= 2)


def place_of(translator: Translator) -> Path:
    """Where the calibration of a model lies: in its folder, or next to the checkpoint."""
    path = translator.path
    return (path if path.is_dir() else path.parent) / NAME


def signs_of(
    translator: Translator, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], tag: str | None = None
) -> list[Array]:
    """The signs of each segment, (segments, signs) for each document; sources and targets match segment by segment."""
    whole = score_documents(translator, sources, targets, tag=tag)
    flat = ([[text] for document in documents for text in document] for documents in (sources, targets))
    alone = iter(score_documents(translator, *flat, tag=tag))
    found = []
    for source, target, document in zip(sources, targets, whole, strict=True):
        rows = []
        for s, t, score in zip(source, target, document.segments, strict=True):
            own = next(alone).segments[0]
            mean, mean_alone = score.log_probability / score.tokens, own.log_probability / own.tokens
            rows.append([mean, score.least, mean_alone, *_of_texts(s, t)])
        found.append(np.array(rows).reshape(len(rows), len(SIGNS)))
    return found


def _of_texts(source: str, target: str) -> list[float]:
    """The signs that need no model: length, numbers, repeats, copied."""
    words = target.split()
    repeated = len(words) - len(set(words)) if len(words) > 3 else 0
    here, there = (Counter(_NUMBER.findall(text)) for text in (source, target))
    differ = (here - there).total() + (there - here).total()
    return [
        -abs(math.log((len(target) + 5) / (len(source) + 5))),
        -float(min(differ, 5)),
        -repeated / max(len(words), 1),
        -float(source == target and any(map(str.isalpha, source))),
    ]
