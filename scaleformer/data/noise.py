"""`data.word_dropout` and `data.mask_source`: remove words from training sources, so that a model learns to use their
context."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from scaleformer.data.batching import Example
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.data.tokenizer_extension import UNSPACED
from scaleformer.vocabulary import PLACEHOLDERS, SEP, TERM_PIECES, UNK

# Separators, tags and other special pieces, but not bytes.
_SPECIAL = regex.compile(rf"<(?!0x)[^<>]+>|{'|'.join((*PLACEHOLDERS, *TERM_PIECES))}")
# Words begin with a space; in scripts without spaces every piece is a word.
_BEGINS = regex.compile(rf"\u2581|{UNSPACED}")


@dataclass(frozen=True)
class Noise:
    """Removes words and masks tokens in the sources of examples.

    word_dropout     share of the words to remove; a segment that would lose all words keeps them all
    mask_source      share of the remaining tokens that become `<unk>`
    begins, special  (vocabulary,) bool, by token: whether it begins a word; whether it never changes (separators,
                     placeholders, tags, `</s>`)
    """

    word_dropout: float
    mask_source: float
    begins: NDArray[np.bool_] = field(repr=False, compare=False)
    special: NDArray[np.bool_] = field(repr=False, compare=False)

    def __call__(self, example: Example, *key: int) -> Example:
        """The example with noise that depends only on the key and the example's name."""
        name = hashlib.blake2b(example.id.encode(), digest_size=8).digest()
        rng = np.random.default_rng((*key, int.from_bytes(name, "big")))
        source = example.source
        if self.word_dropout > 0:
            source = source[~self._left_out(source, rng)]
        if self.mask_source > 0:
            hidden = (rng.random(len(source)) < self.mask_source) & ~self.special[source]
            source = np.where(hidden, np.array(UNK, source.dtype), source)
        return replace(example, source=source)

    def _left_out(self, source: NDArray[Any], rng: np.random.Generator) -> NDArray[np.bool_]:
        """(S,) which tokens to leave out."""
        special = self.special[source]
        starts = self.begins[source] | special
        starts[1:] |= special[:-1]
        word = np.cumsum(starts)  # (S,) word numbers
        left_out = (rng.random(len(source) + 1) < self.word_dropout)[word] & ~special
        segment = np.cumsum(source == SEP)  # (S,)
        left = np.bincount(segment, ~special & ~left_out)  # word tokens that each segment keeps
        return left_out & (left[segment] > 0)


def make_noise(word_dropout: float, mask_source: float, tokenizer: Tokenizer) -> Noise:
    """The noise with these shares for sources in this vocabulary."""
    pieces = [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
    begins, special = (
        np.array([found(piece) is not None for piece in pieces]) for found in (_BEGINS.match, _SPECIAL.fullmatch)
    )
    return Noise(word_dropout, mask_source, begins, special)
