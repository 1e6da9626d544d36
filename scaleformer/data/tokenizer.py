"""Subword tokenizer: sentencepiece, trained from the training split and kept by content hash.

Ids: `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, `<sep>` 4, then the other separators and the placeholders
(`scaleformer.vocabulary`). With byte fallback any text round-trips exactly.
"""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import sentencepiece as spm

from scaleformer.system.schema import shown
from scaleformer.vocabulary import (
    BOS,
    BOS_PIECE,
    COUNTED_PIECES,
    EOS,
    EOS_PIECE,
    PAD,
    PAD_PIECE,
    PLACEHOLDERS,
    SEP,
    SEP_PIECE,
    SEPARATORS,
    SPACE,
    TAG,
    TERM_PIECES,
    UNK,
    UNK_PIECE,
    steps_of,
)

_SYMBOLS = (SEP_PIECE, *COUNTED_PIECES, *PLACEHOLDERS)
SPECIAL = 4 + len(_SYMBOLS)  # pieces that every vocabulary has, besides bytes

# sentencepiece writes a space as U+2581 and would read a literal `<sep>` as the user symbol. Both are written with an
# escape character of the private use area, which is itself doubled; `unescape` is the exact inverse of `escape`.
ESCAPE = "\ue000"
_ESCAPED = re.compile(f"{ESCAPE}|{SPACE}|<(?=sep[023]?>)")
_UNESCAPED = re.compile(f"{ESCAPE}({ESCAPE}|_|)")
# What sentencepiece's trainer drops sentences for (tab: its own boundary mark) or reserves (null, U+2585).
_UNTRAINABLE = re.compile("[\t\n\r\0\u2585]")
_MODEL_TYPES = ("unigram", "bpe")
_SEEDING = threading.Lock()  # the number that generators start from is one for the process

T = TypeVar("T")


def escape(text: str, found: re.Pattern[str] = _ESCAPED) -> str:
    """Text in which sentencepiece finds no separator and no U+2581, from which `unescape` gives the same text back.

    found: what is to be escaped, where there is more (`_escaped_with`).
    """

    def replacement(match: re.Match[str]) -> str:
        found = match.group()
        if found == ESCAPE:
            return ESCAPE * 2
        return f"{ESCAPE}_" if found == SPACE else f"<{ESCAPE}"

    return found.sub(replacement, text)


def _escaped_with(tags: Iterable[str]) -> re.Pattern[str]:
    """The `_ESCAPED` of a vocabulary with these tags: a text that holds one is not meant by it."""
    names = "".join(f"|{re.escape(tag)}" for tag in tags)
    return re.compile(f"{ESCAPE}|{SPACE}|<(?=(?:sep[023]?{names})>)")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _UNESCAPED.sub(lambda match: {ESCAPE: ESCAPE, "_": SPACE, "": ""}[match.group(1)], text)


@dataclass(frozen=True)
class TokenizerConfig:
    """Settings of the tokenizers.

    vocab_size         pieces of each vocabulary, the special ones and the 256 bytes among them
    model_type         "unigram" [Kudo 2018] or "bpe" [Sennrich 2016]
    joint              one vocabulary for both languages (needed for shared embeddings), else one each
    byte_fallback      characters without a piece become bytes; without it they become `<unk>` and are lost
    character_coverage share of the characters of the training text that get a piece of their own
    split_digits       every digit is a piece of its own
    sample_alpha       0, or subword sampling in training. unigram: the exponent of [Kudo 2018] over all segmentations,
                       smaller is wilder (0.5: about 6% more tokens, 0.1: nearly twice as many). bpe: the share of
                       merges that are dropped [Provilkov 2020], larger is wilder (0.1: about 30% more tokens)
    max_segments       train on that many segments at most, evenly spread over the training split; 0 stands for
                       400,000: more take much memory and hardly change a vocabulary
    extend             null, or a text file of terms, one a line, that become pieces of the vocabulary of init_from
    """

    vocab_size: int = 8000
    model_type: str = "unigram"
    joint: bool = True
    byte_fallback: bool = True
    character_coverage: float = 0.9995
    split_digits: bool = False
    sample_alpha: float = 0.0
    max_segments: int = 0
    extend: str | None = None

    def __post_init__(self) -> None:
        if self.model_type not in _MODEL_TYPES:
            raise ValueError(f"tokenizer.model_type={shown(self.model_type)}: choose one of {', '.join(_MODEL_TYPES)}")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"tokenizer.character_coverage={self.character_coverage}: choose a number in (0, 1]")
        if not 0 <= self.sample_alpha < 1:
            raise ValueError(f"tokenizer.sample_alpha={self.sample_alpha}: choose a number in [0, 1)")
        if self.vocab_size <= SPECIAL:
            raise ValueError(
                f"tokenizer.vocab_size={self.vocab_size}: choose at least {SPECIAL + 1} ({SPECIAL} pieces are special)"
            )
        if self.max_segments < 0:
            raise ValueError(f"tokenizer.max_segments={self.max_segments}: choose 0 or a positive number")


