"""`tokenizer.extend`: adds pieces for terms and characters that an existing vocabulary splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import regex

from scaleformer.data.tokenizer import Tokenizer, escape
from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.vocabulary import PLACEHOLDERS, SPACE

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"  # scripts without spaces
_ANYWHERE = regex.compile(rf"{_UNSPACED}|.\Z", regex.DOTALL)
_NORMAL, _USER_DEFINED = 1, 4  # sentencepiece's piece types
_BONUS = 0.01  # added to a new piece's log-probability per character, on top of the pieces that it was split into


class Extension(NamedTuple):
    """A vocabulary with additional pieces.

    tokenizer  keeps the ids of the parent's pieces; the new ones follow
    split      for each new piece, in the order of its id, the ids that it was split into before
    """

    tokenizer: Tokenizer
    split: list[list[int]]


def read_words(path: str) -> list[str]:
    """The distinct nonblank lines of a file, with single spaces. Raises DataError if there are none."""
    terms = dict.fromkeys(" ".join(line.replace("\0", " ").split()) for _, line in read_lines(path, "text"))
    terms.pop("", None)
    if not terms:
        raise DataError(f"tokenizer.extend={path}: the file is empty: write one term or character per line")
    return list(terms)


def extend(tokenizer: Tokenizer, terms: Iterable[str], model_type: str) -> Extension:
    """The vocabulary plus those terms that are not yet pieces of it.

    A term matches at the beginning of words; a single character, or a term in a script without spaces, anywhere. A text
    without new pieces is split as before. unigram: a new piece is slightly likelier than its former parts, so that
    longer pieces that contain it remain. bpe: it is split off before any merge, also within longer words. Raises
    DataError for a term that contains a placeholder.
    """
    known = {tokenizer.piece(token) for token in range(tokenizer.vocab_size)}
    # A new piece less likely than all others would change the cost of unknown characters.
    least = min(tokenizer.score(token) for token in range(tokenizer.vocab_size))
    model, split = parsed(tokenizer.proto), []
    for term in terms:
        if any(placeholder in term for placeholder in PLACEHOLDERS):
            raise DataError(
                f"tokenizer.extend: the term {term!r:.60} contains a placeholder, which is already a piece: remove it"
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
        model.pieces.add(piece=piece, score=score, type=kind)
        split.append(ids)
    return Extension(Tokenizer(model.SerializeToString()), split)


def parsed(proto: bytes) -> Any:
    """A sentencepiece model as the message that sentencepiece_model.proto defines. Raises ValueError if damaged."""
    from google.protobuf.message import DecodeError  # on first use: it takes time
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        model = ModelProto.FromString(proto)
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise ValueError("its sentencepiece model is damaged or truncated")
    return model
