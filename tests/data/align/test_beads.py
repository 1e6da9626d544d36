"""Texts with known alignment are aligned correctly; the second pass learns translations that share no letters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaleformer.data.align.beads import MOVES, PRIORS, SHAPES, Bead, Knowledge, Side, align, bead_scores
from scaleformer.data.align.lexicon import Lexicon, Vocabulary, learn, no_lexicon, stem, words
from scaleformer.data.align.passes import align_corpus
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.text.documents import Document
from tests.data.align.bars import measure


def sentences(count: int) -> list[Document]:
    """Documents in two languages that share no word, as sentences that the splitter knows."""

    def written(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{text[:1].upper()}{text[1:]}".removesuffix(" .") + "." for text in texts)

    found = generate(SyntheticConfig(segments=(20, 40)), "train", count)
    return [replace(d, source=written(d.source), target=written(d.target)) for d in found]


@pytest.mark.parametrize(("spoilt", "bar"), [(False, 0.95), (True, 0.9)], ids=["equal", "spoilt"])
def test_known_links_are_recovered(spoilt: bool, bar: float) -> None:
    assert measure(sentences(20), ("en", "es"), spoilt)["F1"] >= bar


def shapes(source: list[str], target: list[str]) -> list[tuple[int, int]]:
    labels = [1] * len(source), [1] * len(target)
    (beads,) = align_corpus([((source, labels[0]), (target, labels[1]))])
    assert [sum(bead[side] for bead in ((b.s, b.t) for b in beads)) for side in (0, 1)] == [len(source), len(target)]
    return [(b.s, b.t) for b in beads]


def test_beads_of_every_kind() -> None:
    english = [f"Chapter {n} describes machine number {n}{n} of series K{n}." for n in range(1, 7)]
    spanish = [f"El capítulo {n} describe la máquina número {n}{n} de la serie K{n}." for n in range(1, 7)]
    assert shapes(english, spanish) == [(1, 1)] * 6
    assert shapes(english, spanish[:2] + spanish[3:]) == [(1, 1), (1, 1), (1, 0), (1, 1), (1, 1), (1, 1)]
    assert shapes(english[1:], spanish) == [(0, 1), *[(1, 1)] * 5]
    assert shapes(english, [spanish[0], " ".join(spanish[1:3]), *spanish[3:]]) == [(1, 1), (2, 1), *[(1, 1)] * 3]
    assert shapes([" ".join(english[:3]), *english[3:]], spanish) == [(1, 3), *[(1, 1)] * 3]
    assert shapes(english, []) == [(1, 0)] * 6
    assert shapes([], []) == []


def side(rng: np.random.Generator, count: int, size: int) -> Side:
    found = [rng.integers(1, size, rng.integers(1, 6)) for _ in range(count)]
    begins = rng.random(count) < 0.5
    return Side(found, rng.integers(5, 60, count).astype(np.float32), begins.astype(np.int64), begins)


def knowledge(rng: np.random.Generator, size: int) -> Knowledge:
    def lexicon() -> Lexicon:
        return Lexicon(np.repeat(np.arange(size), 2), rng.integers(1, size, 2 * size), rng.random(2 * size), size)

    frequency = rng.random(size).astype(np.float32)
    frequency /= frequency.sum()
    structure = rng.normal(size=(6, 6)).astype(np.float32)
    return Knowledge(
        (lexicon(), lexicon()), (np.arange(size), np.arange(size)), (frequency, frequency), structure, 0.3, 1.1
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_chain_is_the_best_of_all_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the recursion by loops, also where rows are compared in several windows."""
    rng = np.random.default_rng(seed)
    source, target, known = side(rng, 7, 20), side(rng, 6, 20), knowledge(rng, 20)
    scores = bead_scores(source, target, known, (0, 7), (0, 6))
    best = np.full((8, 7), -np.inf)
    best[0, 0] = 0
    for i, j in np.ndindex(8, 7):
        for s, t in MOVES:
            if i >= s and j >= t:
                score = scores[SHAPES.index((s, t)), i - s, j - t] if s and t else np.log(PRIORS[s, t])
                best[i, j] = max(best[i, j], best[i - s, j - t] + score)
    monkeypatch.setattr("scaleformer.data.align.beads.ROWS", 3)
    beads = align(source, target, known)
    assert sum(b.score + np.log(PRIORS[b.s, b.t]) for b in beads) == pytest.approx(best[7, 6], abs=1e-3)


def test_a_chain_at_the_edge_of_the_band_widens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the source has no translation: far from the diagonal."""
    names = [f"machine{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10]} is {n}" for n in range(80)]
    source = [*(f"nothing like it {(n + 100) * 7919}" for n in range(80)), *names]
    monkeypatch.setattr("scaleformer.data.align.beads.BAND", 20)
    monkeypatch.setattr("scaleformer.data.align.beads.ROWS", 16)
    labels = [1] * 160
    (beads,) = align_corpus([((source, labels), (names, labels[:80]))])
    assert [(b.i, b.j) for b in beads if b.s == b.t == 1] == [(80 + n, n) for n in range(80)]


def test_a_lexicon_is_learned() -> None:
    pairs = [([1, 2], [4, 5]), ([1, 3], [4, 6]), ([2, 3], [5, 6])] * 5
    forward, backward = learn([(np.array(s), np.array(t)) for s, t in pairs], (4, 7), 1)
    assert forward.table(np.array([1, 2, 3]), np.array([4, 5, 6])).argmax(1).tolist() == [0, 1, 2]
    assert backward.table(np.array([4, 5, 6]), np.array([1, 2, 3])).argmax(1).tolist() == [0, 1, 2]
    assert not no_lexicon(4).table(np.array([1, 2]), np.array([3])).any()
    assert learn([], (4, 7), 1)[0].table(np.array([1]), np.array([1])).tolist() == [[0]]


def test_words_and_stems() -> None:
    assert words("Été, v3.2 (日本): ¿qué?") == ["été", "v3", "2", "(", "日", "本", ")", "¿", "qué", "?"]
    assert stem("condición") == stem("condition") == "condi"
    assert stem("v3") == "v3"
    vocabulary = Vocabulary({})
    assert vocabulary.add("a b a").tolist() == [1, 2, 1]
    assert vocabulary.frequencies()[1] > vocabulary.frequencies()[2]


def test_a_bead_knows_its_place() -> None:
    (beads,) = align_corpus([((["Boil 2 litres."], [1]), (["Hierva 2 litros."], [1]))])
    assert [replace(bead, score=0.0) for bead in beads] == [Bead(0, 0, 1, 1, 0.0)]
