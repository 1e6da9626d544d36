"""Sources with words removed or masked: which words, how many, and what the choice depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaleformer.batch import Batch
from scaleformer.data.batching import Example
from scaleformer.data.noise import Noise, make_noise
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.vocabulary import EOS, SEP, UNK
from tests.data.test_datamodule import Process
from tests.data.toy import module

# Ids 0 to 19 are special; of the others, the even ones begin words.
BEGINS = np.arange(1000) % 2 == 0
SPECIAL = np.arange(1000) < 20


def make_example(source: list[int], name: str = "a") -> Example:
    return Example(name, np.array(source, dtype=np.uint16), np.array([30, SEP, EOS], dtype=np.uint16))


def words_of(source: Any) -> list[tuple[int, ...]]:
    """The words of a source, and each special token as one."""
    words: list[tuple[int, ...]] = []
    for token in np.asarray(source).tolist():
        goes_on = words and not BEGINS[token] and not SPECIAL[token] and not SPECIAL[words[-1][0]]
        words[-1:] = [(*words[-1], token)] if goes_on else [*words[-1:], (token,)]
    return words


def long_source() -> list[int]:
    """A hundred segments of ten words of one to three tokens, no two words alike, with a placeholder in each."""
    rng, numbers = np.random.default_rng(0), iter(range(20, 1000, 2))
    source: list[int] = []
    for _ in range(40):
        for _ in range(10):
            first = next(numbers)
            source += [first, *([first + 1] * int(rng.integers(3)))]
        source += [8, SEP]
    return [*source, EOS]


def test_whole_words_are_left_out() -> None:
    source = long_source()
    noise = Noise(0.3, 0.0, BEGINS, SPECIAL)
    found = noise(make_example(source), 1, 0)
    words, left = words_of(source), words_of(found.source)
    assert set(left) < set(words)
    assert [word for word in words if word in set(left)] == left  # in their order
    assert 240 < sum(not SPECIAL[word[0]] for word in left) < 320  # of 400
    assert [word for word in left if SPECIAL[word[0]]] == [word for word in words if SPECIAL[word[0]]]
    assert found.source.dtype == np.uint16
    assert found.target.tolist() == [30, SEP, EOS]
    assert found.id == "a"


@pytest.mark.parametrize(
    "source",
    [
        [20, 21, SEP, 22, SEP, EOS],  # one word per segment
        [8, 20, 21, SEP, EOS],
        [SEP, SEP, EOS],
        [EOS],
        [21, 21],
    ],
)
def test_no_segment_is_left_without_words(source: list[int]) -> None:
    noise = Noise(0.99, 0.0, BEGINS, SPECIAL)
    for epoch in range(20):
        assert noise(make_example(source), 1, epoch).source.tolist() == source


def test_a_word_begins_after_a_special_token() -> None:
    source = [20, 8, 21, 23, SEP, EOS]
    found = {tuple(Noise(0.5, 0.0, BEGINS, SPECIAL)(make_example(source), 1, n).source.tolist()) for n in range(40)}
    assert found == {tuple(source), (8, 21, 23, SEP, EOS), (20, 8, SEP, EOS)}


def test_tokens_are_masked() -> None:
    source = np.array(long_source())
    found = Noise(0.0, 0.3, BEGINS, SPECIAL)(make_example(source.tolist()), 1, 0).source
    hidden = found == UNK
    assert (found[~hidden] == source[~hidden]).all()
    assert not SPECIAL[source[hidden]].any()
    count = int((~SPECIAL[source]).sum())
    assert 0.25 * count < hidden.sum() < 0.35 * count
    both = Noise(0.3, 0.3, BEGINS, SPECIAL)(make_example(source.tolist()), 1, 0).source
    assert (both == UNK).any()
    assert len(both) == len(Noise(0.3, 0.0, BEGINS, SPECIAL)(make_example(source.tolist()), 1, 0).source)


def test_seed_epoch_and_name_decide() -> None:
    noise = Noise(0.3, 0.2, BEGINS, SPECIAL)

    def draw(name: str, *key: int) -> list[int]:
        return noise(make_example(long_source(), name), *key).source.tolist()

    assert draw("a", 1, 0) == draw("a", 1, 0)
    assert len({tuple(draw(*key)) for key in (("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 1, 1))}) == 4


def test_words_of_a_vocabulary() -> None:
    tokenizer = Tokenizer.train(["the cat sees the tree", "it runs ⟨1⟩ 猫 が"] * 9, 288)
    noise = make_noise(0.5, 0.0, tokenizer)
    ids = [*tokenizer.encode("the ⟨2⟩x 猫"), SEP, 5, 6, 7, UNK, EOS]
    pieces = [tokenizer.piece(i) for i in ids]
    special = [piece for piece, token in zip(pieces, ids, strict=True) if noise.special[token]]
    assert special == ["⟨2⟩", "<sep>", "<sep0>", "<sep2>", "<sep3>", "<unk>", "</s>"]
    begins = {piece for piece, token in zip(pieces, ids, strict=True) if noise.begins[token]}
    assert {piece for piece in pieces if piece.startswith("\u2581") or piece == "猫"} == begins
    assert not noise.special[tokenizer.encode("ü")].any()  # bytes


def sources(batches: Any) -> dict[str, list[int]]:
    """The sources of some batches by the names of the examples, without pads."""
    found = {}
    for batch in batches:
        assert isinstance(batch, Batch)
        for name, source, mask in zip(batch.ids, batch.source, batch.source_mask, strict=True):
            found[name] = source[mask].tolist()
    return found


@pytest.mark.parametrize("streaming", [False, True])
def test_noise_only_in_training_and_different_in_every_epoch(cache: Path, streaming: bool) -> None:
    options = {"streaming": streaming, "window": 50}
    data, usual = module(cache, word_dropout=0.2, mask_source=0.1, **options), module(cache, **options)
    loader, plain = data.train_dataloader(), sources(usual.train_dataloader())
    first, second = sources(loader), sources(loader)
    assert first.keys() == second.keys() == plain.keys()
    assert sum(first[name] != second[name] for name in plain) > 0.9 * len(plain)
    tokens = sum(map(len, plain.values()))
    assert 0.75 * tokens < sum(map(len, first.values())) < 0.95 * tokens
    assert {name: s.count(SEP) for name, s in first.items()} == {name: s.count(SEP) for name, s in plain.items()}
    assert sources(data.val_dataloader()) == sources(usual.val_dataloader())
    again = module(cache, word_dropout=0.2, mask_source=0.1, **options, num_workers=2)
    assert sources(again.train_dataloader()) == first
    assert data.state_dict()["signature"] == usual.state_dict()["signature"]  # the batches are of the same examples


def test_processes_draw_the_same_noise(cache: Path) -> None:
    alone = sources(module(cache, word_dropout=0.2).train_dataloader())
    found = {}
    for rank in range(2):
        data = module(cache, word_dropout=0.2)
        data.trainer = Process(rank)  # type: ignore[assignment]
        found |= sources(data.train_dataloader())
    assert found == alone
