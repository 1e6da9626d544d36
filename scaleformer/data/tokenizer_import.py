"""Vocabularies of other programs as tokenizers of ours: the special pieces first, then theirs, split as they split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.data.tokenizer_extension import parsed
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, SEP0, SPECIAL_PIECES, UNK

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # sentencepiece's piece types
SHOWN = 20  # tags named in an error


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
        own = (one.piece for one in parsed(proto).pieces if one.type not in (_CONTROL, _UNKNOWN))
        extra.update(dict.fromkeys(piece for piece in own if piece not in known))
    new += range(len(pieces), len(pieces) + len(extra))
    return Vocabulary([*pieces, *extra], [*rows, *rest, *[ids.unk] * len(extra)], hidden, new)


def as_ours(proto: bytes, vocabulary: Vocabulary) -> bytes:
    """The sentencepiece model `proto` with the pieces of a vocabulary: it splits every text into the same pieces."""
    model = parsed(proto)
    own = {one.piece: one for one in model.pieces}
    # Scores of BPE are whole numbers; there a longer piece that is not to be used would still take part in merges.
    merges = all(one.score.is_integer() for one in own.values())
    del model.pieces[:]
    model.ClearField("self_test_data")
    for n, piece in enumerate(vocabulary.pieces):
        score, kind = 0.0, _CONTROL if merges and len(piece) > 1 else _UNUSED
        if n < len(SPECIAL_PIECES):
            kind = _UNKNOWN if n == UNK else _CONTROL if n < PLACEHOLDER else _USER_DEFINED
        elif piece in vocabulary.hidden:
            kind = _CONTROL
        elif (there := own.get(piece)) is not None:
            score, kind = there.score, there.type if there.type in (_BYTE, _UNUSED, _CONTROL) else _NORMAL
        model.pieces.add(piece=piece, score=score, type=kind)
    return model.SerializeToString()


def tag_names(tokenizer: Tokenizer) -> list[str]:
    """The tags, or where a tag names both languages those that it is made of."""
    pairs = [name.removesuffix("-") for name in tokenizer.tags if name.endswith("-")]
    return pairs or list(tokenizer.tags)


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
    names = tag_names(tokenizer)
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    given = "the model wants a tag" if tag is None else f"tag={tag}: the model knows no such tag"
    wanted = f"give tag=SOURCE-TARGET, two of {shown}" if pairs else f"give tag=, one of {shown}"
    wanted += "; data.tag= for a corpus"
    raise ValueError(f"{given}: {wanted if known else 'it has no tags'}")


def tagged(source: Tokenizer, target: Tokenizer, tag: str | None) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of an imported model with the prefixes of a tag. Raises ValueError as `prefixes`."""
    before = prefixes(source, tag)
    return source.with_prefix(before[0]), target.with_prefix(before[1])
