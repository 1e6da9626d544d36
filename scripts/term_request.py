"""What the scripts of terms read: a run, documents, and their languages."""

from __future__ import annotations

import argparse

from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.terms import read_terms
from scaleformer.text.documents import Document
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Translator


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Arguments of a run, of documents, and of their languages."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("documents")
    parser.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="where the training names none")
    return parser


def request_of(given: argparse.Namespace, terms: str | None = None) -> tuple[Translator, list[Document], Request]:
    """The model of these arguments, its documents, and the request for them, with a file of terms."""
    translator = Translator.load(given.run)
    source, target = given.languages or translator.languages()
    asked = {} if terms is None else read_terms(terms, (source or None, target or None))
    documents = list(read_jsonl(given.documents, require_target=False))
    names = [document.id for document in documents]
    texts = [document.source for document in documents]
    return translator, documents, translator.request(texts, names=names, terms=asked, languages=(source, target))
