"""Word alignments of a translation from cross-attention.

A target word links to the source word that gets the most attention from its tokens: the weights of one layer, the
penultimate if there are several, averaged over heads [Garg et al. 2019, "Jointly Learning to Align and Translate",
EMNLP] and over the tokens of the target word, summed over the tokens of the source word. Words are separated by spaces
and include punctuation; in scripts without spaces each character is one. Alignments are not trained: expect errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.attention_weights import recorded_weights
from scaleformer.system.files import atomic_writer, check_file
from scaleformer.text.words import spans
from scaleformer.translation.batches import runs
from scaleformer.translation.translations import Translation
from scaleformer.vocabulary import EOS, separators

LONGEST = 1024  # tokens per pass, unless one segment is longer: memory grows with the square
Links = tuple[tuple[int, int], ...]  # source word, target word


class Unit(NamedTuple):
    """Source segments and the target segment that translates them, which are aligned together.

    source, target  their tokens, with separators
    text            the target segment
    """

    sources: Sequence[str]
    source: list[int]
    target: list[int]
    text: str


def align_words(
    loaded: LoadedModel,
    documents: Sequence[Sequence[str]],
    translations: Sequence[Translation],
    tag: Sequence[int] = (),
) -> list[list[Links]]:
    """The links of each segment of each document, ordered by target word; words count from 0 in their segment. A
    segment merged with the one before it has none: its words continue the numbering of that one.

    tag  the tokens that preceded the sources when they were translated

    Time and memory are linear in the document, which is read in runs of `LONGEST` tokens. Raises ValueError if segment
    counts differ, and for a model whose attention has no weights.
    """
    return [_document(loaded, *pair, tag) for pair in zip(documents, translations, strict=True)]


def as_pharaoh(links: Links) -> str:
    """The links of a segment on one line: `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in links)


def alignments_path(align: str | None, output: str, format: str, match: bool) -> str | None:
    """The file for alignments, from `align` ("true" or a file name) and the output; None without alignments, or if the
    JSON Lines output holds them. Raises ValueError for options that do not fit together."""
    if align is None:
        return None
    if not match:
        raise ValueError(f"align={align}: links refer to source segments: set decoding.match_segments=true")
    if align != "true":
        check_file("align", align)
        return align
    if format == "jsonl":
        return None
    if output == "-":
        raise ValueError("align=true: text on stdout cannot hold alignments: set align=FILE or output_format=jsonl")
    check_file("align", f"{output}.align")
    return f"{output}.align"


def write_alignments(path: str, documents: Sequence[Sequence[Links]]) -> None:
    """Write one line per segment of all documents (`as_pharaoh`). Raises OSError."""
    with atomic_writer(path) as file:
        file.writelines(f"{as_pharaoh(links)}\n" for segments in documents for links in segments)


def _document(
    loaded: LoadedModel, segments: Sequence[str], translation: Translation, tag: Sequence[int]
) -> list[Links]:
    best = translation.hypotheses[0]
    if len(best.segments) != len(segments):
        raise ValueError(
            f"align: segment count differs: source {len(segments)}, translation {len(best.segments)}: "
            "set decoding.match_segments=true"
        )
    found: list[Links] = [()] * len(segments)
    firsts = [n for n in range(len(segments)) if n not in best.shared]
    units = {}
    for first, stop in zip(firsts, [*firsts[1:], len(segments)], strict=True):
        if (text := best.segments[first]).strip():
            sources, [ends] = segments[first:stop], separators(stop - first, 1)
            target = [*loaded.target_tokenizer.encode(text), *ends]
            units[first] = Unit(sources, loaded.source_tokenizer.encode_segments(sources), target, text)
    sizes = [(n, max(len(unit.source), len(unit.target))) for n, unit in units.items()]
    for run in runs(sizes, LONGEST):
        for n, weights in zip(run, attention_of(loaded, [units[n] for n in run], tag), strict=True):
            found[n] = _links(loaded, units[n], weights)
    return found


@torch.inference_mode()
def attention_of(loaded: LoadedModel, units: Sequence[Unit], tag: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """The weights (target tokens, source tokens) of each of some consecutive units, read together after the tag."""
    source = [*tag, *(token for unit in units for token in unit.source), EOS]
    target = [*(token for unit in units for token in unit.target), EOS]
    example = Example("", np.array(source), np.array(target))
    batch = collate([example]).to(loaded.device)
    models = getattr(loaded.model, "models", [loaded.model])  # of an ensemble
    total = np.zeros((len(target), len(source)), dtype=np.float32)
    for model in models:
        with recorded_weights(model, ("cross",)) as recorded:
            model(batch)
        layers = recorded["cross"]
        if not layers:
            raise ValueError(
                "align: the model's cross-attention has no weights: leave out align and the table of terms"
            )
        total += layers[max(0, len(layers) - 2)][0].float().mean(0).cpu().numpy() / len(models)  # (L, S)
    row, column = 0, len(tag)
    for unit in units:
        stop = row + len(unit.target), column + len(unit.source)
        yield total[row : stop[0], column : stop[1]]
        row, column = stop


def _links(loaded: LoadedModel, unit: Unit, weights: NDArray[np.float32]) -> Links:
    columns = source_words(loaded.source_tokenizer, unit.sources)  # (S, source words)
    own = token_words(loaded.target_tokenizer, unit.text)  # (L without separators, target words)
    if columns.shape[1] == 0:
        return ()
    of_words = own.T @ (weights[: len(own)] @ columns)  # (target words, source words)
    return tuple((int(best), n) for n, best in enumerate(of_words.argmax(1)))


def source_words(tokenizer: Tokenizer, sources: Sequence[str]) -> NDArray[np.float32]:
    """`token_words` of consecutive segments with their separators, which belong to no word."""
    parts = [token_words(tokenizer, text) for text in sources]
    whole = np.zeros((sum(len(part) + 1 for part in parts), sum(part.shape[1] for part in parts)), dtype=np.float32)
    row = column = 0
    for part in parts:
        whole[row : row + len(part), column : column + part.shape[1]] = part
        row, column = row + len(part) + 1, column + part.shape[1]
    return whole


def token_words(tokenizer: Tokenizer, text: str) -> NDArray[np.float32]:
    """(tokens, words) share of each token of a text in each of its words: rows sum to 1, or 0 for a trailing space. A
    space belongs to the word after it."""
    read, places = tokenizer.offsets(text)
    words = spans(read)
    number = np.full(len(read) + 1, -1)
    for n, (start, stop) in enumerate(words):
        number[start:stop] = n
    shares = np.zeros((len(places), len(words)), dtype=np.float32)
    for token, (start, stop) in enumerate(places):
        while start < len(read) and read[start].isspace():
            start += 1
        of = np.unique(number[start : max(stop, start + 1)])
        of = of[of >= 0]
        shares[token, of] = 1 / max(len(of), 1)
    return shares
