"""Write the terms that a document repeats in one form: translate it, find its terms, and translate it with them.

    python -m scripts.one_form RUN DOCUMENTS.jsonl OUTPUT.jsonl [--share 0.5] [--languages en es]

The terms are those of `scripts.term_report`. In a document that writes one in several forms, all places are asked for
the most frequent form there, if it has been written `LEAST` times and in `--share` of the places. OUTPUT.jsonl gets the
translations, and beside each document the `terms` that it was asked for. Prints the share of repeated terms in the most
frequent form of their document before and after and, where the documents have references, BLEU and chrF++ of both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaleformer.evaluation.plain import score_plain
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator
from scripts.term_report import term_report

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


def in_one_form(terms: Mapping[str, Mapping[str | None, int]], share: float) -> dict[str, str]:
    """The form to ask for, of each term of a document that is written in several."""
    asked: dict[str, str] = {}
    for source, forms in terms.items():
        form, count = max(forms.items(), key=lambda one: (one[0] is not None, one[1]))
        if form is not None and len(forms) > 1 and count >= max(LEAST, share * sum(forms.values())):
            asked[source] = form
    return asked


def told(
    when: str, rows: Sequence[Mapping[str, Any]], documents: Sequence[Document], texts: Sequence[Translation]
) -> str:
    """The line of one translation: its terms, and its scores where there are references."""
    each = [forms for terms in forms_by_document(rows).values() for forms in terms.values()]
    places = sum(sum(forms.values()) for forms in each)
    best = sum(max((count for form, count in forms.items() if form is not None), default=0) for forms in each)
    one = sum(len(forms) == 1 and None not in forms for forms in each)
    line = f"{when}: {best:,} of {places:,} places ({best / max(places, 1):.1%}) in the most frequent form of their "
    line += f"document, {one:,} of {len(each):,} terms ({one / max(len(each), 1):.1%}) in one form"
    if all(document.target for document in documents):
        scores = {
            score.metric: score.score
            for score in score_plain(documents, [t.segments for t in texts], ter=False).report.scores
        }
        line += "".join(f", {name} {scores[name]:.2f}" for name in ("d-BLEU", "chrF++"))
    return line


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("documents")
    parser.add_argument("output")
    parser.add_argument(
        "--share", type=float, default=0.5, help="of the places that a form needs to be asked for in all"
    )
    parser.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="where the training names none")
    given = parser.parse_args(arguments)
    translator = Translator.load(given.run)
    source, target = given.languages or translator.languages()
    documents = list(read_jsonl(given.documents, require_target=False))
    names = [document.id for document in documents]
    request = translator.request([d.source for d in documents], names=names, languages=(source, target))
    first = translator.translate_documents(request)
    rows = term_report(translator, request, first)
    print(told("before", rows, documents, first), flush=True)
    found = forms_by_document(rows)
    asked = [in_one_form(found.get(name, {}), given.share) for name in names]
    second = translator.translate_documents(replace(request, terms=asked))
    print(told("after ", term_report(translator, request, second), documents, second))
    with atomic_writer(Path(given.output)) as file:
        for name, document, translation, terms in zip(names, documents, second, asked, strict=True):
            record = {"id": name, "source": document.source, "target": translation.segments, "terms": terms}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    with one_line_errors():
        main()
