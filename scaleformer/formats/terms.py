"""Terms in files: tables of source and target forms, and term bases (TBX, ISO 30042) of versions 2 and 3."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from scaleformer.formats.lines import Input, opened
from scaleformer.formats.markup import XML, stream_xml
from scaleformer.formats.recognition import recognise
from scaleformer.formats.rows import csv_lines, one_segment, some
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.languages import TWO_LETTERS, base_language
from scaleformer.text.terms import Term

Languages = tuple[str | None, str | None]  # of source and target, as far as they are known
_Forms = dict[str, list[tuple[int, str]]]  # of a concept, by language: how good a form is, from 0, and the form
_CONCEPTS, _LANGUAGES = ("termEntry", "conceptEntry"), ("langSet", "langSec")
_STATUSES = ("administrativeStatus", "normativeAuthorization")
_WORST = 2
_BAD = ("deprecated", "superseded", "forbidden", "obsolete", "notRecommended")


def read_terms(path: str, languages: Languages = (None, None)) -> dict[str, str]:
    """Source and target forms from a file: a term base (TBX), or a table with a source and a target form on each line,
    with a tab, or in CSV a comma, between them. Blank lines are skipped.

    languages  choose in a term base, and in a table whose first line has codes of languages; one that is not known is
               the other one of two
    Every source form of a concept gets the preferred target form, else the first that is not deprecated. What is left
    out is reported on stderr. Raises DataError with file and line, also for a source form with two target forms in a
    table.
    """
    source = Input(path)
    format = recognise(source.begin, Path(path).name).name
    left: Counter[str] = Counter()
    rows = _term_base(path, languages, left) if format == "tbx" else _table(source, format == "csv", languages, left)
    found: dict[str, str] = {}
    for where, ours, theirs in rows:
        try:
            term = Term(ours, theirs)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
        if found.setdefault(term.source, term.target) == term.target:
            continue
        if format != "tbx":
            raise DataError(
                f"{where}: {shown(term.source)} has the target form {shown(found[term.source])} on an earlier line: "
                "keep one target form per source form"
            )
        left["source forms that an earlier concept has"] += 1
    if left:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left.items())
        print(f"terms={path}: left out: {reasons}", file=sys.stderr)
    if not found:
        raise DataError(f"terms={path}: no terms: write a source form, a tab and its target form on each line")
    return found


def _table(source: Input, csv: bool, languages: Languages, left: Counter[str]) -> Iterator[tuple[str, str, str]]:
    lines = csv_lines(source.lines(), source.name) if csv else ((n, text.split("\t")) for n, text in source.lines())
    mark, columns, width = "comma" if csv else "tab", (0, 1), 0
    for number, cells in lines:
        if not any(map(str.strip, cells)):
            continue
        if not width and (named := _named([cell.strip().lower() for cell in cells], languages, source.name)):
            columns, width = named, len(cells)
            left += Counter(columns=width - 2)
            continue
        width = width or 2
        if len(cells) != width:
            wanted = (
                f"a source form, a {mark} and its target form" if width == 2 else f"{width - 1}, as in the first line"
            )
            raise DataError(f"{source.name}:{number}: {len(cells) - 1} {mark}s, wanted {wanted}")
        yield f"{source.name}:{number}", cells[columns[0]], cells[columns[1]]


def _named(names: Sequence[str], languages: Languages, path: str) -> tuple[int, int] | None:
    """The columns of source and target, if their names are "source" and "target" or codes of languages."""
    sides: Sequence[Sequence[str]] = ["source"], ["target"]
    if not {"source", "target"} <= {*names}:
        codes = [name for name in names if base_language(name) in TWO_LETTERS.split()]
        if len({*codes}) < 2:
            return None
        sides = _chosen(codes, languages, path)
    return names.index(sides[0][0]), names.index(sides[1][0])


def _term_base(path: str, languages: Languages, left: Counter[str]) -> Iterator[tuple[str, str, str]]:
    concepts = list(_concepts(path))
    sources, targets = _chosen([code for _, forms in concepts for code in forms], languages, path)
    for where, forms in concepts:
        ours, theirs = ([one for code in side for one in forms.get(code, ())] for side in (sources, targets))
        best = min(theirs, key=lambda one: one[0], default=(_WORST, ""))
        if ours and best[0] < _WORST:
            yield from ((where, form, best[1]) for _, form in ours)
        else:
            left["concepts without a form in both languages"] += 1


def _concepts(path: str) -> Iterator[tuple[str, _Forms]]:
    """The place and the forms of each concept."""
    where, forms, language, role = "", _Forms(), "", ""
    text: list[str] = []
    with opened(path, "tbx") as stream:
        for token in stream_xml(stream, path, ""):
            name = token.attributes.get("type", "") if token.local == "termNote" else token.local
            if token.kind == "text":
                text.append(token.text)
            elif token.kind == "start" and name in _CONCEPTS:
                where, forms = f"{path}:{token.line}", {}
            elif token.kind == "start" and name in _LANGUAGES:
                language = token.attributes.get(f"{{{XML}}}lang", "")
            elif token.kind == "start" and name in ("term", *_STATUSES):
                role, text = name, []
            elif token.kind == "end" and role and token.local in (role, "termNote"):
                known, content = forms.setdefault(language, []), one_segment("".join(text))
                if role == "term" and content:
                    known.append((1, content))
                elif role != "term" and known:
                    rank = 0 if content.startswith("preferred") else _WORST if content.startswith(_BAD) else 1
                    known[-1] = rank, known[-1][1]
                role = ""
            elif token.kind == "end" and name in _CONCEPTS:
                yield where, forms


def _chosen(codes: Sequence[str], languages: Languages, path: str) -> tuple[list[str], list[str]]:
    """The codes of the source and those of the target: first the very ones, then those of other regions."""
    codes = list(dict.fromkeys(codes))
    sides = [[code for code in codes if one and base_language(code) == base_language(one)] for one in languages]
    rest = [code for code in codes if code not in sides[0] + sides[1]]
    if any(sides) and len({*map(base_language, codes)}) == 2:
        sides = [rest if one is None else side for one, side in zip(languages, sides, strict=True)]
    if codes and not all(sides):
        named = " and ".join(one or "one that the model does not name" for one in languages)
        raise DataError(f"terms={path}: in {some(codes)}; wanted {named}: add the language, or leave two")
    source, target = (sorted(side, key=lambda code: code not in languages) for side in sides)
    return source, target
