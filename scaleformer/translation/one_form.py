"""The table of the terms of some documents, and translations in which each document writes a term in one form."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaleformer.system.bars import translation_bar
from scaleformer.system.provenance import provenance, write_result
from scaleformer.text.spans import apart
from scaleformer.text.terms import find_terms
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.term_forms import Form, WrittenTerm, find_forms
from scaleformer.translation.terms import missing_from, requirements
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator

LEAST, SHARE = 2, 0.5  # a form is clear if it was written so often, and in that share of the places
ROUNDS = 2  # a translation with the forms that were asked for may write another term in a new form


def clear_form(forms: Counter[Form]) -> Form:
    """The most frequent form of a term, if it is clear and has neither code nor placeholders inside."""
    form, count = max(forms.items(), key=lambda one: (one[0] is not None, one[1]))
    return form if form and count >= max(LEAST, SHARE * forms.total()) and not apart(form) else None


def choose_forms(terms: Sequence[WrittenTerm], documents: int) -> list[dict[str, str]]:
    """For each of so many documents the terms that it did not write in one form, with the form to write: the one that
    is clear there, or failing that, in all documents together."""
    chosen: list[dict[str, str]] = [{} for _ in range(documents)]
    for term in terms:
        everywhere = clear_form(term.counts())
        for document in sorted({document for _, document, _ in term.places}):
            forms = term.counts(document)
            several = forms.total() >= LEAST and (len(forms) > 1 or None in forms)
            if several and (form := clear_form(forms) or everywhere):
                chosen[document][term.source] = " ".join(form.split())  # as `Term` has it
    return chosen


def in_one_form(
    translator: Translator, request: Request, translations: Sequence[Translation], table: str, ask: bool
) -> tuple[Request, list[Translation]]:
    """Write the table of the repeated terms of these translations (docs/result-files.md), and tell its sums on stderr.
    With ask, documents that wrote a term in several forms are first translated again with the form of `choose_forms`,
    outside of code and quotations, at most `ROUNDS` times. Returns the request with these forms, and the translations.
    Raises ValueError as `find_forms`, OSError."""
    translator, translations = translator.of(request.tag), list(translations)
    tag = translator.tag_tokens(request.tag)
    terms = find_forms(translator, request, translations, tag)
    before = _share(terms)
    chosen: list[dict[str, str]] = [{} for _ in translations]
    for _ in range(ROUNDS if ask else 0):
        numbers = []
        for n, (some, own) in enumerate(zip(choose_forms(terms, len(translations)), request.required, strict=True)):
            # a document's own terms win, and what was asked for before
            if more := {source: form for source, form in some.items() if not find_terms(source, own)}:
                numbers.append(n)
                chosen[n] |= more
        if not numbers:
            break
        request = replace(request, asked=chosen)
        again = replace(request.part(numbers), drafts=[translations[n].segments for n in numbers])
        with translation_bar("terms in one form") as progress:
            for n, translation in zip(numbers, translator.translate_documents(again, Listener(progress)), strict=True):
                translations[n] = translation
        terms = find_forms(translator, request, translations, tag)
    left = [_left(request, *one) for one in enumerate(zip(translations, chosen, strict=True))]
    origin = provenance(translator.device, checkpoint=translator.path, checkpoint_sha256=translator.sha256)
    rows = [_row(request, term, chosen, left) for term in terms]
    write_result(table, {**origin, "kind": "terms", "documents": len(translations), "terms": rows})
    now = f"{_share(terms)} of their places" + (f" ({before} before)" if ask else "")
    print(f"{len(terms):,} repeated terms, {now} in the most frequent form of the document: {table}", file=sys.stderr)
    return request, translations


def _share(terms: Sequence[WrittenTerm]) -> str:
    """The share of the places of terms that a document repeats which have its most frequent form."""
    each = [term.counts(n) for term in terms for n in {document for _, document, _ in term.places}]
    each = [forms for forms in each if forms.total() >= LEAST]
    best = sum(max((count for form, count in forms.items() if form), default=0) for forms in each)
    return f"{best / max(1, sum(forms.total() for forms in each)):.1%}"


def _left(request: Request, number: int, written: tuple[Translation, dict[str, str]]) -> dict[str, list[int]]:
    """The segments of a document, from 1, that lack a form that was asked for, by form."""
    translation, chosen = written
    found: dict[str, list[int]] = {form: [] for form in chosen.values()}
    terms = request.required[number] if found else ()
    for first, _, wanted in requirements(request.documents[number], translation.hypotheses[0], terms):
        for term in missing_from(translation.segments[first], wanted):
            if term.target in found:
                found[term.target].append(first + 1)
    return found


def _row(
    request: Request, term: WrittenTerm, chosen: Sequence[dict[str, str]], left: Sequence[dict[str, list[int]]]
) -> dict[str, Any]:
    forms = []
    for form, count in term.counts().most_common():
        where: dict[str, list[int]] = {}
        for _, document, segment in (place for place in term.places if place[0] == form):
            where.setdefault(request.name(document), []).append(segment + 1)
        forms.append({"target": form, "count": count, "where": where})
    asked = {
        request.name(n): {"target": some[term.source], "left": left[n][some[term.source]]}
        for n, some in enumerate(chosen)
        if term.source in some
    }
    return {"source": term.source, "count": len(term.places), "forms": forms, "asked": asked}