class Tokenizer:
    """A trained sentencepiece model. `proto` is all of it: keep the bytes, rebuild with `from_proto`.

    counted  whether its separators say how many source segments a target segment consumes (`scaleformer.vocabulary`)
    tags     ids of the tags that it has, by their names
    has_terms  whether it has the pieces that part the translation of a term from a source (`data.annotate_terms`)
    """

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        self._processor = spm.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(proto)
            pieces = [self._processor.id_to_piece(i) for i in range(8)]
        except (RuntimeError, IndexError) as error:
            raise ValueError("not a sentencepiece model: the bytes are damaged or cut short") from error
        expected = [PAD_PIECE, UNK_PIECE, BOS_PIECE, EOS_PIECE, SEP_PIECE]
        if pieces[:5] != expected:
            raise ValueError(
                f"this tokenizer's first pieces are {pieces[:5]}, wanted {expected}: train it with this program"
            )
        self.counted = tuple(pieces[5:]) == COUNTED_PIECES
        # Words of the text are never such pieces: sentencepiece parts letters and digits from angle brackets.
        named = enumerate(map(TAG.fullmatch, self._processor.id_to_piece(list(range(self.vocab_size)))))
        taken = (UNK, BOS, SEP, *(SEPARATORS if self.counted else ()))
        self.tags = {
            found[1]: i for i, found in named if found and i > PAD and i not in taken and not self._processor.is_byte(i)
        }
        self._escaped = _escaped_with(self.tags)
        self.has_terms = UNK not in map(self._processor.piece_to_id, TERM_PIECES)

    @classmethod
    def from_proto(cls, proto: bytes) -> Tokenizer:
        """The tokenizer that `proto` describes; raises ValueError when the bytes are no such model."""
        return cls(proto)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        model_type: str = "unigram",
        byte_fallback: bool = True,
        character_coverage: float = 0.9995,
        split_digits: bool = False,
        tags: Sequence[str] = (),
        terms: bool = False,
    ) -> Tokenizer:
        """Train on segments. The same texts and settings give the same bytes (one thread: more would change them).

        tags: names of pieces to reserve, after the other special ones; terms: whether to reserve those of `has_terms`.

        Raises ValueError when the vocabulary is larger than the texts allow, or too small for their characters.
        """
        if model_type not in _MODEL_TYPES:
            raise ValueError(f"tokenizer.model_type={shown(model_type)}: choose one of {', '.join(_MODEL_TYPES)}")
        count, escaped = 0, _escaped_with(tags)

        def sentences() -> Iterator[str]:
            nonlocal count
            for text in texts:
                # Lines and controls are trained on as spaces: such characters are encoded as bytes anyway.
                clean = _UNTRAINABLE.sub(" ", escape(text, escaped)).strip(" ")
                if clean:
                    count += 1
                    yield clean

        model = io.BytesIO()
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                vocab_size=vocab_size,
                model_type=model_type,
                byte_fallback=byte_fallback,
                character_coverage=character_coverage,
                split_digits=split_digits,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                pad_piece=PAD_PIECE,
                user_defined_symbols=[*_SYMBOLS, *(f"<{tag}>" for tag in tags), *TERM_PIECES[: 2 * terms]],
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                num_threads=1,
                max_sentence_length=2**30,  # the default drops longer lines in silence; this is the most it takes
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(_training_message(str(error), vocab_size, count, byte_fallback)) from error
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    @property
    def hash(self) -> str:
        """sha256 of the model, the name under which encoded corpora are kept."""
        return hashlib.sha256(self.proto).hexdigest()

    def encode(self, text: str, sample: bool = False, alpha: float = 0.1) -> list[int]:
        """Token ids of a text, without `<sep>` or `</s>`.

        sample=True draws one of all possible segmentations (unigram: with the exponent `alpha`; BPE: merges are dropped
        with probability `alpha`) from sentencepiece's generator, see `sampled`.
        """
        if sample:
            return self._processor.encode(escape(text, self._escaped), enable_sampling=True, alpha=alpha, nbest_size=-1)
        return self._processor.encode(escape(text, self._escaped))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts in one call."""
        return self._processor.encode([escape(text, self._escaped) for text in texts])

    def offsets(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text as it is read, in which `escape` has added what is no space, and where each token of `encode` stands
        in it: (start, stop), which are equal for a space in front of all, and for the first bytes of a character."""
        read = escape(text, self._escaped)
        found = self._processor.encode(read, out_type="immutable_proto")
        return read, [(piece.begin, piece.end) for piece in found.pieces]

    def encode_segments(self, segments: Sequence[str], sample: bool = False, alpha: float = 0.1) -> list[int]:
        """Token ids of a document, every segment closed by `<sep>`; without `</s>`."""
        if sample:
            encoded = [self.encode(segment, sample=True, alpha=alpha) for segment in segments]
        else:
            encoded = self.encode_batch(segments)
        return [token for tokens in encoded for token in (*tokens, SEP)]

    def decode(self, ids: Sequence[int], unknown: str | None = None) -> str:
        """Text of token ids; special pieces but `<unk>` are left out. unknown: what to write for that."""
        left_out = (PAD, BOS, EOS, *(SEPARATORS if self.counted else (SEP,)), *self.tags.values())
        kept = [int(i) for i in ids if i not in left_out]
        if unknown is None:
            return unescape(self._processor.decode(kept))
        return unescape(self._processor.decode_pieces([unknown if i == UNK else self.piece(i) for i in kept]))

    def decode_segments(self, ids: Sequence[int]) -> list[str]:
        """Segments of token ids up to the first `</s>`: split after every separator, an unclosed last one is kept."""
        return [text for text, _ in self.decode_counted(ids)]

    def decode_counted(self, ids: Sequence[int]) -> list[tuple[str, int]]:
        """`decode_segments`, each with how many source segments its separator consumes; 0 for an unclosed last one."""
        segments: list[tuple[str, int]] = []
        words: list[int] = []
        for token in map(int, ids):
            if token == EOS:
                break
            if (steps := steps_of(token, self.counted)) is not None:
                segments.append((self.decode(words), steps))
                words = []
            elif token not in (PAD, BOS):
                words.append(token)
        return [*segments, (self.decode(words), 0)] if words else segments

    def piece(self, token: int) -> str:
        """The piece of a token id, for reports."""
        return self._processor.id_to_piece(int(token))

    def score(self, token: int) -> float:
        """Of unigram the log-probability of a token id, of bpe minus the rank of its merge; 0 of what has none."""
        return self._processor.get_score(int(token))


