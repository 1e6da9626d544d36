"""Time greedy translation of documents with drafts, without them, and sentence by sentence; and after an edit.

    python -m scripts.bench_drafts CHECKPOINT CORPUS.jsonl [--documents 10] [--segments 200] [--threads 1] [--beam 4]
    python -m scripts.bench_drafts CHECKPOINT CORPUS.jsonl --beside 1 2 4 8 [--first 20]

The documents with the most segments of the corpus come first, each alone; then all documents beside each other; with
--beside the documents in groups of so many, like lengths together, always with drafts. Texts with drafts are compared
with those without. With --beam, those without are of beams over whole documents, and those with drafts of beams by
segment, which may differ. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from scaleformer.decoding.drafts import Counts
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import one_line_errors
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator

Documents = Sequence[Sequence[str]]


def timed(translator: Translator, documents: Documents, **settings: Any) -> tuple[float, list[list[str]], Counts]:
    """Seconds, the translations, and how far drafts carried."""
    told = [Counts()]
    start = time.perf_counter()
    request = translator.request(documents, **{"strategy": "greedy", **settings})
    found = translator.translate_documents(request, Listener(drafted=told.append))
    return time.perf_counter() - start, [list(one.segments) for one in found], told[-1]


def rows(translator: Translator, documents: Documents, least: int, draft: str, **how: Any) -> list[tuple[str, ...]]:
    """Each row: what was translated, segments, seconds by sentence, whole, from drafts; times as fast as whole;
    times the time of sentences; segments that differ; share of tokens that stayed as drafted."""
    found = []
    alone = sorted((d for d in documents if len(d) >= least), key=len, reverse=True)
    for name, some in [*((f"document {n}", [one]) for n, one in enumerate(alone, 1)), ("all", documents)]:
        by_sentence, _, _ = timed(translator, some, mode="segment", **how)
        whole, plain, _ = timed(translator, some, draft="none", **how)
        drafted, texts, counts = timed(translator, some, draft=draft if name == "all" else "segments", **how)
        found.append(row(name, some, by_sentence, whole, drafted, plain, texts, counts))
        print("|", " | ".join(found[-1]), "|", file=sys.stderr)
        if name == "document 1":
            middle = len(some[0]) // 2
            edited = [[*some[0][:middle], f"{some[0][middle]} {some[0][middle]}", *some[0][middle + 1 :]]]
            whole, plain, _ = timed(translator, edited, draft="none", **how)
            drafted, texts, counts = timed(translator, edited, draft=texts, **how)
            found.append(row("one segment of it edited", edited, None, whole, drafted, plain, texts, counts))
    return found


def groups(translator: Translator, documents: Documents, size: int, **how: Any) -> tuple[str, ...]:
    """The row of documents in groups of a size."""
    whole, drafted, sums = 0.0, 0.0, Counts()
    plain: list[list[str]] = []
    texts: list[list[str]] = []
    for start in range(0, len(documents), size):
        some = documents[start : start + size]
        seconds, found, _ = timed(translator, some, draft="none", batch_tokens=1 << 20, **how)
        whole, plain = whole + seconds, plain + found
        seconds, found, counts = timed(translator, some, draft="segments", batch_tokens=1 << 20, **how)
        drafted, texts = drafted + seconds, texts + found
        sums = Counts(sums.tokens + counts.tokens, sums.kept + counts.kept)
    return row(f"{size} beside each other", documents, None, whole, drafted, plain, texts, sums)


def row(
    name: str,
    documents: Documents,
    by_sentence: float | None,
    whole: float,
    drafted: float,
    plain: list[list[str]],
    texts: list[list[str]],
    counts: Counts,
) -> tuple[str, ...]:
    differ = sum(a != b for one, other in zip(plain, texts, strict=True) for a, b in zip(one, other, strict=True))
    return (
        name,
        f"{sum(map(len, documents)):,}",
        "-" if by_sentence is None else f"{by_sentence:.1f}",
        f"{whole:.1f}",
        f"{drafted:.1f}",
        f"{whole / drafted:.2f}",
        "-" if by_sentence is None else f"{drafted / by_sentence:.2f}",
        str(differ),
        f"{counts.kept / counts.tokens:.0%}" if counts.tokens else "-",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("corpus")
    parser.add_argument("--documents", type=int, default=0, help="only the first so many; 0 = all")
    parser.add_argument("--segments", type=int, default=200, help="fewest of a document that is timed alone")
    parser.add_argument("--draft", choices=("auto", "segments"), default="auto", help="of all beside each other")
    parser.add_argument("--beside", type=int, nargs="+", help="sizes of groups")
    parser.add_argument("--first", type=int, help="only the first so many segments of each document")
    parser.add_argument("--beam", type=int, help="hypotheses of a beam, in place of greedy search")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    translator = Translator.load(given.checkpoint, "cpu")
    documents = [document.source[: given.first] for document in read_jsonl(given.corpus)][: given.documents or None]
    names = [
        "",
        "segments",
        "by sentence, s",
        "whole, s",
        "drafted, s",
        "times as fast",
        "over sentences",
        "differ",
        "stay",
    ]
    print("| " + " | ".join(names) + " |")
    print("|---|" + "--:|" * (len(names) - 1))
    how: dict[str, Any] = {"strategy": "beam", "beam_size": given.beam} if given.beam else {}
    if given.beside:
        documents.sort(key=lambda segments: len(translator.source_tokenizer.encode_segments(segments)))
        timed(translator, documents[:1], draft="segments", **how)  # what the first call sets up
    made: Iterable[tuple[str, ...]] = (groups(translator, documents, size, **how) for size in given.beside or ())
    for one in made if given.beside else rows(translator, documents, given.segments, given.draft, **how):
        print("| " + " | ".join(one) + " |", flush=True)


if __name__ == "__main__":
    with one_line_errors():
        main()
