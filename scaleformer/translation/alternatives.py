"""Other translations of each segment of a document, with the rest of the translation fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scaleformer.decoding.config import DecodingConfig
from scaleformer.system.bars import Progress
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import Piece, PieceTranslator, known_of
from scaleformer.translation.translations import Translation


@dataclass(frozen=True)
class Alternative:
    """A translation of a segment, and the log-probability of the whole document that contains it."""

    text: str
    log_probability: float


def alternatives_config(config: DecodingConfig) -> DecodingConfig:
    """The search for alternatives: each source segment has its own translation."""
    return replace(config, match_segments=True, merge_segments=False)


def find_alternatives(
    translator: PieceTranslator,
    documents: Sequence[Sequence[str]],
    translations: Sequence[Translation],
    forced: Sequence[ForcedTexts],
    count: int,
    progress: Progress | None = None,
) -> list[list[list[Alternative]]]:
    """Up to `count` translations of each segment of each document, the best first.

    forced  of each document, as it was translated: a segment fixed there has no other translation

    Each comes from a beam of at least that width, with all other segments of the best translation fixed; these are
    tokenized again. Each segment costs as much as its whole document, so the time grows with the square of the number
    of segments.
    """
    width = max(count, translator.config.beam_size)
    config = replace(alternatives_config(translator.config), strategy="beam", beam_size=width, n_best=count)
    searched = [
        (document, n)
        for document, translation in enumerate(translations)
        for n in range(len(translation.segments))
        if n not in forced[document].fixed
    ]
    pieces, known = [], [known_of(*one, config) for one in zip(documents, forced, strict=True)]
    for document, n in searched:
        fixed = {m: text for m, text in enumerate(translations[document].segments) if m != n}
        given = ForcedTexts(fixed, {m: text for m, text in forced[document].begin.items() if m == n})
        pieces.append(Piece(documents[document], f"{document} {n}", given, known=known[document]))
    parts = replace(translator, config=config).translate(pieces, progress)
    found = dict(zip(searched, parts, strict=True))
    return [
        [
            _distinct(found[document, n], n)
            if (document, n) in found
            else [Alternative(text, translation.hypotheses[0].log_probability)]
            for n, text in enumerate(translation.segments)
        ]
        for document, translation in enumerate(translations)
    ]


def _distinct(translation: Translation, n: int) -> list[Alternative]:
    """Segment n of all hypotheses; equal texts from different tokens count once, with the best score."""
    texts: dict[str, Alternative] = {}
    for hypothesis in translation.hypotheses:
        if n < len(hypothesis.segments):  # a limit of the model ended the hypothesis earlier
            text = hypothesis.segments[n]
            texts.setdefault(text, Alternative(text, hypothesis.log_probability))
    return list(texts.values())
