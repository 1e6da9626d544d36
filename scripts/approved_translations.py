"""What approved translations of a document are worth for its other segments: in a cache of the decoder's states [Grave
et al. 2017, ICLR; Tu et al. 2018, TACL], or learned from.

    python -m scripts.approved_translations CHECKPOINT DOCUMENTS.jsonl [--most 60] [--segments 20]
        [--scale 1.1] [--spread 1.6] [--slope 0.25] [--offset 1] [--rates 1e-4 3e-4]

Each segment is translated by itself, greedily:

    nothing      as it is
    own          with a cache of the document's earlier translations by the model
    earlier      with a cache of its earlier references, as where a person corrects one segment after the other
    others       with a cache of all its other references, as where a document has grown by a segment
    learned      without a cache; the model takes a step of Adam after each segment, on the last four references of the
                 document, and begins each document as it was

The first four settings are those that `scripts.document_cache` finds best. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.batch import Batch
from scaleformer.data.batching import Example, collate
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.evaluation.metrics import Metrics
from scaleformer.system.errors import one_line_errors
from scaleformer.text.documents import Document
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS
from scripts.bench_training.tables import markdown
from scripts.document_cache import documents_of, parser_of

LAST = 4  # segments of a step
Store = tuple[Tensor, Tensor]  # states (L, D), and the token that follows each (L,)


class Cached:
    """A model for `decode` whose probabilities are mixed with those of a cache, one for each row.

    The cache gives a token the weight of the states that it followed, which falls with their squared distance over
    `spread`; its share is sigmoid(slope * log-weight of the nearest + offset). Logits are multiplied by `scale`.
    """

    def __init__(self, model: Any, stores: Sequence[Store], settings: argparse.Namespace) -> None:
        self.model, self.settings = model, settings
        self.most_target_tokens = model.most_target_tokens
        self.encode = model.encode
        longest = max(len(tokens) for _, tokens in stores)
        self.keys = torch.stack([functional.pad(s, (0, 0, 0, longest - len(s))) for s, _ in stores])  # (rows, L, D)
        self.tokens = torch.stack([functional.pad(t, (0, longest - len(t))) for _, t in stores])  # (rows, L)
        self.real = torch.arange(longest) < torch.tensor([len(tokens) for _, tokens in stores])[:, None]

    def init_state(self, encoded: Any, beams: int) -> tuple[Any, Tensor]:
        return self.model.init_state(encoded, beams), torch.arange(len(self.keys))

    def step(self, tokens: Tensor, segments: Tensor, state: tuple[Any, Tensor]) -> tuple[Tensor, tuple[Any, Tensor]]:
        seen: list[Tensor] = []
        hook = self.model.decoder_norm.register_forward_hook(lambda *call: seen.append(call[-1]))
        logits, inner = self.model.step(tokens, segments, state[0])
        hook.remove()
        return self.mix(logits, seen[0].float(), state[1]), (inner, state[1])

    def mix(self, logits: Tensor, states: Tensor, rows: Tensor) -> Tensor:
        """Log-probabilities (n, V) of states (n, D) in these rows (n,)."""
        given = self.settings
        logs = (given.scale * logits).log_softmax(1)
        if not self.keys.shape[1]:
            return logs
        near = -((self.keys[rows] - states[:, None]) ** 2).sum(2) / given.spread  # (n, L)
        near = near.masked_fill(~self.real[rows], -torch.inf)
        share = torch.sigmoid(given.slope * near.amax(1, keepdim=True) + given.offset)
        weights = near.softmax(1).nan_to_num(0.0)  # without a state there is none, and no share
        found = torch.zeros_like(logs).scatter_add_(1, self.tokens[rows], weights)
        return ((1 - share) * logs.exp() + share * found).clamp_min(1e-30).log()

    def reorder(self, state: tuple[Any, Tensor], rows: Tensor, documents: Tensor | None = None) -> tuple[Any, Tensor]:
        return self.model.reorder(state[0], rows, documents), state[1][rows]


def example(translator: Translator, source: str, target: Sequence[int]) -> Example:
    ours = [*translator.source_tokenizer.encode_segments([source]), EOS]
    return Example("", np.array(ours), np.array([*target, EOS]))


@torch.inference_mode()
def store_of(translator: Translator, source: str, target: Sequence[int]) -> Store:
    """The states before the tokens of a segment and its end."""
    batch = collate([example(translator, source, target)])
    return translator.model(batch)[0].float(), batch.target_output[0]


def write(translator: Translator, sources: Sequence[str], model: Any) -> list[tuple[int, ...]]:
    """The tokens of the translations of segments, beside each other."""
    config = replace(translator.decoding, strategy="greedy", n_best=1)
    tokens = [[*translator.source_tokenizer.encode_segments([source]), EOS] for source in sources]
    return [found[0].tokens for found in decode(model, *pad(tokens, torch.device("cpu")), config)]


Written = list[list[tuple[int, ...]]]
NOTHING: Store = torch.zeros(0, 1), torch.zeros(0, dtype=torch.long)


def joined(stores: Sequence[Store], width: int) -> Store:
    states = [torch.zeros(0, width), *(states for states, _ in stores)]
    return torch.cat(states), torch.cat([NOTHING[1], *(tokens for _, tokens in stores)])


def translate(
    translator: Translator, documents: Sequence[Document], kind: str, settings: argparse.Namespace
) -> Written:
    """The translations of documents with a cache of this kind: segment by segment, all documents beside each other."""
    width, encode = translator.model.config.width, translator.target_tokenizer.encode_segments
    pairs = [list(zip(one.source, map(encode, ([t] for t in one.target)), strict=True)) for one in documents]
    known: list[list[Store]] = [[] for _ in documents]
    if kind == "others":
        known = [[store_of(translator, *pair) for pair in one] for one in pairs]
    written: Written = [[] for _ in documents]
    for n in range(max(map(len, pairs))):
        live = [d for d, one in enumerate(pairs) if n < len(one)]
        model: Any = translator.model
        if kind != "nothing":
            seen = [[store for k, store in enumerate(known[d]) if k != n] for d in live]
            model = Cached(model, [joined(stores, width) for stores in seen], settings)
        for d, tokens in zip(live, write(translator, [pairs[d][n][0] for d in live], model), strict=True):
            written[d].append(tokens)
            if kind in ("own", "earlier"):
                source, reference = pairs[d][n]
                known[d].append(store_of(translator, source, tokens if kind == "own" else reference))
    return written


def learn(translator: Translator, documents: Sequence[Document], rate: float) -> Written:
    """The translations of documents, of a model that takes a step after each segment."""
    before = deepcopy(translator.model.state_dict())
    written: Written = []
    for document in documents:
        translator.model.load_state_dict(before)
        parameters = list(translator.model.requires_grad_().parameters())
        optimizer = torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.99))
        seen: list[Example] = []
        written.append([])
        for source, target in zip(document.source, document.target, strict=True):
            written[-1] += write(translator, [source], translator.model)
            seen.append(example(translator, source, translator.target_tokenizer.encode_segments([target])))
            step(translator.model, collate(seen[-LAST:]), optimizer)
    translator.model.load_state_dict(before)
    return written


def step(model: Any, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
    logits = model.logits(model(batch)[batch.target_mask]).float()
    functional.cross_entropy(logits, batch.target_output[batch.target_mask], label_smoothing=0.1).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def table(translator: Translator, documents: Sequence[Document], settings: argparse.Namespace) -> str:
    metrics, rows = Metrics(), []
    ways: list[tuple[str, Callable[[], Written]]] = [
        (kind, lambda kind=kind: translate(translator, documents, kind, settings))  # type: ignore[misc]
        for kind in ("nothing", "own", "earlier", "others")
    ]
    ways += [
        (f"learned, rate {rate:g}", lambda rate=rate: learn(translator, documents, rate))  # type: ignore[misc]
        for rate in settings.rates
    ]
    references = [" ".join(one.target) for one in documents]
    segments = [text for one in documents for text in one.target]
    for name, way in ways:
        texts = [[translator.target_tokenizer.decode(tokens) for tokens in one] for one in way()]
        wholes, parts = [" ".join(one) for one in texts], [text for one in texts for text in one]
        scores = (
            metrics.bleu().corpus_score(wholes, [references]),
            metrics.bleu().corpus_score(parts, [segments]),
            metrics.chrf().corpus_score(parts, [segments]),
        )
        rows.append([name, *(f"{found.score:.2f}" for found in scores)])
    return markdown(["", "d-BLEU", "s-BLEU", "chrF++"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    for name, usual in (("scale", 1.1), ("spread", 1.6), ("slope", 0.25), ("offset", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=usual)
    parser.add_argument("--rates", type=float, nargs="*", default=[1e-4, 3e-4])
    given = parser.parse_args(arguments)
    translator = Translator.load(given.checkpoint, "cpu")
    print(table(translator, documents_of(given), given))


if __name__ == "__main__":
    with one_line_errors():
        main()
