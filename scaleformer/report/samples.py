"""Saved translations (`bleu-SPLIT.jsonl`) as HTML, with those of several runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest
from pathlib import Path

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.saved_translations import TranslatedDocument, read_translations
from scaleformer.text.words import spans

Key = tuple[str, Sequence[str]]


def side_by_side(files: Mapping[str, Path], count: int, segments: int) -> str:
    """The first `count` documents of each file, side by side with those of other runs that have them; "" without any.

    files     name of a run -> its translations, one document per line
    segments  most per document. Raises ValueError for a file of the wrong kind.
    """
    read = {name: _documents(path) for name, path in files.items()}
    parts = []
    for key in dict.fromkeys(key for found in read.values() for key in list(found)[:count]):
        having = [name for name, found in read.items() if key in found]
        first = read[having[0]][key]
        reference = first.target
        hypotheses = [align_segments(read[name][key].hypothesis, reference)[:segments] for name in having]
        columns = (first.source[:segments], reference[:segments], *hypotheses)  # segment counts may differ
        rows = list(zip_longest(*columns, fillvalue=""))
        size = f"{len(reference)} segment{'s' if len(reference) > 1 else ''}"
        cut = f", the first {segments} shown" if len(reference) > segments else ""
        parts.append(f"<h3><bdi>{escape(key[0])}</bdi> ({size}{cut})</h3>")
        parts.append(samples_table(["source", "reference", *having], rows))
    return "".join(parts)


def _documents(path: Path) -> dict[Key, TranslatedDocument]:
    """The documents of a file by id and source; {} without one."""
    documents = read_translations(path) if path.is_file() else []
    return {(document.id, tuple(document.source)): document for document in documents}


def samples_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts side by side: source, reference, then hypotheses, whose differences from the reference are marked.

    Words that the reference does not have at that place are underlined on grey; a caret marks missing words of the
    reference. Both survive printing in grey.
    """
    head = "".join(f'<th dir="auto">{escape(name)}</th>' for name in columns)
    body = "\n".join(
        f'<tr><td dir="auto">{escape(source)}</td><td dir="auto">{escape(reference)}</td>'
        + "".join(f'<td dir="auto">{mark_differences(reference, hypothesis)}</td>' for hypothesis in hypotheses)
        + "</tr>"
        for source, reference, *hypotheses in rows
    )
    return f'<table class="samples"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def mark_differences(reference: str, hypothesis: str) -> str:
    """The hypothesis as HTML, its words (characters, in a script without spaces) compared with the reference's."""
    theirs, ours = spans(reference), spans(hypothesis)
    both = [[text[start:stop] for start, stop in found] for text, found in ((reference, theirs), (hypothesis, ours))]
    html, end = "", 0
    for tag, i1, i2, j1, j2 in SequenceMatcher(a=both[0], b=both[1], autojunk=False).get_opcodes():
        if tag == "delete":
            missing = escape(reference[theirs[i1][0] : theirs[i2 - 1][1]], quote=True)
            space = " " if hypothesis[end : end + 1].isspace() else ""
            html += f'{space}<span class="gap" title="missing: {missing}">&#8248;</span>'
            continue
        start, stop = ours[j1][0], ours[j2 - 1][1]
        text = escape(hypothesis[start:stop])
        html += escape(hypothesis[end:start]) + (text if tag == "equal" else f"<mark>{text}</mark>")
        end = stop
    return html