def sampled(seed: int, encode: Callable[[], T]) -> T:
    """What `encode` returns; its subword sampling is that of `seed`, in this process and in any other.

    sentencepiece has a generator in each thread, which the first draw there starts from the number set last; so it runs
    in a thread of its own. (0.2.2 and 0.2.3 start generators anew, but draw BPE otherwise in every process.)
    """
    with _SEEDING, ThreadPoolExecutor(1) as thread:
        spm.set_random_generator_seed(seed % (2**32 - 1))
        return thread.submit(encode).result()


def _training_message(error: str, vocab_size: int, sentences: int, byte_fallback: bool) -> str:
    if sentences == 0:
        return "the tokenizer has no text to train on: every segment of the training split is empty"
    if found := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", error):
        return (
            f"tokenizer.vocab_size={vocab_size} is larger than the training text allows: "
            f"set tokenizer.vocab_size to at most {found.group(1)}, or give more text"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        hint = " (256 of them are the bytes of tokenizer.byte_fallback)" if byte_fallback else ""
        return (
            f"tokenizer.vocab_size={vocab_size} is smaller than the {found.group(1)} pieces that the characters of the "
            f"training text need{hint}: raise tokenizer.vocab_size or lower tokenizer.character_coverage"
        )
    return f"sentencepiece could not train with tokenizer.vocab_size={vocab_size}: {' '.join(error.split())}"
