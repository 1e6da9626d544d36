"""The vocabularies of Marian, M2M100 and NLLB-200 folders, in our order of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece as spm

from scaleformer.checkpoints.marian_npz import numbers_of
from scaleformer.data.tokenizer_import import Ids, Vocabulary, as_ours, renumbered

SPM = "sentencepiece.bpe.model"
#: of M2M100, in the order of their ids; its folders do not name them
_M2M100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
_WMT21 = "en ha is ja cs ru zh de"
_FILLERS = 64  # rows beyond the vocabulary that a matrix may have, for sizes that are faster
_TARGET_TAG = re.compile(r">>(.+)<<")
_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")


class Vocabularies(NamedTuple):
    """Of both sides, the same object if shared; the tokenizers; the files read."""

    source: Vocabulary
    target: Vocabulary
    source_proto: bytes
    target_proto: bytes
    files: list[Path]


def marian(folder: Path, config: Mapping[str, Any], source_rows: int, target_rows: int) -> Vocabularies:
    """Two sentencepiece models, which split texts, and the ids of the pieces in vocab.json; `>>xx<<` is the tag xx."""
    if (folder / "target_vocab.json").is_file() == config.get("share_encoder_decoder_embeddings", True):
        raise ValueError(
            "share_encoder_decoder_embeddings of config.json does not fit its vocabularies: target_vocab.json"
        )
    files = [folder / name for name in ("source.spm", "target.spm", "vocab.json", "target_vocab.json")]
    files = [file for file in files if file.name != "target_vocab.json" or file.is_file()]
    sides = [
        _named(_numbered(file), n, file.name) for file, n in zip(files[2:], (source_rows, target_rows), strict=False)
    ]
    return _two_models(sides, config["decoder_start_token_id"], files)


def native_marian(
    folder: Path, shared: bool, given: Sequence[Path], source_rows: int, target_rows: int
) -> Vocabularies:
    """As `marian`, of the vocabularies `given`: YAML beside source.spm and target.spm, or such models themselves."""
    texts = [
        file if file.suffix == ".spm" else folder / f"{side}.spm"
        for side, file in zip(("source", "target"), given, strict=True)
    ]
    rows = zip(given[:1] if shared else given, (source_rows, target_rows), strict=False)
    sides = [_named(numbers_of(file), n, file.name) for file, n in rows]
    return _two_models(sides, None, texts)


def _two_models(sides: Sequence[list[str]], start: int | None, files: list[Path]) -> Vocabularies:
    """Of the pieces of both sides, or of all. start: what the decoder begins with, None = the last piece; files: the
    two sentencepiece models first."""
    models = [_read(file) for file in files[:2]]
    made: list[Vocabulary] = []
    for pieces in sides:
        tags = {piece: f"<{found[1]}>" for piece in pieces if (found := _TARGET_TAG.fullmatch(piece))}
        ids = _ids(pieces, len(pieces) - 1 if start is None else start)
        theirs = [tags.get(piece, piece) for piece in pieces]
        own = models if len(sides) == 1 else [models[len(made)]]
        made.append(renumbered(theirs, ids, frozenset(tags.values()), own))
    source, target = made[0], made[-1]
    return Vocabularies(source, target, as_ours(models[0], source), as_ours(models[1], target), files)


def m2m100(folder: Path, config: Mapping[str, Any], rows: int, _: int) -> Vocabularies:
    """The ids of vocab.json, then languages; `en-fr` is the tag for English to French."""
    settings = _json(folder / "tokenizer_config.json")
    codes = _WMT21 if settings.get("language_codes") == "wmt21" else _M2M100
    numbers = _numbered(folder / "vocab.json")
    tags = [f"<{code}->" for code in codes.split()]
    pieces = [*_named(numbers, len(numbers), "vocab.json"), *tags]
    return _one_model(folder, config, pieces, set(tags), rows, [folder / "vocab.json"])


def nllb(folder: Path, config: Mapping[str, Any], rows: int, _: int) -> Vocabularies:
    """The pieces of its sentencepiece model, one further on, then languages; `eng_Latn-fra_Latn` is a tag."""
    model = spm.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(_read(folder / SPM))
    except RuntimeError as error:
        raise ValueError(f"{SPM} is damaged or truncated") from error
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(n) for n in range(3, model.vocab_size()))]
    tokens = _json(folder / "tokenizer.json").get("added_tokens") or []
    added = [token["content"] for token in sorted(tokens, key=lambda token: token["id"]) if token["id"] >= len(pieces)]
    for name in ("special_tokens_map.json", "tokenizer_config.json"):  # of a folder without tokenizer.json
        given = _json(folder / name).get("additional_special_tokens") or []
        added = added or [*(token for token in given if _CODE.fullmatch(token)), "<mask>"]
    if not any(map(_CODE.fullmatch, added)):
        raise ValueError(
            f"no file names its language codes: copy tokenizer.json or special_tokens_map.json (NLLB-200), "
            f"or vocab.json (M2M100), beside {SPM}"
        )
    pieces += [f"<{token}->" if _CODE.fullmatch(token) else token for token in added]
    return _one_model(folder, config, pieces, set(pieces[-len(added) :]), rows, [])


def _one_model(
    folder: Path, config: Mapping[str, Any], pieces: list[str], hidden: set[str], rows: int, files: list[Path]
) -> Vocabularies:
    """One sentencepiece model for both sides, and tags of languages."""
    if not 0 <= rows - len(pieces) <= _FILLERS:
        raise ValueError(f"its vocabulary has {len(pieces):,} pieces and its weights {rows:,}: they are of two models")
    fillers = [f"<filler{n}>" for n in range(rows - len(pieces))]
    ids = _ids(pieces, config.get("decoder_start_token_id", 2))
    pieces = [*pieces, *fillers]
    proto = _read(folder / SPM)
    made = renumbered(pieces, ids, frozenset({*hidden, *fillers}), [proto])
    ours = as_ours(proto, made)
    return Vocabularies(made, made, ours, ours, [folder / SPM, *files])


def _named(numbers: Mapping[str, int], rows: int, name: str) -> list[str]:
    """The pieces in the order of their ids, which are all of 0 to rows - 1."""
    if sorted(numbers.values()) != list(range(rows)):
        raise ValueError(f"{name} has {len(numbers):,} pieces and its weights {rows:,} rows: they are of two models")
    return sorted(numbers, key=numbers.__getitem__)


def _ids(pieces: Sequence[str], start: int) -> Ids:
    pad, unk, eos = map(pieces.index, ("<pad>", "<unk>", "</s>"))
    return Ids(pad, unk, eos, start)


def _numbered(path: Path) -> dict[str, int]:
    found = _json(path, needed=True)
    if lacking := [piece for piece in ("<pad>", "<unk>", "</s>") if piece not in found]:
        raise ValueError(f"{path.name} has no {lacking[0]}")
    return found


def _json(path: Path, needed: bool = False) -> dict[str, Any]:
    if not needed and not path.is_file():
        return {}
    content = _read(path)
    try:
        found = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path.name} is not readable as JSON: {error}") from error
    return dict(found)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"{path.name} is missing: copy all files of the model")
    return path.read_bytes()
