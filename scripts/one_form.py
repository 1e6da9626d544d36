"""Write the terms that a document repeats in one form: translate it, find its terms, and translate it with them.

    python -m scripts.one_form RUN DOCUMENTS.jsonl OUTPUT.jsonl [--share 0.5] [--languages en es]

The terms are those of `scripts.term_report`. Where a document that repeats a term has not written it in one form, all
places are asked for the form that is most frequent there or, failing that, in all documents together: one that was
written `LEAST` times and in `--share` of the places. OUTPUT.jsonl gets the translations, and beside each document the
`terms` that it was asked for. Prints the share of places in the most frequent form of their document before and after,
of all repeated terms and of those asked for, and where the documents have references, BLEU and chrF++ of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaleformer.evaluation.plain import score_plain
from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document
from scaleformer.translation.translations import Translation
from scripts.term_report import term_report
from scripts.term_request import parser_of, request_of

LEAST = 2


def forms_by_document(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str | None, int]]]:
    """Of a report of terms, for each document: how often it writes which form of the terms that it repeats."""
    found: dict[str, dict[str, dict[str | None, int]]] = {}
    for row in rows:
        for form in row["forms"]:
            for name, where in form["where"].items():
                found.setdefault(name, {}).setdefault(row["source"], {})[form["target"]] = len(where)
    return {
        name: {source: forms for source, forms in terms.items() if sum(forms.values()) >= LEAST}
        for name, terms in found.items()
    }


def clear_form(forms: Mapping[str | None, int], share: float) -> str | None:
    """The most frequent form of a term, if it stands in that share of its places."""
    form, count = max(forms.items(), key=lambda one: (one[0] is not None, one[1]))
    return form if count >= max(LEAST, share * sum(forms.values())) else None


def in_one_form(rows: Sequence[Mapping[str, Any]], share: float) -> dict[str, dict[str, str]]:
    """For each document the terms to ask for, with their forms."""
    everywhere = {row["source"]: clear_form({f["target"]: f["count"] for f in row["forms"]}, share) for row in rows}
    asked: dict[str, dict[str, str]] = {}
    for name, terms in forms_by_document(rows).items():
        several = {source: forms for source, forms in terms.items() if len(forms) > 1 or None in forms}
        found = {source: clear_form(forms, share) or everywhere[source] for source, forms in several.items()}
        asked[name] = {source: form for source, form in found.items() if form is not None}
    return asked


def told(
    rows: Sequence[Mapping[str, Any]],
    asked: Mapping[str, Mapping[str, str]],
    documents: Sequence[Document],
    texts: Sequence[Translation],
) -> str:
    """The lines of one translation: its terms, and its scores where there are references."""
    each = [(name, *one) for name, terms in forms_by_document(rows).items() for one in terms.items()]
    lines = []
    for what, some in ("repeated", each), ("asked for", [one for one in each if one[1] in asked.get(one[0], {})]):
        places = sum(sum(forms.values()) for *_, forms in some)
        best = sum(max((count for form, count in forms.items() if form), default=0) for *_, forms in some)
        share = f"{best:,} of {places:,} places ({best / max(places, 1):.1%})"
        lines.append(f"  {what}: {len(some):,} terms, {share} in the most frequent form of their document")
    if all(document.target for document in documents):
        report = score_plain(documents, [one.segments for one in texts], ter=False).report
        scores = {score.metric: score.score for score in report.scores}
        lines.append(", ".join(f"  {name} {scores[name]:.2f}" for name in ("d-BLEU", "chrF++")))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("output")
    parser.add_argument(
        "--share", type=float, default=0.5, help="of the places that a form needs to be asked for in all"
    )
    given = parser.parse_args(arguments)
    translator, documents, request = request_of(given)
    names = [document.id for document in documents]
    first = translator.translate_documents(request)
    rows = term_report(translator, request, first)
    asked = in_one_form(rows, given.share)
    print(f"before:\n{told(rows, asked, documents, first)}", flush=True)
    second = translator.translate_documents(replace(request, terms=[asked.get(name, {}) for name in names]))
    print(f"after:\n{told(term_report(translator, request, second), asked, documents, second)}")
    with atomic_writer(Path(given.output)) as file:
        for name, document, translation in zip(names, documents, second, strict=True):
            record = {
                "id": name,
                "source": document.source,
                "target": translation.segments,
                "terms": asked.get(name, {}),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    with one_line_errors():
        main()
