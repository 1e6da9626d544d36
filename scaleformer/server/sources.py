"""Documents from requests: lists of segments, texts, and files of every supported format."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from scaleformer.server.requests import Options, SourceDocument
from scaleformer.server.worker import Settings
from scaleformer.system.errors import DataError
from scaleformer.translation.files.documents import ProseFile, Split, choose_file_decoding, choose_splitting, open_file
from scaleformer.translation.files.lines import LinesFile
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator

UNPACKED = 16  # times the largest body: the limit for unpacked archives
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """A document to translate. file: the text or file that it came from."""

    name: str
    segments: Sequence[str]
    settings: Settings
    file: ProseFile | LinesFile | None = None

    def write(self, translation: Translation, counts: Counter[str]) -> str:
        """The translation of a document given as text."""
        assert self.file is not None
        return self.file.write([translation], counts).decode()


@dataclass(frozen=True)
class Splitting:
    """How prose is split by default."""

    split: Split
    source_language: str | None

    def choose(self, translator: Translator, options: Options) -> tuple[str, str]:
        """The grain and the language. Without a known language prose is split into paragraphs, unless the client asks
        for sentences. Raises ValueError."""
        split = options.split or self.split
        language = options.source_language or self.source_language
        if split == "auto" and not (language or translator.segmentation.get("source_language")):
            split = "paragraph"
        return choose_splitting(translator, split, language)


def open_documents(
    translator: Translator,
    documents: Sequence[SourceDocument],
    options: Options,
    splitting: Splitting,
    settings: Settings,
) -> list[Source]:
    """The documents of a request. Raises ValueError in one line."""
    found = []
    for number, document in enumerate(documents):
        name = str(number) if document.id is None else document.id
        if document.source is not None:
            found.append(Source(name, document.source, settings))
            continue
        grain, language = splitting.choose(translator, options)
        file = ProseFile((document.text or "").encode(), f"document {name}", "text", language, grain)
        decoding = choose_file_decoding(translator, replace(settings.decoding, n_best=1), [file])
        alike = replace(settings, decoding=replace(decoding, n_best=settings.decoding.n_best))
        found.append(Source(name, file.documents[0].source, alike, file))
    return found


def open_upload(
    translator: Translator,
    content: bytes,
    name: str,
    options: Options,
    splitting: Splitting,
    settings: Settings,
    largest: int,
) -> list[Source]:
    """The documents of a file. Raises DataError in one line if the file cannot be read or is too large when unpacked;
    ValueError for wrong settings."""
    name = clean_name(name)
    if content.startswith(_GZIP):
        raise DataError(f"{name}: is compressed: send it uncompressed")
    _check_archive(content, name, UNPACKED * largest)
    grain, language = splitting.choose(translator, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{''.join(re.findall(r'[.][A-Za-z0-9]{1,12}$', name))}"  # reveals its format
        path.write_bytes(content)
        try:
            as_prose = (options.split or splitting.split) != "auto"
            file = open_file(path, language, grain, as_prose, translator.target_language(options.tag))
        except DataError as error:
            raise DataError(str(error).replace(str(path), name)) from error
    alike = replace(settings, decoding=choose_file_decoding(translator, settings.decoding, [file]))
    names = [(document.name or document.id).replace(str(path), name) for document in file.documents]
    return [Source(each, one.source, alike, file) for each, one in zip(names, file.documents, strict=True)]


def clean_name(name: str) -> str:
    """The name of an uploaded file without folders or line breaks, cut to 100 characters."""
    last = re.split(r"[/\\]", name)[-1]
    last = "".join(character for character in last if character.isprintable()).strip()
    suffix = PurePath(last).suffix[:13]
    return f"{last.removesuffix(suffix)[: 100 - len(suffix)]}{suffix}" or "file.txt"


def _check_archive(content: bytes, name: str, most: int) -> None:
    if not content.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist() if part.filename.endswith((".xml", ".rels")))
    except Exception:  # the reader reports damaged archives
        return
    if size > most:
        raise DataError(f"{name}: {size:,} bytes unpacked, more than {most:,}: split it")
