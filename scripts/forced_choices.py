"""How often a model gives a class of words its due, given the reference before it: in the segment, and in the text.

    python -m scripts.forced_choices RUN DIR [--choices en-es/you] [--name you] [--split test] [--max-tokens 256]

At each word of the references that is one piece and in a class of the choice: the class whose pieces have the greatest
probability together. Printed for pieces of documents and for single segments is the share that is right: of all, of the
first word of a class in its segment, of later ones, and of first ones with a class shown in a segment before; and how
often the class shown last would have been right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.data.batching import Example, collate
from scaleformer.data.config import DataConfig
from scaleformer.data.sources import split_sources
from scaleformer.evaluation.context.choices import Choice, read_choices
from scaleformer.vocabulary import EOS, SEP

TOGETHER = 2048  # tokens of a batch


def examples(
    loaded: LoadedModel, documents: Sequence[tuple[Sequence[str], Sequence[str]]], most: int
) -> Iterator[Example]:
    """Pieces of documents of at most `most` source tokens, or single segments longer than that."""
    for sources, targets in documents:
        source: list[int] = []
        target: list[int] = []
        for one, other in zip(sources, targets, strict=True):
            more = [*loaded.source_tokenizer.encode(one), SEP]
            if source and len(source) + len(more) > most:
                yield Example("", np.array([*source, EOS]), np.array([*target, EOS]))
                source, target = [], []
            source += more
            target += [*loaded.target_tokenizer.encode(other), SEP]
        yield Example("", np.array([*source, EOS]), np.array([*target, EOS]))


def classes_of(choice: Choice, loaded: LoadedModel) -> torch.Tensor:
    """(V,) long, the number of the class of each piece that is a whole form of it, from 1; 0 for all others."""
    tokenizer = loaded.target_tokenizer
    found = torch.zeros(tokenizer.vocab_size, dtype=torch.long)
    for number, forms in enumerate(choice.classes.values(), 1):
        for form in forms:
            for tokens in (tokenizer.encode(form), tokenizer.encode(form.capitalize())):
                if len(tokens) == 1:
                    found[tokens[0]] = number
    return found


@torch.inference_mode()
def outcomes(
    loaded: LoadedModel, found: Sequence[Example], classes: torch.Tensor
) -> Iterator[tuple[bool, bool, bool | None]]:
    """For each class word: whether its class has the greatest probability, whether it is the first in its segment, and
    whether the class shown last is its own, None where none was shown."""
    ordered = sorted(found, key=lambda example: len(example.source))
    while ordered:
        count = max(1, TOGETHER // len(ordered[-1].source))
        taken, ordered = ordered[-count:], ordered[:-count]
        batch = collate(taken)
        labels = classes[batch.target_output]  # (B, L)
        at = (labels > 0) & batch.target_mask
        chances = loaded.model.logits(loaded.model(batch)[at]).float().softmax(-1)  # (words, V)
        numbers = range(1, int(classes.max()) + 1)
        best = torch.stack([chances[:, classes == number].sum(1) for number in numbers], 1).argmax(1) + 1
        right = iter((best == labels[at]).tolist())
        for tokens, row in zip(batch.target_output.tolist(), labels.tolist(), strict=True):
            shown, first = 0, True
            for token, own in zip(tokens, row, strict=True):
                if own:
                    yield next(right), first, shown == own if shown else None
                    shown, first = own, False
                elif token == SEP:
                    first = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("corpus")
    parser.add_argument("--choices", default="en-es/you")
    parser.add_argument("--name", default="you", help="of the choice in its file")
    parser.add_argument("--split", default="test")
    parser.add_argument("--max-tokens", type=int, default=256, help="of a piece of a document")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_model(options.run)
    choice = next(one for one in read_choices(options.choices) if one.name == options.name)
    source = split_sources(DataConfig(format="jsonl", path=options.corpus))[options.split]
    documents = [(document.source, document.target) for document in source.read()]
    classes = classes_of(choice, loaded)
    table = Table("read", "words", "right", "first", "right", "later", "right", "shown before first", "right", "shown")
    for how, most in (("pieces", options.max_tokens), ("segments", 0)):
        all_ = list(outcomes(loaded, list(examples(loaded, documents, most)), classes))
        groups = [all_, [o for o in all_ if o[1]], [o for o in all_ if not o[1]]]
        groups.append([o for o in groups[1] if o[2] is not None])
        cells = [cell for group in groups for cell in (str(len(group)), share([o[0] for o in group]))]
        table.add_row(how, *cells, share([bool(o[2]) for o in groups[3]]))
    Console().print(table)


def share(found: Sequence[bool]) -> str:
    return f"{sum(found) / len(found):.1%}" if found else ""


if __name__ == "__main__":
    main()
