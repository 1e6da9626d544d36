"""Documents from requests: lists of segments, texts, and files of every supported format."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from anyio import to_thread

from scaleformer.formats.lines import Input
from scaleformer.formats.segments import Kept
from scaleformer.server.models import Model, Settings
from scaleformer.server.reading import Prose, Read
from scaleformer.server.requests import Options, SourceDocument
from scaleformer.system.errors import DataError
from scaleformer.translation.files.documents import (
    Split,
    check_format,
    check_language,
    choose_file_decoding,
    choose_splitting,
    read_lines_file,
)
from scaleformer.translation.files.lines import LinesFile
from scaleformer.translation.forced import ForcedTexts, read_forced

UNPACKED = 16  # times the largest body: the limit for unpacked archives
_GZIP = b"\x1f\x8b"
#: Gives `Prose.read` of each.
ReadAll = Callable[[Sequence[Prose]], Awaitable[Sequence[Read]]]


@dataclass(frozen=True)
class Source:
    """A document to translate. file: the text or file that it came from; kept: what the placeholders of each segment
    stand for, () if that is unknown; draft, forced: as in `SourceDocument`; remembered: segments that somebody
    corrected before."""

    name: str
    segments: Sequence[str]
    settings: Settings
    file: Prose | LinesFile | None = None
    kept: Sequence[Kept] = ()
    draft: Sequence[str] | None = None
    forced: ForcedTexts = field(default_factory=ForcedTexts)
    remembered: Sequence[int] = ()

    @property
    def size(self) -> int:
        """How much there is to read, in bytes or characters."""
        drafted = sum(map(len, self.draft or ()))
        return drafted + (self.file.size if isinstance(self.file, Prose) else sum(map(len, self.segments)))


@dataclass(frozen=True)
class Splitting:
    """How prose is split by default."""

    split: Split
    source_language: str | None

    def choose(self, model: Model, options: Options) -> tuple[str, str]:
        """The grain and the language. Without a known language prose is split into paragraphs, unless the client asks
        for sentences. Raises ValueError."""
        split = options.split or self.split
        language = options.source_language or self.source_language or model.reads
        if split == "auto" and not language:
            split = "paragraph"
        return choose_splitting(model.translator, split, language)


async def split_texts(
    texts: Sequence[tuple[str, str]],
    format: str,
    options: Options,
    settings: Settings,
    splitting: Splitting,
    read: ReadAll,
) -> list[tuple[Prose, Read]]:
    """Texts, given by their names in messages, with their segments. Raises ValueError in one line."""
    grain, language = splitting.choose(settings.model, options)
    check_language(format, language, grain)
    target = settings.model.target_language(settings.tag) or options.target_language or ""
    coded = [(name, text.encode()) for name, text in texts]
    proses = [Prose(content, name, format, language, grain, len(content), target) for name, content in coded]
    return list(zip(proses, await read(proses), strict=True))


def with_spans(settings: Settings, spans: int) -> Settings:
    """The settings for prose with so many spans, which each segment of the translation has to have."""
    decoding = choose_file_decoding(settings.model.translator, replace(settings.decoding, n_best=1), spans)
    return replace(settings, decoding=replace(decoding, n_best=settings.decoding.n_best))


async def open_documents(
    documents: Sequence[SourceDocument], options: Options, settings: Settings, splitting: Splitting, read: ReadAll
) -> list[Source]:
    """The documents of a request. Raises ValueError in one line."""
    names = [str(number) if document.id is None else document.id for number, document in enumerate(documents)]
    texts = {n: document.text for n, document in enumerate(documents) if document.text is not None}
    found = [Source(name, document.source or (), settings) for name, document in zip(names, documents, strict=True)]
    if texts:
        given = [(f"document {names[n]}", text) for n, text in texts.items()]
        split = await split_texts(given, "text", options, settings, splitting, read)
        for number, (prose, (segments, kept, _)) in zip(texts, split, strict=True):
            found[number] = Source(names[number], segments, with_spans(settings, sum(map(len, kept))), prose, kept)
    for number, (source, document) in enumerate(zip(found, documents, strict=True)):
        forced = read_forced(vars(document), source.name, len(source.segments))
        settings = source.settings.with_terms(document.terms, f"{source.name}: terms")
        found[number] = replace(source, draft=document.draft, forced=forced, settings=settings)
    return found


async def open_upload(
    content: bytes, name: str, options: Options, largest: int, settings: Settings, splitting: Splitting, read: ReadAll
) -> list[Source]:
    """The documents of a file. Raises DataError in one line if the file cannot be read or is too large when unpacked;
    ValueError for wrong settings."""
    name = clean_name(name)
    if content.startswith(_GZIP):
        raise DataError(f"{name}: is compressed: send it uncompressed")
    size = await to_thread.run_sync(_unpacked, content, name, UNPACKED * largest)
    model = settings.model
    grain, language = splitting.choose(model, options)
    source = Input(name, content)
    format = check_format(source)
    if format == "jsonl":
        lines = await to_thread.run_sync(read_lines_file, source, format)
        alike = replace(settings, decoding=choose_file_decoding(model.translator, settings.decoding, 0))
        given = [(one, alike.with_terms(one.terms, f"{one.name}: terms")) for one in lines.documents]
        return [Source(one.name, one.source, own, lines, draft=one.draft, forced=one.forced) for one, own in given]
    by_line = format == "text" and (options.split or splitting.split) == "auto"
    grain = "none" if by_line else grain
    check_language(format, language, grain)
    target = model.target_language(settings.tag) or options.target_language or ""
    prose = Prose(content, name, format, language, grain, size, target)
    [(segments, kept, known)] = await read([prose])
    alike = replace(settings, decoding=choose_file_decoding(model.translator, settings.decoding, sum(map(len, kept))))
    return [Source(name, segments, alike, prose, kept, forced=ForcedTexts(known=known))]


def target_name(name: str, source: str, target: str) -> str:
    """The name of a translated file, with the code of its language: page.es.md for page.md and page.en.md; "" if a
    language is unknown."""
    path = PurePath(clean_name(name))
    stem = re.sub(rf"[._-]{re.escape(source)}$", "", path.stem) if source else path.stem
    return f"{stem}.{target or 'translated'}{path.suffix}"


def clean_name(name: str) -> str:
    """The name of an uploaded file without folders or line breaks, cut to 100 characters."""
    last = re.split(r"[/\\]", name)[-1]
    last = "".join(character for character in last if character.isprintable()).strip()
    suffix = PurePath(last).suffix[:13]
    return f"{last.removesuffix(suffix)[: 100 - len(suffix)]}{suffix}" or "file.txt"


def _unpacked(content: bytes, name: str, most: int) -> int:
    """The size of a file, of an archive that of all its parts. Raises DataError if they are too large."""
    if not content.startswith(b"PK"):
        return len(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except Exception:  # the reader reports damaged archives
        return len(content)
    if size > most:
        raise DataError(f"{name}: {size:,} bytes unpacked, more than {most:,}: split it")
    return size
