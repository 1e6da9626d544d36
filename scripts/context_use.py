"""What a model uses of other segments: how much better it predicts references, and where its attention goes.

    python -m scripts.context_use CHECKPOINT DOCUMENTS.jsonl [--most 60] [--segments 20]

Loss: nats a token of the references, each segment by itself and within its document, by the number of segments before
it, and by how many of its long words and identifiers stand in the references before it. Attention:
the share that leaves the own segment (in cross-attention the one that matches it), and the gate of the segment before,
for each layer and head that can see another segment. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaleformer.data.batching import Example, collate
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.model.attention_weights import attentions_of, recorded_weights
from scaleformer.system.errors import one_line_errors
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS
from scripts.bench_training.tables import markdown

POSITIONS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, None))  # segments before, from and to
REPEATED = ((0, 0), (1, 1), (2, 3), (4, None))  # words that stand before, from and to
_WORD = re.compile(r"\b(?:\w+[A-Z0-9_]\w*|\w{7,})\b")


def repeated_words(targets: Sequence[str]) -> Iterator[int]:
    """For each segment how many of its words of seven letters or more and of its identifiers stand in earlier ones."""
    before: set[str] = set()
    for text in targets:
        words = set(_WORD.findall(text))
        yield len(words & before)
        before |= words


def losses(translator: Translator, documents: Sequence[Any]) -> list[tuple[int, int, int, float, float]]:
    """For each segment how many stand before it, its repeated words, its tokens, its loss alone and in the document."""
    sources, targets = [d.source for d in documents], [d.target for d in documents]
    whole = score_documents(translator, sources, targets)
    flat = ([[text] for document in side for text in document] for side in (sources, targets))
    alone = iter(score_documents(translator, *flat))
    return [
        (n, repeated, there.tokens, -next(alone).segments[0].log_probability, -there.log_probability)
        for document, score in zip(targets, whole, strict=True)
        for n, (there, repeated) in enumerate(zip(score.segments, repeated_words(document), strict=True))
    ]


def loss_table(found: Sequence[tuple[int, int, int, float, float]]) -> str:
    """Rows by position and by repeated words; the spread is that of the mean difference over segments."""
    rows = []
    for name, column, ranges in (
        ("segments before", 0, POSITIONS),
        ("repeated words", 1, REPEATED),
        ("all", 0, ((0, None),)),
    ):
        for first, last in ranges:
            own = np.array([row for row in found if first <= row[column] and (last is None or row[column] <= last)])
            if len(own):
                tokens, alone, whole = own[:, 2:].T
                differences = (whole - alone) / tokens.mean()
                spread = differences.std() / len(own) ** 0.5
                label = f"{name}: {first}{'' if last == first else ' and more' if last is None else f' to {last}'}"
                means = (f"{x.sum() / tokens.sum():.3f}" for x in (alone, whole))
                change = f"{(whole - alone).sum() / tokens.sum():+.3f} ± {2 * spread:.3f}"
                better = f"{(whole < alone).mean():.0%}"
                rows.append(["all" if name == "all" else label, f"{len(own):,}", *means, change, better])
    return markdown(["", "segments", "alone", "in the document", "difference", "better"], rows)


@torch.inference_mode()
def attention_shares(translator: Translator, documents: Sequence[Any], most: int) -> tuple[dict[str, Tensor], int]:
    """Site -> (layers, H), the share of the attention that leaves the own segment, the mean of all queries in documents
    of at most so many tokens a side; and how many documents these are."""
    totals: dict[str, list[Tensor]] = defaultdict(list)
    weights: dict[str, list[int]] = defaultdict(list)
    for document in documents:
        source = [*translator.source_tokenizer.encode_segments(document.source), EOS]
        target = [*translator.target_tokenizer.encode_segments(document.target), EOS]
        if max(len(source), len(target)) > most:
            continue
        batch = collate([Example("", np.array(source), np.array(target))]).to(translator.device)
        with recorded_weights(translator.model) as found:
            translator.model(batch)
        sides = {"encoder": (batch.source_segments,) * 2, "decoder": (batch.target_segments,) * 2}
        sides["cross"] = batch.target_segments, batch.source_segments
        for site, layers in found.items():
            queries, keys = sides[site]
            other = (queries[0][:, None] != keys[0][None, :]).float()  # (L, S)
            totals[site].append(torch.stack([(layer[0] * other).sum(-1).sum(-1) for layer in layers]))
            weights[site].append(len(queries[0]))
    shares = {site: torch.stack(some).sum(0) / sum(weights[site]) for site, some in totals.items()}
    return shares, max(map(len, weights.values()), default=0)


def attention_table(translator: Translator, shares: dict[str, Tensor]) -> str:
    attentions = attentions_of(translator.model)
    rows = []
    for site, by_layer in shares.items():
        own = [attention for attention in attentions if attention.site == site]
        for number, (attention, heads) in enumerate(zip(own, by_layer, strict=True), 1):
            if not attention.own_segment:
                gate = getattr(attention, "gate", torch.zeros(0, 3)).detach()
                middle = gate.shape[1] // 2
                nats = ", ".join(f"{float(row[middle - 1] - row[middle]):.1f}" for row in gate) or "-"
                told = ", ".join(f"{float(share):.1%}" for share in heads)
                rows.append([f"{site}, layer {number}", told, nats])
    return markdown(["", "share that leaves the own segment, by head", "gate of the segment before, nats"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("documents", help="JSON Lines with as many target as source segments")
    parser.add_argument("--most", type=int, help="documents, the first ones; by default all")
    parser.add_argument("--segments", type=int, help="of a document, the first ones; by default all")
    parser.add_argument("--tokens", type=int, default=2048, help="of the longest document whose attention is read")
    given = parser.parse_args(arguments)
    translator = Translator.load(given.checkpoint, "cpu")
    read = list(islice(read_jsonl(given.documents), given.most))
    documents = [
        replace(document, source=document.source[: given.segments], target=document.target[: given.segments])
        for document in read
        if len(document.source) == len(document.target)
    ]
    if left := len(read) - len(documents):
        print(f"{left} of {len(read)} documents are left out: their sides differ in segments", file=sys.stderr)
    print(loss_table(losses(translator, documents)) + "\n")
    shares, told = attention_shares(translator, documents, given.tokens)
    print(f"{attention_table(translator, shares)}\n\nattention of {told} of {len(documents)} documents")


if __name__ == "__main__":
    with one_line_errors():
        main()
