"""`tokenizer.extend`: pieces of their own for terms and characters that a finished vocabulary splits."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import regex

from scaleformer.data.errors import DataError
from scaleformer.data.readers.lines import read_lines
from scaleformer.data.tokenizer import Tokenizer, escape
from scaleformer.vocabulary import PLACEHOLDERS, SPACE

UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"  # scripts that write no spaces
_ANYWHERE = regex.compile(rf"{UNSPACED}|.\Z", regex.DOTALL)
_NORMAL, _USER_DEFINED = 1, 4  # types of sentencepiece
_BONUS = 0.01  # by which a character of a new piece makes it likelier than the pieces it was split into


class Extension(NamedTuple):
    """A vocabulary with more pieces.

    tokenizer  the ids of its parent's pieces are what they were, the new ones follow
    split      of each new piece, in the order of the ids, the ids that it was split into before
    """

    tokenizer: Tokenizer
    split: list[list[int]]


def read_terms(path: str) -> list[str]:
    """The lines of a file that are not blank, each once, with single spaces. Raises DataError where there are none."""
    terms = dict.fromkeys(" ".join(line.replace("\0", " ").split()) for _, line in read_lines(path, "text"))
    terms.pop("", None)
    if not terms:
        raise DataError(f"tokenizer.extend={path}: the file is empty: give a term, or a character, on each line")
    return list(terms)


def extend(tokenizer: Tokenizer, terms: Iterable[str], model_type: str) -> Extension:
    """The vocabulary with those of the terms that are no pieces of it yet.

    A term is a piece where a word begins with it; a single character, and a term of a script without spaces, anywhere.
    A text in which no new piece stands is split as before. unigram: a new piece is a bit likelier than what it was
    split into, so that longer pieces that hold it stay. bpe: it is cut out before anything is merged, of longer words
    too. Raises DataError for a term that holds a placeholder.
    """
    known = {tokenizer.piece(token) for token in range(tokenizer.vocab_size)}
    # Below the least likely piece a new one would change what unknown characters cost.
    least = min(tokenizer.score(token) for token in range(tokenizer.vocab_size))
    pieces, split = [], []
    for term in terms:
        if any(placeholder in term for placeholder in PLACEHOLDERS):
            raise DataError(
                f"tokenizer.extend: the term {term!r:.60} holds a placeholder, which is a piece: leave it out"
            )
        anywhere = _ANYWHERE.match(term)
        piece = ("" if anywhere else SPACE) + escape(term).replace(" ", SPACE)
        if piece in known:
            continue
        ids = tokenizer.encode(term)
        if anywhere and tokenizer.piece(ids[0]) == SPACE:
            del ids[0]
        score, kind = 0.0, _USER_DEFINED
        if model_type == "unigram":
            scores = [tokenizer.score(token) for token in ids]
            likely = sum(scores) + _BONUS * len(piece) if all(scores) else least  # bytes and `<unk>` have none
            score, kind = max(likely, least), _NORMAL
        pieces.append(_message(piece, score, kind))
        split.append(ids)
    # Messages of protocol buffers that follow one another are one, in which the pieces of both stand.
    return Extension(Tokenizer(tokenizer.proto + b"".join(pieces)), split)


def _message(piece: str, score: float, kind: int) -> bytes:
    """`ModelProto.pieces` of one piece, as sentencepiece_model.proto has it."""
    text = piece.encode()
    content = b"\x0a" + _varint(len(text)) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + _varint(kind)
    return b"\x0a" + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last with the eighth set."""
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])
