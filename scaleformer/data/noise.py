"""`data.word_dropout` and `data.mask_source`: training sources from which words are missing, so that a model learns to
go by what is around them."""

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

# Separators, tags and so on, but not bytes.
_SPECIAL = regex.compile(rf"<(?!0x)[^<>]+>|{'|'.join((*PLACEHOLDERS, *TERM_PIECES))}")
# Words begin with a space, but for scripts that write none: there every piece is one.
_BEGINS = regex.compile(rf"\u2581|{UNSPACED}")


@dataclass(frozen=True)
class Noise:
    """Leaves out and hides words of the sources of examples.

    word_dropout     share of the words that are left out; a segment of which none would be left keeps them all
    mask_source      share of the tokens that become `<unk>`, of those that are left
    begins, special  (vocabulary,) bool, by token: whether a word begins with it; whether it always stays as it is
                     (separators, placeholders, tags, `</s>`)
    """

    word_dropout: float
    mask_source: float
    begins: NDArray[np.bool_] = field(repr=False, compare=False)
    special: NDArray[np.bool_] = field(repr=False, compare=False)

    def __call__(self, example: Example, *key: int) -> Example:
        """The example with its noise, which the key and the example's name decide."""
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
        word = np.cumsum(starts)  # (S,) numbers of the words
        left_out = (rng.random(len(source) + 1) < self.word_dropout)[word] & ~special
        segment = np.cumsum(source == SEP)  # (S,)
        left = np.bincount(segment, ~special & ~left_out)  # tokens of words that each segment keeps
        return left_out & (left[segment] > 0)


def make_noise(word_dropout: float, mask_source: float, tokenizer: Tokenizer) -> Noise:
    """That of these shares for sources of this vocabulary."""
    pieces = [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
    begins, special = (
        np.array([found(piece) is not None for piece in pieces]) for found in (_BEGINS.match, _SPECIAL.fullmatch)
    )
    return Noise(word_dropout, mask_source, begins, special)
