"""What fixed segments of a document, such as approved translations, are worth for its other segments.

    python -m scripts.fixed_segments CHECKPOINT DOCUMENTS.jsonl [--most 60] [--segments 20] [--fixed half|first]

Half of the references of each document are fixed: every second one, or with `first` the first half. A row for each way
to translate the others, greedily:

    by segment, whole    each segment by itself, or the document at once
    nothing fixed        the other references are unknown
    cache=none           fixed segments are context alone
    cache=fixed          their words are in the cache of `scaleformer.model.cache`, too

Scores are of the segments that are never fixed, the same in each row. Prints a table in Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaleformer.evaluation.metrics import Metrics
from scaleformer.system.errors import one_line_errors
from scaleformer.text.documents import Document
from scaleformer.translation.translator import Translator
from scripts.bench_training.tables import markdown
from scripts.document_cache import documents_of, parser_of


def fixed_of(document: Document, which: str) -> dict[int, str]:
    """The references that are fixed."""
    count = len(document.target)
    return {n: document.target[n] for n in (range(count // 2) if which == "first" else range(1, count, 2))}


def table(translator: Translator, documents: Sequence[Document], which: str) -> str:
    metrics, rows = Metrics(), []
    fixed = [fixed_of(one, which) for one in documents]
    left = [[n for n in range(len(one.target)) if n not in some] for one, some in zip(documents, fixed, strict=True)]
    references = [[one.target[n] for n in places] for one, places in zip(documents, left, strict=True)]
    sources = [one.source for one in documents]
    for name, mode in (("by segment", "segment"), ("whole", "document")):
        for what, given in (
            ("nothing fixed", {}),
            ("cache=none", {"fixed": fixed, "cache": "none"}),
            ("cache=fixed", {"fixed": fixed, "cache": "fixed"}),
        ):
            found = translator.translate(sources, mode=mode, strategy="greedy", n_best=1, **given)
            texts = [[one[n] for n in places] for one, places in zip(found, left, strict=True)]
            parts, wanted = ([text for one in side for text in one] for side in (texts, references))
            scores = (
                metrics.bleu().corpus_score([" ".join(one) for one in texts], [[" ".join(one) for one in references]]),
                metrics.bleu().corpus_score(parts, [wanted]),
                metrics.chrf().corpus_score(parts, [wanted]),
            )
            rows.append([f"{name}, {what}", *(f"{score.score:.2f}" for score in scores)])
    return markdown(["", "d-BLEU", "s-BLEU", "chrF++"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--fixed", choices=("half", "first"), default="half", help="which references; every second one")
    given = parser.parse_args(arguments)
    print(table(Translator.load(given.checkpoint, "cpu"), documents_of(given), given.fixed))


if __name__ == "__main__":
    with one_line_errors():
        main()
