"""Documents with labelled segments: from the synthetic corpus, or from a file of contrastive examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.context.contrastive import ContextDocument, Phenomenon
from scaleformer.formats.json_lines import parse_object
from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Translator


def labelled_documents(documents: Iterable[Document]) -> list[ContextDocument]:
    """Labelled documents of `scaleformer.data.synthetic.corpus`, whose labels give the wrong forms; no others."""
    found = []
    for document in documents:
        phenomena = tuple(
            Phenomenon(label.segment, tuple(label.contrast(document.target[label.segment])), label.distance, label.kind)
            for label in document.labels
        )
        if phenomena:
            found.append(ContextDocument(document.id, document.source, document.target, phenomena))
    return found


def read_contrastive(path: str | Path) -> list[ContextDocument]:
    """Each example of a JSON Lines file, .gz or not, as a document that ends with it; one example per line:

        {"source_context": [...], "source": "...", "target_context": [...], "right": "...", "wrong": ["...", ...],
         "distance": 2, "kind": "it", "id": "..."}

    The preceding segments, the segment, and its right and wrong translations. Optional: `target_context` (as many
    segments as `source_context`), `distance` (segments back to the deciding one), `kind` and `id` (default
    "FILE:LINE"). Without `target_context` the target has the right translation alone: see `contrastive_documents`.
    Raises DataError with file and line.
    """
    examples = [_parse(line, f"{path}:{number}") for number, line in read_lines(path)]
    if not examples:
        raise DataError(f"{path}: no examples")
    return examples


def contrastive_documents(
    examples: Sequence[ContextDocument], translator: Translator, decoding: DecodingConfig | None = None
) -> list[ContextDocument]:
    """The examples; the model translates the context of those whose target has none."""
    matched = replace(decoding or translator.decoding, match_segments=True, n_best=1)
    bare = [e for e in examples if len(e.target) < len(e.source)]
    request = Request([example.source[:-1] for example in bare], matched, [example.id for example in bare])
    written = iter(translator.translate_documents(request))
    documents = []
    for example in examples:
        if len(example.target) < len(example.source):
            segments = next(written).segments
            lacking = [""] * (len(example.source) - 1 - len(segments))  # where the length limit cut it
            example = replace(example, target=(*segments, *lacking, *example.target))
        documents.append(example)
    return documents


def _parse(line: str, where: str) -> ContextDocument:
    record = parse_object(line, where, "source, right, wrong")
    texts = {name: record.get(name) for name in ("source", "right")}
    lists = {name: record.get(name, []) for name in ("source_context", "target_context", "wrong")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{where}: {name!r} is {value!r:.60}, wanted a text")
    for name, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DataError(f"{where}: {name!r} is {value!r:.60}, wanted a list of texts")
    if not lists["wrong"]:
        raise DataError(f"{where}: no 'wrong' translation (keys present: {', '.join(record) or '-'})")
    if texts["right"] in lists["wrong"]:
        raise DataError(f"{where}: a wrong translation equals the right one")
    before, after = lists["source_context"], lists["target_context"] if "target_context" in record else None
    if after is not None and len(after) != len(before):
        raise DataError(f"{where}: {len(before)} segments of source_context, {len(after)} of target_context")
    distance = record.get("distance")
    if distance is not None and (isinstance(distance, bool) or not isinstance(distance, int) or distance < 0):
        raise DataError(f"{where}: 'distance' is {distance!r}, wanted a whole number of segments, 0 or more")
    phenomenon = Phenomenon(len(before), tuple(lists["wrong"]), distance, str(record.get("kind", "")))
    source, target = (*before, str(texts["source"])), (*(after or ()), str(texts["right"]))
    return ContextDocument(str(record.get("id", where)), source, target, (phenomenon,))
