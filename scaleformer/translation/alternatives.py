"""Other translations of each segment of a document, the rest of it staying as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scaleformer.translation.config import DecodingConfig
from scaleformer.translation.pieces import translate_pieces
from scaleformer.translation.told import Told
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Alternative:
    """A translation of a segment, and the log-probability of the whole document with it in its place."""

    text: str
    log_probability: float


def alternatives_config(config: DecodingConfig) -> DecodingConfig:
    """The search of documents that get alternatives: each source segment has a translation of its own."""
    return replace(config, match_segments=True, merge_segments=False)


def find_alternatives(
    translator: Translator,
    documents: Sequence[Sequence[str]],
    translations: Sequence[Translation],
    told: Sequence[Told],
    config: DecodingConfig,
    count: int,
    progress: Callable[[float, int], None] | None = None,
) -> list[list[list[Alternative]]]:
    """Of each document and each of its segments up to `count` translations, the best first, by a beam of at least that
    width with all other segments of the best translation fixed. What is fixed by `told` has no others.

    Every segment costs what its document costs with that beam: the time grows with the square of the number of
    segments. The fixed text is cut into tokens anew.
    """
    width = max(count, config.beam_size)
    config = replace(alternatives_config(config), strategy="beam", beam_size=width, n_best=count)
    asked = [
        (document, n)
        for document, translation in enumerate(translations)
        for n in range(len(translation.segments))
        if n not in told[document].fixed
    ]
    sources = [list(documents[document]) for document, _ in asked]
    rest = [
        Told(
            {m: text for m, text in enumerate(translations[document].segments) if m != n},
            {n: told[document].begin[n]} if n in told[document].begin else {},
        )
        for document, n in asked
    ]
    keys = [f"{document} {n}" for document, n in asked]
    parts = translate_pieces(translator, sources, keys, rest, config, translator.tag_tokens(), progress)
    found = dict(zip(asked, parts, strict=True))
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
    """Segment n of all hypotheses; a text that was written in several ways counts once, as the best of them."""
    texts: dict[str, Alternative] = {}
    for hypothesis in translation.hypotheses:
        if n < len(hypothesis.segments):  # a limit of the model ended it before
            text = hypothesis.segments[n]
            texts.setdefault(text, Alternative(text, hypothesis.log_probability))
    return list(texts.values())
