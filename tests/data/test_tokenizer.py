"""The tokenizer: round trips, fixed ids, reproducible bytes, clear refusals."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as spm
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import SPECIAL, Tokenizer, TokenizerConfig
from scaleformer.data.tokenizer_text import cached_tokenizer
from scaleformer.system.errors import DataError
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, UNK

TEXTS = [text for d in generate(SyntheticConfig(train=60), "train") for side in (d.source, d.target) for text in side]
CONFIG = TokenizerConfig(vocab_size=500)
# Arbitrary text, often with pieces and characters that are special to the tokenizer.
TEXT = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(
            ["<sep>", "<s>", "</s>", "<unk>", "<pad>", "\u2581", "\ue000", "_", " ", "  ", "\n", "\t", "\0"]
        ),
        st.sampled_from(["sep>", "<", "<0x41>", "\u2585", "\r\n", "e\u0301", "\u00e9", "\U0001f600"]),
    ),
    max_size=8,
).map("".join)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(TEXTS, 500, request.param)


def test_ids_and_size(tokenizer: Tokenizer) -> None:
    assert [tokenizer.piece(i) for i in range(5)] == ["<pad>", "<unk>", "<s>", "</s>", "<sep>"]
    assert (PAD, UNK, BOS, EOS, SEP) == (0, 1, 2, 3, 4)
    assert tokenizer.vocab_size == 500


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
@example(text="<sep>")
@example(text=" <sep>\u2581\ue000\ue000_<\ue000sep> ")
@example(text="")
@example(text=" ")
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not {PAD, UNK, BOS, EOS, SEP} & set(ids)
    assert tokenizer.decode(ids) == text


@settings(max_examples=30, deadline=None)
@given(segments=st.lists(TEXT, max_size=5))
def test_any_segments_round_trip(tokenizer: Tokenizer, segments: list[str]) -> None:
    ids = tokenizer.encode_segments(segments)
    assert ids.count(SEP) == len(segments)
    assert tokenizer.decode_segments(ids) == segments
    assert tokenizer.decode_segments([BOS, *ids, EOS, SEP, 7, PAD]) == segments
    assert [token for text in segments for token in (*tokenizer.encode(text), SEP)] == ids


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
@example(text=" a \u0141\U0001f600<sep> ")
def test_offsets_are_of_what_each_token_writes(tokenizer: Tokenizer, text: str) -> None:
    read, places = tokenizer.offsets(text)
    pieces = [tokenizer.piece(token) for token in tokenizer.encode(text)]
    written, before = b"", 0
    for piece, (start, stop) in zip(pieces, places, strict=True):
        byte = piece.startswith("<0x")
        written += bytes([int(piece[3:5], 16)]) if byte else piece.replace("\u2581", " ").encode()
        assert (start, stop) == (before, len(written.decode(errors="ignore")[1:]))  # without the space in front
        before = stop
    assert written.decode()[1:] == read


def test_offsets_by_hand() -> None:
    tokenizer = Tokenizer.train(["a dog", "a cat"] * 9, 290, "bpe")
    assert [tokenizer.piece(token) for token in tokenizer.encode("a \u0141")] == [
        "\u2581a",
        "\u2581",
        "<0xC5>",
        "<0x81>",
    ]
    assert tokenizer.offsets("a \u0141") == ("a \u0141", [(0, 1), (1, 2), (2, 2), (2, 3)])
    assert tokenizer.offsets(" a")[1] == [(0, 0), (0, 2)]


def test_a_last_segment_without_separator_is_kept(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_segments([TEXTS[0], TEXTS[1]])
    assert tokenizer.decode_segments(ids[:-1]) == TEXTS[:2]
    assert tokenizer.decode_segments([SEP, SEP]) == ["", ""]
    assert tokenizer.decode_segments([]) == []


def test_bytes_that_make_no_character_are_left_out_and_counted(tokenizer: Tokenizer) -> None:
    lone = tokenizer.encode("\U0001f600")[:-1]  # a character cut after three of its four bytes
    assert tokenizer.decode(lone) == ""
    assert tokenizer.broken(lone) == 1
    whole = tokenizer.encode("a \U0001f600\ufffd b")
    assert tokenizer.decode(whole) == "a \U0001f600\ufffd b"
    assert tokenizer.broken(whole) == 0
    place = next(n for n, token in enumerate(whole) if tokenizer.piece(token) == "<0xF0>")
    assert tokenizer.decode(whole[:place] + whole[place + 1 :]) == "a \ufffd b"
    assert tokenizer.broken(whole[:place] + whole[place + 1 :]) == 3  # the bytes after the first


def test_training_is_deterministic_and_proto_is_complete(tokenizer: Tokenizer) -> None:
    kind = "bpe" if tokenizer.encode(TEXTS[0]) == Tokenizer.train(TEXTS, 500, "bpe").encode(TEXTS[0]) else "unigram"
    again = Tokenizer.train(iter(TEXTS), 500, kind)
    assert again.proto == tokenizer.proto
    assert Tokenizer(tokenizer.proto).hash == tokenizer.hash
    assert again.encode_batch(TEXTS[:5]) == [tokenizer.encode(text) for text in TEXTS[:5]]


def test_split_digits() -> None:
    texts = [f"{text} {i % 7}2024" for i, text in enumerate(TEXTS)]
    joined, split = (Tokenizer.train(texts, 500, "bpe", split_digits=flag) for flag in (False, True))
    assert [split.piece(i) for i in split.encode("2024")] == ["\u2581", "2", "0", "2", "4"]
    assert len(joined.encode("2024")) < 5


def test_without_byte_fallback_unknown_characters_are_lost() -> None:
    tokenizer = Tokenizer.train(TEXTS, 200, byte_fallback=False)
    assert UNK in tokenizer.encode("日")


def test_training_accepts_odd_lines(tmp_path: Path) -> None:
    """Long lines, tabs, nulls, line breaks and blank lines: sentencepiece alone would drop or refuse such."""
    word = "zyxwvutsrq"
    texts = [*TEXTS, "", "   ", "a\tb", "c\0d", "e\nf", "\u2585", " ".join([word] * 3000)]
    tokenizer = Tokenizer.train(texts, 500)
    assert len(tokenizer.encode(word)) < len(Tokenizer.train(TEXTS, 500).encode(word))
    assert tokenizer.decode(tokenizer.encode(texts[-1])) == texts[-1]


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        pytest.param(
            TEXTS[:20],
            {"vocab_size": 9000},
            r"vocab_size=9000 is larger .* set tokenizer\.vocab_size to at most \d+",
            id="large",
        ),
        pytest.param(
            TEXTS[:20],
            {"vocab_size": 9000, "model_type": "bpe"},
            r"vocab_size=9000 is larger .* set tokenizer\.vocab_size to at most \d+",
            id="large bpe",
        ),
        pytest.param(TEXTS, {"vocab_size": 100}, r"vocab_size=100 is smaller than the \d+ pieces .*256", id="small"),
        pytest.param([], {"vocab_size": 500}, "no text to train on", id="no text"),
        pytest.param([" ", "\n"], {"vocab_size": 500}, "no text to train on", id="blank text"),
        pytest.param(
            TEXTS,
            {"vocab_size": 500, "model_type": "word"},
            "model_type is 'word': it must be one of unigram, bpe",
            id="type",
        ),
    ],
)
def test_refusals(texts: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.train(texts, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_the_suggested_size_works(model_type: str) -> None:
    with pytest.raises(ValueError, match="at most") as caught:
        Tokenizer.train(TEXTS[:20], 9000, model_type)
    possible = int(str(caught.value).split("at most ")[1].split(",")[0])
    assert Tokenizer.train(TEXTS[:20], possible, model_type).vocab_size == possible


@pytest.mark.parametrize("failure", [DataError("train.jsonl:21: not valid JSON"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("good", [0, len(TEXTS)])
def test_failures_of_the_texts_reach_the_caller(failure: BaseException, good: int) -> None:
    """sentencepiece takes them for the end of the texts."""

    def texts() -> Iterator[str]:
        yield from TEXTS[:good]
        raise failure

    with pytest.raises(type(failure)) as raised:
        Tokenizer.train(texts(), 500)
    assert raised.value is failure


@pytest.mark.parametrize("cut", [0, 10, 2000], ids="first {} bytes".format)
def test_damaged_proto(tokenizer: Tokenizer, cut: int) -> None:
    with pytest.raises(ValueError, match="not a sentencepiece model"):
        Tokenizer(tokenizer.proto[:cut])


def test_foreign_model() -> None:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=200, minloglevel=2)
    with pytest.raises(ValueError, match=r"first pieces are <unk> <s> </s>"):
        Tokenizer(model.getvalue())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "char"}, "model_type is 'char': it must be one of unigram, bpe"),
        ({"character_coverage": 0.0}, "character_coverage is 0.0"),
        ({"vocab_size": 5}, r"^tokenizer\.vocab_size is 5: it must be an int above \d+$"),
        ({"max_segments": -1}, "max_segments is -1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenizerConfig(**options)  # type: ignore[arg-type]


class TestCache:
    def files(self, folder: Path) -> list[str]:
        return sorted(path.name for path in (folder / "tokenizers").iterdir())

    def test_cached_by_name_and_settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = cached_tokenizer(TEXTS, "texts", CONFIG, tmp_path)
        assert len(self.files(tmp_path)) == 1
        monkeypatch.setattr(Tokenizer, "train", None)  # a second training would fail
        for config in (CONFIG, replace(CONFIG, joint=False)):
            assert cached_tokenizer(TEXTS, "texts", config, tmp_path).proto == first.proto
        monkeypatch.undo()
        assert cached_tokenizer(TEXTS[1:], "other", CONFIG, tmp_path).hash != first.hash
        assert cached_tokenizer(TEXTS, "texts", replace(CONFIG, vocab_size=400), tmp_path).vocab_size == 400
        assert len(self.files(tmp_path)) == 3

    def test_processes_wait_for_the_one_that_trains(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []
        train = Tokenizer.train

        def counted(*arguments: Any, **options: Any) -> Tokenizer:
            calls.append(1)
            return train(*arguments, **options)

        monkeypatch.setattr(Tokenizer, "train", counted)
        threads = [threading.Thread(target=cached_tokenizer, args=(TEXTS, "texts", CONFIG, tmp_path)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(calls), len(self.files(tmp_path))) == (1, 1)

    def test_damaged_file_is_made_again(self, tmp_path: Path) -> None:
        first = cached_tokenizer(TEXTS, "texts", CONFIG, tmp_path)
        path = tmp_path / "tokenizers" / self.files(tmp_path)[0]
        path.write_bytes(first.proto[:100])
        assert cached_tokenizer(TEXTS, "texts", CONFIG, tmp_path).proto == first.proto == path.read_bytes()

    def test_failure_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.replace", full)
        with pytest.raises(DataError, match=r"cannot write the cache \(No space left on device\)"):
            cached_tokenizer(TEXTS, "texts", CONFIG, tmp_path)
        assert self.files(tmp_path) == []


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_literal_tags_in_text_are_not_tags(model_type: str) -> None:
    words = [segment for d in generate(SyntheticConfig(train=40), "train") for segment in d.source]
    text = [f"say <2es> or <bt> , <br> <x> <12> <-> {segment} \ue000<2es>" for segment in words]
    plain, tagged = (Tokenizer.train(text, 320, model_type, tags=tags) for tags in ((), ("2es", "bt")))
    assert plain.tags == {}
    assert tagged.tags == {"2es": SPECIAL, "bt": SPECIAL + 1}
    assert [tagged.piece(token) for token in tagged.tags.values()] == ["<2es>", "<bt>"]
    assert Tokenizer.train(text, 320, model_type).proto == plain.proto
    for segment in (*text[:2], "<2es>", "<<bt>>", "<sep><2es>"):
        for tokenizer in (plain, tagged):
            ids = tokenizer.encode(segment)
            assert tokenizer.decode(ids) == segment
            assert not {*ids} & {SEP, *tokenizer.tags.values()}
    assert tagged.decode([tagged.tags["bt"], *tagged.encode("say")]) == "say"
