"""Vocabularies of other programs as tokenizers of ours: the special pieces first, then theirs, split as they split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sentencepiece as spm

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.data.tokenizer_extension import piece_message
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, SEP0, SPECIAL_PIECES, UNK

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # sentencepiece's piece types
SHOWN = 20  # tags named in an error
_PIECES, _SELF_TEST = 1, 4  # fields of its ModelProto


class Ids(NamedTuple):
    """Token ids of another vocabulary: padding, unknown, end of the sentence, and what its decoder begins with."""

    pad: int
    unk: int
    eos: int
    start: int


class Vocabulary(NamedTuple):
    """A vocabulary in our order. pieces: of each id; rows: which row of their matrices it has; hidden: pieces that no
    text becomes; new: ids that their models cannot write."""

    pieces: list[str]
    rows: list[int]
    hidden: frozenset[str]
    new: list[int]


def renumbered(theirs: Sequence[str], ids: Ids, hidden: frozenset[str], protos: Sequence[bytes]) -> Vocabulary:
    """Our order for the pieces of another vocabulary, given by their ids.

    hidden  pieces that stand for no text, such as tags
    protos  the sentencepiece models that split texts for it; pieces that it lacks get the row of its unknown one

    A piece that has the name of one of our special ones, which it does not mean, gets an apostrophe. Raises ValueError
    for a piece that occurs twice.
    """
    rows = [ids.unk] * len(SPECIAL_PIECES)
    rows[PAD], rows[UNK], rows[BOS] = ids.pad, ids.unk, ids.start
    rows[EOS:PLACEHOLDER] = [ids.eos] * (PLACEHOLDER - EOS)
    new = [BOS, EOS, *range(SEP0, len(SPECIAL_PIECES))]
    rest = [row for row in range(len(theirs)) if row not in ids[:3]]
    pieces = [*SPECIAL_PIECES, *(theirs[row] + "'" * (theirs[row] in SPECIAL_PIECES) for row in rest)]
    if len(known := set(pieces)) < len(pieces):
        twice = next(piece for n, piece in enumerate(pieces) if piece in pieces[:n])
        raise ValueError(f"the piece {twice!r} occurs twice in its vocabulary")
    extra: dict[str, None] = {}
    for proto in protos:
        model = _load(proto)
        own = (
            model.id_to_piece(n) for n in range(model.vocab_size()) if not (model.is_control(n) or model.is_unknown(n))
        )
        extra.update(dict.fromkeys(piece for piece in own if piece not in known))
    new += range(len(pieces), len(pieces) + len(extra))
    return Vocabulary([*pieces, *extra], [*rows, *rest, *[ids.unk] * len(extra)], hidden, new)


def as_ours(proto: bytes, vocabulary: Vocabulary) -> bytes:
    """The sentencepiece model `proto` with the pieces of a vocabulary: it splits every text into the same pieces."""
    model = _load(proto)
    own = {model.id_to_piece(n): n for n in range(model.vocab_size())}
    # Scores of BPE are whole numbers; there a longer piece that is not to be used would still take part in merges.
    merges = all(model.get_score(n).is_integer() for n in own.values())
    messages = []
    for n, piece in enumerate(vocabulary.pieces):
        score, kind = 0.0, _CONTROL if merges and len(piece) > 1 else _UNUSED
        if n < len(SPECIAL_PIECES):
            kind = _UNKNOWN if n == UNK else _CONTROL if n < PLACEHOLDER else _USER_DEFINED
        elif piece in vocabulary.hidden:
            kind = _CONTROL
        elif (there := own.get(piece)) is not None:
            score = model.get_score(there)
            flags = {_BYTE: model.is_byte(there), _UNUSED: model.is_unused(there), _CONTROL: model.is_control(there)}
            kind = next((kind for kind, holds in flags.items() if holds), _NORMAL)
        messages.append(piece_message(piece, score, kind))
    rest = (field for number, field in _fields(proto) if number not in (_PIECES, _SELF_TEST))
    return b"".join([*messages, *rest])


def prefixes(tokenizer: Tokenizer, tag: str | None) -> tuple[list[int], list[int]]:
    """The tokens before every source and target segment of an imported vocabulary: of a tag that names the target
    language, `fr`, or for a vocabulary with languages of both sides the two, `en-fr`. Raises ValueError."""
    pairs = {name: token for name, token in tokenizer.tags.items() if name.endswith("-")}
    known = pairs or tokenizer.tags
    if not known and tag is None:
        return [], []
    source, _, target = (tag or "").partition("-")
    if f"{source}-" in pairs and f"{target}-" in pairs:
        return [pairs[f"{source}-"]], [pairs[f"{target}-"]]
    if tag in known and not pairs:
        return [known[tag]], []
    names = [name.removesuffix("-") for name in known]
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    given = "the model wants a tag" if tag is None else f"tag={tag}: the model knows no such tag"
    wanted = f"give tag=SOURCE-TARGET, two of {shown}" if pairs else f"give tag=, one of {shown}"
    raise ValueError(f"{given}: {wanted if known else 'it has no tags'}")


def tagged(source: Tokenizer, target: Tokenizer, tag: str | None) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of an imported model with the prefixes of a tag. Raises ValueError as `prefixes`."""
    before = prefixes(source, tag)
    return source.with_prefix(before[0]), target.with_prefix(before[1])


def _load(proto: bytes) -> spm.SentencePieceProcessor:
    model = spm.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(proto)
    except RuntimeError as error:
        raise ValueError("its sentencepiece model is damaged or truncated") from error
    return model


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protocol buffer message whose fields are messages, each with its number."""
    place = 0
    while place < len(message):
        start, (key, place) = place, _varint(message, place)
        size, place = _varint(message, place)
        place += size
        yield key >> 3, message[start:place]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, place
