"""Why translations score so low, as far as the texts themselves tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.saved_translations import TranslatedDocument

#: s-BLEU below which `suspicions` are worth a look
LOW = 20.0
MOST = 300  # segments compared with all others


def suspicions(documents: Sequence[TranslatedDocument]) -> list[str]:
    """Lines on what probably is wrong with documents of a low score. Time grows with the text, and with the square of
    the first `MOST` segments.

    repetition   hypotheses have less than a tenth of the different sequences of three characters that references have
    language     of the words on one side alone, hypotheses have more than twice as many of the sources' as of the
                 references'
    order        the references of other segments share more than twice as many words with the hypotheses
                 (intersection over union, above 0.3 on average) as their own do

    Words are what spaces separate: the last two find little in scripts without spaces.
    """
    aligned = [s for d in documents for s in align_segments(d.hypothesis, d.target)]
    sides = aligned, [s for d in documents for s in d.target]
    few, many = (len({text[i : i + 3] for text in side for i in range(len(text) - 2)}) for side in sides)
    if 10 * few < many:
        return [
            f"the translations have {few} different sequences of three characters, the references {many}: "
            "train longer, or with a lower optimizer.learning_rate"
        ]
    sources = _words(s for d in documents for s in d.source)
    references = _words(s for d in documents for s in d.target)
    hypotheses = _words(aligned)
    source, reference = ({word for words in side for word in words} for side in (sources, references))
    found = []
    like_source, like_reference = (
        sum(len(words & side) for words in hypotheses) for side in (source - reference, reference - source)
    )
    if like_source > 2 * like_reference:
        found.append(
            "the translations have more words of the sources than of the references: are source and target swapped, or "
            "does the model copy?"
        )
    pairs = list(zip(hypotheses, references, strict=True))[:MOST]
    if len(pairs) > 1:
        own = mean(_alike(words, reference) for words, reference in pairs)
        other = mean(
            max(_alike(words, reference) for n, (_, reference) in enumerate(pairs) if n != place)
            for place, (words, _) in enumerate(pairs)
        )
        if other > max(2 * own, 0.3):
            found.append(
                "the translations are more like the references of other segments than like their own: are both sides "
                "of the corpus in the same order?"
            )
    return found


def _words(segments: Iterable[str]) -> list[set[str]]:
    return [set(segment.split()) for segment in segments]


def _alike(one: set[str], other: set[str]) -> float:
    """Intersection over union; 0 for two empty sets."""
    return len(one & other) / max(len(one | other), 1)
