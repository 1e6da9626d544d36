"""Readers of files, fed with hostile ones."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import get_args
from xml.sax.saxutils import escape

from scaleformer.data.config import Boundaries
from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.files import read_prose
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.lines import Input
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.translation.files.lines import read_documents, write_translations
from scaleformer.translation.translations import DocumentHypothesis, Translation
from tests.books import book
from tests.formats.pages import page
from tests.formats.slides import ap, ar, presentation, shape
from tests.formats.test_html import PAGE
from tests.formats.test_odf import p, packed_odf, span
from tests.formats.test_xlsx import si, workbook
from tests.formats.word import packed, parts_of, real
from tests.fuzz.checks import Finding, answer, checked, plain, same
from tests.fuzz.inputs import Rng, document, mutated, segment, slow_jsonl, slow_lines, write

NAMES = ("source", "target")
OFFICE = {
    "docx": real(),
    "odf": packed_odf(p("See ", span("T1", "this"), " now."), p("The header")),
    "pptx": presentation(shape(ap(ar("See "), ar("this", 'b="1"')))),
    "xlsx": workbook(si("One") + si("Two")),
}


def jsonl(rng: Rng, folder: Path) -> None:
    lines = [document(rng, i).to_json() for i in range(rng.randrange(4))]
    data = mutated(rng, "".join(line + "\n" for line in lines).encode())
    path = write(folder, "a.jsonl", data)
    same(plain(answer(lambda: list(read_jsonl(path)))), slow_jsonl(data))


def gz(rng: Rng, folder: Path) -> None:
    documents = [document(rng, i) for i in range(rng.randrange(1, 4))]
    whole = gzip.compress("".join(d.to_json() + "\n" for d in documents).encode(), 1, mtime=0)
    cut = rng.random() < 0.4
    data = whole[: rng.randrange(1, len(whole))] if cut else mutated(rng, whole)
    path = write(folder, "a.jsonl.gz", data)
    found = plain(answer(lambda: list(read_jsonl(path))))
    if cut:
        same(found, None)
    elif found and data.startswith(whole[:10]) and data != whole:
        # Members may be repeated, and what follows a cut member is noticed: nothing may be invented.
        known = plain(documents) or []
        same([d for d in found if d not in known], [])
    elif data == whole:
        same(found, plain(documents))


def text_pair(rng: Rng, folder: Path) -> None:
    boundaries = rng.choice(get_args(Boundaries))
    documents = [document(rng, i) for i in range(rng.randrange(4))]
    files = [[segment_ for d in documents for segment_ in (*getattr(d, side), "")] for side in ("source", "target")]
    files.append([d.id for d in documents for _ in range(len(d.source) + 1)])
    paths, sound = [], True
    for name, lines in zip(("a.en", "a.es", "a.ids"), files, strict=True):
        before = "".join(line + "\n" for line in lines).encode()
        data = mutated(rng, before)
        sound = sound and data == before
        paths.append(write(folder, name, data))
    found = answer(lambda: list(read_text_pair(paths[0], paths[1], boundaries, paths[2])))
    if sound and boundaries == "lines":
        pairs = list(zip(*(slow_lines(path.read_bytes()) for path in paths[:2]), strict=True))
        same([(d.source, d.target) for d in found or []], [((s,), (t,)) for s, t in pairs])
    checked(found)


def tsv(rng: Rng, folder: Path) -> None:
    rows = [
        (d.id.replace("\t", " "), s.replace("\t", " "), t.replace("\t", " "))
        for d in (document(rng, i) for i in range(rng.randrange(4)))
        for s, t in zip(d.source, d.target, strict=True)
    ]
    before = "".join("\t".join(row) + "\n" for row in rows).encode()
    data = mutated(rng, before)
    path = write(folder, "a.tsv", data)
    found = answer(lambda: list(read_bitext(Bitext("tsv", str(path)), Counter())))
    if data == before and len({row[0] for row in rows}) == len(found or []):
        cells = [(d.id, s, t) for d in found or [] for s, t in zip(d.source, d.target, strict=True)]
        same(cells, [(*row[:2], row[2].removesuffix("\r")) for row in rows])
    checked(found)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def po(rng: Rng, folder: Path) -> None:
    entries, wanted = [], []
    for number in range(rng.randrange(5)):
        source, target = (" ".join((segment(rng) + f"x{number}").split()) for _ in range(2))
        clean = all(ord(c) >= 32 for c in source + target)
        kind = rng.randrange(4) if clean else 0
        if not clean:
            continue
        entries.append(
            ("", "#, fuzzy\n", "#: a.py:1\n# b\n", "")[kind]
            + f"msgid {quoted(source)}\nmsgstr {quoted(target)}\n"
            + rng.choice(("\n", ""))
        )
        wanted += [(source, target)] if kind != 1 else []
    before = "\n".join(entries).encode()
    data = mutated(rng, before)
    path = write(folder, "a.po", data)
    found = answer(lambda: list(read_bitext(Bitext("po", str(path)), Counter())))
    if data == before:
        same([pair for d in found or [] for pair in zip(d.source, d.target, strict=True)], wanted)
    checked(found)


def bitext(rng: Rng, folder: Path) -> None:
    """TMX, XLIFF and CSV: texts come back, and of mutated files what is wrong with them."""
    format = rng.choice(("tmx", "xliff", "csv"))
    pairs = [(f"s{i}" + inner(rng), f"t{i}" + inner(rng)) for i in range(rng.randrange(1, 4))]
    if format == "tmx":
        units = [
            f"<tu><tuv lang='en'><seg>{a}</seg></tuv><tuv lang='es'><seg>{b}</seg></tuv></tu>"
            for a, b in escaped(pairs)
        ]
        text = f"<tmx><header srclang='en'/><body>{chr(10).join(units)}</body></tmx>"
    elif format == "xliff":
        units = [f"<trans-unit><source>{a}</source><target>{b}</target></trans-unit>" for a, b in escaped(pairs)]
        text = f"<xliff><file>{chr(10).join(units)}</file></xliff>"
    else:
        text = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in (NAMES, *pairs))
    before = text.encode()
    data = mutated(rng, before)
    path = write(folder, f"a.{format}", data)
    found = answer(lambda: list(read_bitext(Bitext(format, str(path)), Counter())))
    if data == before:
        same([pair for d in found or [] for pair in zip(d.source, d.target, strict=True)], pairs)
    checked(found)


def prose(rng: Rng, folder: Path) -> None:
    """Documents, and archives with a damaged part: what is read comes back to the byte."""
    format = rng.choice(("text", "markdown", "html", "epub", *OFFICE))
    if format in OFFICE:
        parts = parts_of(OFFICE[format])
        part = rng.choice([name for name in parts if name.endswith("xml")])
        data = packed({**parts, part: mutated(rng, parts[part])})
    elif format == "epub":
        data = book(a=mutated(rng, PAGE.encode()))
    else:
        data = mutated(rng, (PAGE if format == "html" else page(rng.randrange(40))).encode())
    found = answer(lambda: read_prose(data, "a", format, "en", "sentence"))
    if found is not None:
        same(found[0].write([[] for _ in found[0].blocks]), data)
        "".join(segment.unmasked for segments in found[1] for segment in segments).encode()


def inner(rng: Rng) -> str:
    """A text that XML can hold, of single spaces."""
    return re.sub(r"[\x00-\x20\ufffe\uffff]+", " ", segment(rng)[:1000]) + "x"


def escaped(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(escape(source), escape(target)) for source, target in pairs]


def translate_input(rng: Rng, folder: Path) -> None:
    """The files that translate.py reads and writes, with a translator that changes nothing."""
    format = rng.choice(("text", "jsonl"))
    documents = [document(rng, i) for i in range(rng.randrange(4))]
    if format == "jsonl":
        data = mutated(rng, "".join(d.to_json() + "\n" for d in documents).encode())
    else:
        data = mutated(rng, "\n".join("\n".join(d.source) + "\n" for d in documents).encode())
    path = write(folder, f"in.{format}", data)
    found = answer(lambda: read_documents(Input(str(path)), format))
    if found is None:
        return
    out = io.StringIO()
    write_translations(out, found, [translation(d.source) for d in found.documents])
    lines = out.getvalue().split("\n")[:-1]
    if format == "jsonl":
        same([json.loads(line)["source"] for line in lines], [list(d.source) for d in found.documents])
    else:
        same([bool(line.strip()) for line in lines], [bool(line.strip()) for line in slow_lines(data)])


def translation(segments: tuple[str, ...]) -> Translation:
    return Translation((DocumentHypothesis(segments, 0.0, 0.0, True),), len(segments), 1)


def preparation(rng: Rng, folder: Path) -> None:
    """A conversion: what was read is written or counted, in the output folder alone."""
    documents = [document(rng, i) for i in range(rng.randrange(1, 6))]
    data = mutated(rng, "".join(d.to_json() + "\n" for d in documents).encode())
    path = write(folder, "a.jsonl", data)
    output = folder / rng.choice(("out", "a b", "ü", "x" * 200, "-", "deep/er"))
    config = PrepareConfig(
        *("jsonl", str(path), str(output)),
        valid=rng.choice((0, 0.2)),
        test=0,
        drop_identical=rng.random() < 0.5,
        min_segments=rng.choice((1, 2)),
    )
    report = answer(lambda: prepare(config))
    stray = [p for p in folder.rglob("*") if p.is_file() and p != path and output not in p.parents]
    if stray or (report is None and output.exists()):
        raise Finding(f"left behind: {stray or output}")
    read = slow_jsonl(data)
    if report is not None:
        segments = sum(report.segments.values()) + sum(report.dropped_segments.values())
        same(segments, sum(len(source) for _, source, _ in read or []))
        written = [d for file in output.glob("*.jsonl.gz") for d in read_jsonl(file)]
        same(len(written), sum(report.documents.values()))
