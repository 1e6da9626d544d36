"""What the rest of a document tells that a model does not know, by a cache of its own states [Grave et al. 2017, ICLR;
Tu et al. 2018, TACL].

    python -m scripts.document_cache CHECKPOINT DOCUMENTS.jsonl [--most 60] [--segments 20]

Nats a token of references, of which the model reads each segment by itself:

    as it is
    scaled            logits times a number, for label smoothing leaves a model less sure than it could be
    cache             mixed with the tokens that followed similar decoder states in earlier references of the document
    foreign cache     the same, with the references of the next document
    usual cache       as `cache`, with the settings of `scaleformer.model.cache`

The settings of the other rows are those that are best on the first half of the documents; both halves are shown. Prints
a table in Markdown.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scaleformer.data.batching import Example, collate
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.model.cache import OFFSET, SCALE, SLOPE, SPREAD
from scaleformer.system.errors import one_line_errors
from scaleformer.text.documents import Document
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS
from scripts.bench_training.tables import markdown

SCALES = (1.0, 1.05, 1.1, 1.15, 1.2)
SPREADS = (0.025, 0.05, 0.1, 0.2)  # of squared distances of states, in parts of the variance of those cached
SLOPES, OFFSETS = (0.1, 0.25, 0.5, 1.0), (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)


class Read(NamedTuple):
    """The target tokens of a document: decoder states (L, D), tokens (L,), segments (L,), and the log-probability of
    each token for each of `SCALES` (scales, L)."""

    states: Tensor
    tokens: Tensor
    segments: Tensor
    known: Tensor


@torch.inference_mode()
def read(translator: Translator, document: Document) -> Read:
    """The decoder states before each token of a document, each segment by itself, without `</s>`."""
    model, states, tokens, segments = translator.model, [], [], []
    for number, (source, target) in enumerate(zip(document.source, document.target, strict=True)):
        ours = np.array([*translator.source_tokenizer.encode_segments([source]), EOS])
        theirs = np.array([*translator.target_tokenizer.encode_segments([target]), EOS])
        batch = collate([Example("", ours, theirs)])
        states.append(model(batch)[0, :-1].float())
        tokens.append(batch.target_output[0, :-1])
        segments.append(torch.full_like(tokens[-1], number))
    x, y = torch.cat(states), torch.cat(tokens)
    logits = model.logits(x).float()
    known = torch.stack([(scale * logits).log_softmax(-1).gather(1, y[:, None])[:, 0] for scale in SCALES])
    return Read(x, y, torch.cat(segments), known)


def variance(document: Read) -> float:
    return float(document.states.var(0, correction=0).sum())


def cached(here: Read, there: Read, spread: float) -> tuple[Tensor, Tensor]:
    """What a cache of `there` gives each token of `here` (L,), and the log-weight of its nearest state (L,), -inf
    without any. A document sees its own earlier segments alone."""
    near = -(torch.cdist(here.states, there.states) ** 2) / spread  # (L, L')
    if here is there:
        near = near.masked_fill(here.segments[:, None] <= there.segments[None, :], -torch.inf)
    weights = near.softmax(-1).nan_to_num(0.0)
    return (weights * (here.tokens[:, None] == there.tokens[None, :])).sum(-1), near.max(-1).values


def mixed(known: Tensor, found: tuple[Tensor, Tensor], slope: float, offset: float) -> Tensor:
    """The loss of each token where the cache has a weight of sigmoid(slope * log-weight + offset)."""
    share = torch.sigmoid(slope * found[1] + offset)
    return -((1 - share) * known.exp() + share * found[0]).clamp_min(1e-30).log()


def table(documents: Sequence[Read]) -> str:
    """A row for each way to know the tokens, with the settings that are best on the first half."""
    half = len(documents) // 2

    def row(name: str, tried: dict[str, list[Tensor]]) -> list[str]:
        def mean(losses: Sequence[Tensor]) -> float:
            return float(torch.cat(list(losses)).mean())

        best = min(tried, key=lambda settings: mean(tried[settings][:half]))
        return [name, best, f"{mean(tried[best][:half]):.3f}", f"{mean(tried[best][half:]):.3f}"]

    rows = [row("as it is", {"": [-one.known[0] for one in documents]})]
    scaled = {f"scale {scale}": [-one.known[n] for one in documents] for n, scale in enumerate(SCALES)}
    rows.append(row("scaled", scaled))
    for name, shift in (("cache", 0), ("foreign cache", 1)):
        others = [*documents[shift:], *documents[:shift]]
        tried = {}
        for spread in SPREADS:
            found = [cached(a, b, spread * variance(b)) for a, b in zip(documents, others, strict=True)]
            for (n, scale), slope, offset in itertools.product(enumerate(SCALES), SLOPES, OFFSETS):
                settings = f"scale {scale}, spread {spread}, slope {slope}, offset {offset:g}"
                losses = zip(documents, found, strict=True)
                tried[settings] = [mixed(one.known[n], some, slope, offset) for one, some in losses]
        rows.append(row(name, tried))
    usual: list[Tensor] = []
    for one in documents:
        known = one.known[SCALES.index(SCALE)]
        usual.append(mixed(known, cached(one, one, SPREAD * variance(one)), SLOPE, OFFSET))
    rows.append(row("usual cache", {f"scale {SCALE}, spread {SPREAD}, slope {SLOPE}, offset {OFFSET:g}": usual}))
    return markdown(["", "settings", "first half", "second half"], rows)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser for a checkpoint and documents (`documents_of`)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("documents", help="JSON Lines with as many target as source segments")
    parser.add_argument("--most", type=int, help="documents, the first ones; by default all")
    parser.add_argument("--segments", type=int, help="of a document, the first ones; by default all")
    return parser


def documents_of(given: argparse.Namespace, least: int = 1) -> list[Document]:
    """The documents that the arguments ask for. Raises ValueError for fewer, and where segments do not match."""
    documents = [
        replace(document, source=document.source[: given.segments], target=document.target[: given.segments])
        for document in islice(read_jsonl(given.documents), given.most)
    ]
    if len(documents) < least or any(len(one.source) != len(one.target) for one in documents):
        wanted = f"{least} documents or more with as many target as source segments"
        raise ValueError(f"{given.documents}: wanted {wanted}")
    return documents


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser_of(__doc__).parse_args(arguments)
    translator = Translator.load(given.checkpoint, "cpu")
    print(table([read(translator, document) for document in documents_of(given, least=2)]))


if __name__ == "__main__":
    with one_line_errors():
        main()
