"""Subword tokenizer: sentencepiece, trained on the training split and kept by content hash.

Ids: `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, `<sep>` 4, then the other separators and the placeholders
(`scaleformer.vocabulary`). With byte fallback any text round-trips exactly.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

import sentencepiece as spm

from scaleformer.system.schema import Natural, Range, check_fields, check_type
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, SEPARATORS, SPACE, SPECIAL_PIECES, TAG, UNK, steps_of

SPECIAL = len(SPECIAL_PIECES)

# Characters that make sentencepiece's trainer drop a sentence (tab: its boundary mark) or are reserved (null, U+2585).
_UNTRAINABLE = re.compile("[\t\n\r\0\u2585]")
# sentencepiece writes a space as U+2581 and would read a literal `<sep>` as the user symbol. Both are escaped with a
# character of the private use area, which is itself doubled; `unescape` is the exact inverse of `escape`.
ESCAPE = "\ue000"
ESCAPED = re.compile(f"{ESCAPE}|{SPACE}|<(?=sep[023]?>)")
_UNESCAPED = re.compile(f"{ESCAPE}({ESCAPE}|_|)")
ModelType = Literal["unigram", "bpe"]


@dataclass(frozen=True)
class TokenizerConfig:
    """Settings of the tokenizers; `conf/tokenizer/default.yaml` says what each means."""

    vocab_size: Annotated[int, Range(gt=SPECIAL)] = 8000
    model_type: ModelType = "unigram"
    joint: bool = True
    byte_fallback: bool = True
    character_coverage: Annotated[float, Range(gt=0, le=1)] = 0.9995
    split_digits: bool = False
    max_segments: Natural = 0
    extend: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")


class Tokenizer:
    """A trained sentencepiece model, all of it in the bytes `proto`. Raises ValueError unless they are one of ours.

    prefix     tokens before every text that it encodes, such as a tag (`with_prefix`)
    tags       ids of its tags, by name
    imported   whether it is a vocabulary of another program (`tokenizer_import`): texts are read as there, and the tags
               stand before every segment
    """

    def __init__(self, proto: bytes, prefix: Sequence[int] = ()) -> None:
        self.proto = proto
        self.prefix = list(prefix)
        self._processor = spm.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(proto)
        except RuntimeError as error:
            raise ValueError("not a sentencepiece model: the file is damaged or truncated") from error
        pieces = self._processor.id_to_piece(list(range(self.vocab_size)))
        if tuple(pieces[:SPECIAL]) != SPECIAL_PIECES:
            raise ValueError(
                f"this tokenizer's first pieces are {' '.join(pieces[:SPECIAL])}, wanted {' '.join(SPECIAL_PIECES)}: "
                "train it with this program"
            )
        # No word becomes such a piece: sentencepiece separates letters and digits from angle brackets.
        named = enumerate(map(TAG.fullmatch, pieces))
        self.tags = {found[1]: i for i, found in named if found and i >= SPECIAL and not self._processor.is_byte(i)}
        self._escaped = escaped_with(self.tags)
        self.imported = bool(self._processor.is_control(SEP))

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, model_type: str = "unigram", byte_fallback: bool = True,
        character_coverage: float = 0.9995, split_digits: bool = False, tags: Sequence[str] = (),
    ) -> Tokenizer:  # fmt: skip
        """Train on segments. The same texts and settings give the same bytes (in one thread; more would change them).
        tags: names of pieces to reserve, after the other special ones. Raises ValueError if the vocabulary is larger
        than the texts allow, or too small for their characters, and whatever `texts` raises."""
        check_type("tokenizer.model_type", model_type, ModelType)
        count, escaped = 0, escaped_with(tags)
        failures: list[BaseException] = []  # of the texts: sentencepiece takes one for their end

        def sentences() -> Iterator[str]:
            nonlocal count
            try:
                for text in texts:
                    # Train on line ends and control characters as spaces: they are encoded as bytes anyway.
                    clean = _UNTRAINABLE.sub(" ", escape(text, escaped)).strip(" ")
                    if clean:
                        count += 1
                        yield clean
            except BaseException as error:
                failures.append(error)

        model = io.BytesIO()
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=sentences(), model_writer=model, vocab_size=vocab_size, model_type=model_type,
                byte_fallback=byte_fallback, character_coverage=character_coverage, split_digits=split_digits,
                pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, pad_piece=SPECIAL_PIECES[PAD],
                user_defined_symbols=[*SPECIAL_PIECES[SEP:], *(f"<{tag}>" for tag in tags)],
                normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, minloglevel=2,
                max_sentence_length=2**30,  # the default drops longer lines in silence; this is the most it takes
            )  # fmt: skip
        except RuntimeError as error:
            if not failures:
                raise ValueError(_training_message(str(error), vocab_size, count, byte_fallback)) from error
        if failures:
            raise failures[0]
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    @property
    def hash(self) -> str:
        """sha256 of the model and the prefix; part of the names of cached encoded corpora."""
        return hashlib.sha256(self.proto + b"".join(b" %d" % token for token in self.prefix)).hexdigest()

    def with_prefix(self, prefix: Sequence[int]) -> Tokenizer:
        """The same with these tokens before every text."""
        other = copy(self)
        other.prefix = list(prefix)
        return other

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without `<sep>` or `</s>`."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts in one call."""
        if not self.imported:
            return self._processor.encode([escape(text, self._escaped) for text in texts])
        # by pieces: one that only the other side's model has may be the surface of an unknown one, as there
        split = self._processor.encode(list(texts), out_type=str)
        return [[*self.prefix, *self._processor.piece_to_id(pieces)] for pieces in split]

    def offsets(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The escaped text, and the (start, stop) of each token of `encode` in it. These are equal for a leading space
        that the text does not have, and for all but the last byte of a character."""
        read = text if self.imported else escape(text, self._escaped)
        pieces = self._processor.encode(read, out_type="immutable_proto").pieces
        return read, [*((0, 0) for _ in self.prefix), *((piece.begin, piece.end) for piece in pieces)]

    def encode_segments(self, segments: Sequence[str]) -> list[int]:
        """Token ids of a document, each segment with its `<sep>`; without `</s>`."""
        return [token for tokens in self.encode_batch(segments) for token in (*tokens, SEP)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special pieces but `<unk>` (` \u2047 `) or bytes that make no character."""
        left_out = (PAD, BOS, EOS, *SEPARATORS, *self.tags.values())
        text = self._processor.decode(kept := [int(i) for i in ids if i not in left_out])
        if self.imported:  # a piece that only the other side splits texts into is no text to sentencepiece
            if any(self._processor.is_control(kept)):
                text = "".join(self._processor.id_to_piece(kept))
            return text.replace(SPACE, " ").strip()
        return unescape(self._processor.decode(self._whole(kept)[0]) if "\ufffd" in text else text)

    def broken(self, ids: Sequence[int]) -> int:
        """How many U+FFFD would stand for the bytes that `decode` leaves out; it leaves them where imported."""
        return 0 if self.imported else self._whole([int(i) for i in ids])[1]

    def _whole(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """Token ids without bytes that make no character, and the number of U+FFFD in their place."""
        kept: list[int] = []
        broken = 0
        for is_byte, run in groupby(ids, self._processor.is_byte):
            if is_byte:
                data = bytes(int(self.piece(i)[3:5], 16) for i in run)
                whole = data.decode(errors="ignore")
                broken += len(data.decode(errors="replace")) - len(whole)
                kept += self._processor.piece_to_id([f"<0x{byte:02X}>" for byte in whole.encode()])
            else:
                kept += run
        return kept, broken

    def decode_segments(self, ids: Sequence[int]) -> list[str]:
        """The segments of token ids up to the first `</s>`, split after every separator; the last may have none."""
        return [text for text, _ in self.decode_counted(ids)]

    def decode_counted(self, ids: Sequence[int]) -> list[tuple[str, int]]:
        """`decode_segments`, each with the number of source segments that its separator consumes; 0 without one."""
        segments: list[tuple[str, int]] = []
        words: list[int] = []
        for token in map(int, ids):
            if token == EOS:
                break
            if (steps := steps_of(token)) is not None:
                segments.append((self.decode(words), steps))
                words = []
            elif token not in (PAD, BOS):
                words.append(token)
        return [*segments, (self.decode(words), 0)] if words else segments

    def piece(self, token: int) -> str:
        """The piece of a token id, for reports."""
        return self._processor.id_to_piece(int(token))

    def score(self, token: int) -> float:
        """The log-probability of a token id (unigram) or minus the rank of its merge (bpe); 0 if it has none."""
        return self._processor.get_score(int(token))


def escape(text: str, found: re.Pattern[str] = ESCAPED) -> str:
    """Escape a text so that sentencepiece finds no separator and no U+2581 in it; `unescape` restores it.

    found: the pattern to escape, with tags from `escaped_with`.
    """
    return found.sub(lambda match: {ESCAPE: ESCAPE * 2, SPACE: f"{ESCAPE}_"}.get(match[0], f"<{ESCAPE}"), text)


def escaped_with(tags: Iterable[str]) -> re.Pattern[str]:
    """The `ESCAPED` of a vocabulary with these tags: a text that contains one does not mean the tag."""
    names = "".join(f"|{re.escape(tag)}" for tag in tags)
    return re.compile(f"{ESCAPE}|{SPACE}|<(?=(?:sep[023]?{names})>)")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _UNESCAPED.sub(lambda match: {ESCAPE: ESCAPE, "_": SPACE, "": ""}[match.group(1)], text)


def _training_message(error: str, vocab_size: int, sentences: int, byte_fallback: bool) -> str:
    if sentences == 0:
        return "the tokenizer has no text to train on: every segment of the training split is empty"
    if found := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", error):
        return (
            f"tokenizer.vocab_size={vocab_size} is larger than the training text allows: "
            f"set tokenizer.vocab_size to at most {found.group(1)}, or use more text"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        hint = " (256 of them are the bytes of tokenizer.byte_fallback)" if byte_fallback else ""
        return (
            f"tokenizer.vocab_size={vocab_size} is smaller than the {found.group(1)} pieces that the characters of the "
            f"training text need{hint}: raise tokenizer.vocab_size or lower tokenizer.character_coverage"
        )
    return f"sentencepiece could not train with tokenizer.vocab_size={vocab_size}: {' '.join(error.split())}"
