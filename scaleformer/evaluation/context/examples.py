"""Documents with labelled segments: from the synthetic corpus, or from a file of contrastive examples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.context.contrastive import ContextDocument, Phenomenon
from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from scaleformer.translation.translator import Translator


def labelled_documents(documents: Iterable[Document]) -> list[ContextDocument]:
    """Documents of `scaleformer.data.synthetic.corpus`, whose labels give the wrong forms; documents without labels are
    left out."""
    found = []
    for document in documents:
        phenomena = tuple(
            Phenomenon(label.segment, tuple(label.contrast(document.target[label.segment])), label.distance, label.kind)
            for label in document.labels
        )
        if phenomena:
            found.append(ContextDocument(document.id, document.source, document.target, phenomena))
    return found


@dataclass(frozen=True)
class ContrastiveExample:
    """A line of a contrastive test set: a segment with its context. target_context is None if not given."""

    id: str
    source_context: tuple[str, ...]
    source: str
    target_context: tuple[str, ...] | None
    right: str
    phenomenon: Phenomenon


def read_contrastive(path: str | Path) -> list[ContrastiveExample]:
    """A JSON Lines file, .gz or not, with one example per line:

        {"source_context": [...], "source": "...", "target_context": [...], "right": "...", "wrong": ["...", ...],
         "distance": 2, "kind": "it", "id": "..."}

    The preceding segments, the segment, and its right and wrong translations. Optional: `target_context` (as many
    segments as `source_context`), `distance` (segments back to the deciding one), `kind` and `id` (default
    "FILE:LINE"). Raises DataError with file and line.
    """
    examples = [_parse(line, f"{path}:{number}") for number, line in read_lines(path)]
    if not examples:
        raise DataError(f"{path}: no examples")
    return examples


def contrastive_documents(
    examples: Sequence[ContrastiveExample], translator: Translator, decoding: DecodingConfig | None = None
) -> list[ContextDocument]:
    """Each example as a document that ends with it. The model translates a context without a target_context."""
    matched = DecodingConfig.from_mapping(
        {**asdict(decoding or translator.decoding), "match_segments": True, "n_best": 1}
    )
    bare = [example for example in examples if example.target_context is None]
    written = translator.translate_documents([e.source_context for e in bare], matched, ids=[e.id for e in bare])
    own = iter(_as_many(t.segments, len(e.source_context)) for e, t in zip(bare, written, strict=True))
    documents = []
    for example in examples:
        context = next(own) if example.target_context is None else example.target_context
        segments = (*example.source_context, example.source), (*context, example.right)
        documents.append(ContextDocument(example.id, *segments, (example.phenomenon,)))
    return documents


def _as_many(segments: Sequence[str], count: int) -> tuple[str, ...]:
    """Pad with empty segments: a translation cut at the length limit has too few."""
    return (*segments, *("",) * (count - len(segments)))


def _parse(line: str, where: str) -> ContrastiveExample:
    try:
        record: Any = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: malformed JSON ({error}), wanted one example per line") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: a JSON {type(record).__name__}, wanted an object with source, right, wrong")
    texts = {name: record.get(name) for name in ("source", "right")}
    lists = {name: record.get(name, []) for name in ("source_context", "target_context", "wrong")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{where}: {name!r} is {value!r}, wanted a text")
    for name, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DataError(f"{where}: {name!r} is {value!r}, wanted a list of texts")
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
    return ContrastiveExample(
        str(record.get("id", where)),
        tuple(before),
        str(texts["source"]),
        None if after is None else tuple(after),
        str(texts["right"]),
        phenomenon,
    )
