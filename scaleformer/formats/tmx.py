"""Translation memories (TMX), read as a stream: a unit is a segment. Codes inside a text are their own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scaleformer.formats.bitexts import Bitext
from scaleformer.formats.lines import opened
from scaleformer.formats.markup import XML, stream_xml
from scaleformer.formats.rows import Row, one_segment, some
from scaleformer.system.errors import DataError

_Text = tuple[str, str | None]  # language and text; None: the variant has none


def read_rows(path: Path, name: str, bitext: Bitext, dropped: Counter[str]) -> Iterator[Row]:
    """The units of a memory as rows of the document `name`.

    Units without a text in both languages are left out and counted. Raises DataError with file and line.
    """
    for where, default, texts in _units(path):
        source, target = _pair(texts, bitext.languages, default, where, dropped)
        if source and target:
            yield Row(where, name, (source,), (target,))
        else:
            dropped["without a text in both languages"] += 1


def _units(path: Path) -> Iterator[tuple[str, str | None, list[_Text]]]:
    """Place, source language and texts of each unit."""
    default = source = None
    where = language = ""
    texts: list[_Text] = []
    pieces: list[str] | None = None  # of the first <seg> of a <tuv>
    inside = False
    with opened(path, "tmx") as stream:
        for token in stream_xml(stream, str(path), "tmx"):
            element = token.kind, token.local
            if inside and pieces is not None:
                pieces.append(token.text)
            if element == ("start", "header"):
                default = token.attributes.get("srclang")
            elif element == ("start", "tu"):
                where, texts = f"{path}:{token.line}", []
                source = token.attributes.get("srclang", default)
            elif element == ("start", "tuv"):
                language = _normal(token.attributes.get(f"{{{XML}}}lang") or token.attributes.get("lang") or "")
                pieces = None
            elif element == ("start", "seg"):
                inside, pieces = pieces is None, pieces or []
            elif element == ("end", "seg"):
                inside = False
            elif element == ("end", "tuv"):
                texts.append((language, None if pieces is None else one_segment("".join(pieces))))
            elif element == ("end", "tu"):
                yield where, source, texts


def _pair(
    found: list[_Text], languages: tuple[str | None, str | None], default: str | None, where: str, dropped: Counter[str]
) -> tuple[str, str]:
    texts: dict[str, str] = {}
    for language, text in found:
        if text is None or not language:
            raise DataError(f"{where}: a <tuv> without {'xml:lang' if text else '<seg>'}")
        if language in texts:
            dropped["a second text in a language"] += 1
        texts.setdefault(language, text)
    source = _chosen(texts, languages[0] or default or "")
    if source is None and languages[0] is None and _normal(default or "*all*") == "*all*":
        raise DataError(f"{where}: no srclang names the source language: set source_language=")
    others = {language: text for language, text in texts.items() if language != source}
    target = _chosen(others, languages[1]) if languages[1] else next(iter(others), None)
    if not languages[1] and len(others) > 1:
        raise DataError(f"{where}: texts in {some(texts)}: choose one with target_language=")
    return texts.get(source or "", ""), others.get(target or "", "")


def _chosen(texts: dict[str, str], language: str) -> str | None:
    """The key of a language, else of its first regional variant."""
    language = _normal(language)
    return language if language in texts else next((key for key in texts if key.startswith(f"{language}-")), None)


def _normal(language: str) -> str:
    return language.strip().replace("_", "-").lower()
