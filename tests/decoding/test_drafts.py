"""Greedy search from drafts against plain greedy search."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafted import make_document
from scaleformer.decoding.drafts import Counts, decode_drafts
from scaleformer.decoding.rules import follow_rules
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.model.transformer import Transformer
from scaleformer.ops.segments.packing import ROW
from scaleformer.vocabulary import BOS, EOS, PLACEHOLDER, SEP, SEP2, consumed, steps_of
from tests.helpers import make_model

WORD, WORDS = 20, 50
CPU = torch.device("cpu")


def model_of(
    seed: int, near: int = 3, kept: int = 64, document_layers: int | None = None, sinusoids: str = "auto"
) -> Transformer:
    """A model whose weights are large, so that what it writes depends on all that it reads."""
    torch.manual_seed(seed)
    attention = {"name": "segment_recall", "near": near, "kept": kept, "document_layers": document_layers}
    model = make_model(WORDS, attention=attention, sinusoids=sinusoids).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("salience"):
            parameter.data.normal_()
        if "embedding" in name or "attention" in name:
            parameter.data.mul_(1.5)
    return model


def document(rng: random.Random, segments: int) -> list[int]:
    tokens: list[int] = []
    for _ in range(segments):
        words = [rng.randrange(WORD, WORDS) for _ in range(rng.randrange(7))]
        if rng.random() < 0.3:
            words.append(PLACEHOLDER + rng.randrange(2))
        tokens += [*words, SEP]
    return [*tokens, EOS]


def some_forced(rng: random.Random, source: list[int]) -> dict[int, list[int]]:
    """Some segments begin with two given words, some consist of them."""
    end = [[], [SEP]]
    return {
        n: [rng.randrange(WORD, WORDS) for _ in range(2)] + rng.choice(end)
        for n in range(source.count(SEP))
        if rng.random() < 0.2
    }


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one segment each": {"merge_segments": False},
    "limits": {"max_length_ratio": 0.7, "max_length_offset": 1},
    "least lengths": {"min_length_ratio": 0.8},
    "no loops": {"loop_ngram_size": 1, "max_length_ratio": 1.5},
    "loops": {"loop_ngram_size": 0, "max_length_ratio": 1.5},
}


@pytest.mark.parametrize(("name", "seed"), [(name, (n + m) % 6) for n, name in enumerate(SETTINGS) for m in (0, 3)])
def test_drafts_change_nothing(name: str, seed: int) -> None:
    """Whatever they are: words at random, nothing at all, or the translation itself."""
    rng = random.Random(seed)
    model = model_of(seed, *rng.choice([(0, 2), (1, 64), (3, 64), (1, 2, 1), (1, 4, None, "segments")]))
    sources = [document(rng, rng.randrange(1, 9)) for _ in range(3)]
    forced = [some_forced(rng, source) for source in sources]
    config = DecodingConfig(strategy="greedy", length_penalty=0.6, **SETTINGS[name])
    expected = decode(model, *pad(sources, CPU), config, forced=forced)
    random_words = [
        [[rng.randrange(PLACEHOLDER, WORDS) for _ in range(rng.randrange(5))] for _ in range(s.count(SEP))]
        for s in sources
    ]
    for drafts in (
        random_words,
        [[()] * source.count(SEP) for source in sources],
        [[None] * source.count(SEP) for source in sources],
        [[rng.choice([text, None]) for text in draft] for draft in random_words],
        [texts(h.tokens) for [h] in expected],
    ):
        counts = Counts()
        found = decode_drafts(model, sources, drafts, config, CPU, forced=forced, counts=counts)
        for [hypothesis], [wanted] in zip(found, expected, strict=True):
            assert hypothesis.tokens == wanted.tokens
            assert hypothesis.finished == wanted.finished
        assert counts.tokens == sum(len(h.tokens) for [h] in expected)


@pytest.mark.parametrize("seed", range(3))
def test_long_documents_of_which_single_layers_see_more_than_a_segment(seed: int) -> None:
    """Those below read again what changed alone."""
    rng = random.Random(seed)
    model = model_of(seed, 3, 8, 1)
    sources = [document(rng, rng.randrange(16, 30)) for _ in range(3)]
    config = DecodingConfig(strategy="greedy", max_length_ratio=1.5, loop_ngram_size=2)
    expected = decode(model, *pad(sources, CPU), config)
    found = decode_drafts(model, sources, [[None] * source.count(SEP) for source in sources], config, CPU)
    assert [h.tokens for [h] in found] == [h.tokens for [h] in expected]
    assert min(len(h.tokens) for [h] in found) > ROW


@torch.no_grad()
def test_what_stands_elsewhere_in_a_text_is_not_read_again() -> None:
    """Some segments differ, and all later ones stand elsewhere."""
    model, rng = model_of(6, 2, 8, 1), random.Random(6)
    sources = [document(rng, 30) for _ in range(2)]
    encoded = model.encode(*pad(sources, CPU))
    read, given, places = [], [list(map(tuple, texts(document(rng, 30)[:-1]))) for _ in range(2)], [[], []]
    changed = [
        [(WORD, *text) if n in (3, 20 + row) else text for n, text in enumerate(own)] for row, own in enumerate(given)
    ]
    for row, (own, others) in enumerate(zip(given, changed, strict=True)):
        at = 0
        for text, other in zip(own, others, strict=True):
            places[row] += range(at, at + len(text)) if text == other else [-1] * len(other)
            at += len(text)
        places[row].append(-1)
    for some in (given, changed):
        target, mask, _ = pad([[BOS, *(token for text in own for token in text)] for own in some], CPU)
        read.append((target, consumed(target).cumsum(1), mask))
    inputs, _ = model.read_target(encoded, *read[0])
    wanted, states = model.read_target(encoded, *read[1])
    stood = pad(places, CPU)[0].masked_fill(~read[1][2], -1)
    found, same = model.read_target(encoded, *read[1], (inputs, stood))
    there = read[1][2][:, :, None]
    for ours, theirs in zip([*found, same], [*wanted, states], strict=True):
        torch.testing.assert_close(ours * there, theirs * there)
    spoiled, _ = model.read_target(encoded, *read[1], ([x * 0 for x in inputs], stood))
    assert not torch.allclose(spoiled[1] * there, wanted[1] * there)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_rules_are_followed_as_the_search_does(name: str) -> None:
    """Of what greedy search wrote all tokens are its choices, and of a text with another word those before it."""
    model, rng = model_of(2), random.Random(2)
    config = DecodingConfig(strategy="greedy", **{"loop_ngram_size": 1, "merge_segments": False, **SETTINGS[name]})
    sources = [document(rng, 1) for _ in range(20)]
    found = decode(model, *pad(sources, CPU), config)
    for spoil in (False, True):
        given = [list(h.tokens) for [h] in found]
        at = [rng.randrange(len(text)) for text in given]
        if spoil:
            for text, place in zip(given, at, strict=True):
                text[place] = WORD if text[place] != WORD else WORD + 1
        target, mask, _ = pad([[BOS, *text[:-1]] for text in given], CPU)
        with torch.no_grad():
            _, states = model.read_target(model.encode(*pad(sources, CPU)), target, consumed(target).cumsum(1), mask)
        logits = model.logits(states).float()
        rests = [(source, {}) for source in sources]
        choices = [row[: len(text)].tolist() for row, text in zip(logits.argmax(2), given, strict=True)]
        followed = follow_rules(rests, given, choices, lambda rows, place, all=logits: all[rows, place], config, CPU)
        wanted = [(len(text), not h.finished) for text, [h] in zip(given, found, strict=True)]
        if spoil:
            assert [count for count, _ in followed] == at
        else:
            assert followed == wanted
            assert choices != given  # the rules count


class Monotone:
    """Writes one word without end; the search says where it stops."""

    most_target_tokens = float("inf")

    def encode(self, source: Any, source_mask: Any, source_segments: Any) -> None:
        return None

    def init_state(self, encoded: None, beams: int) -> None:
        return None

    def step(self, tokens: torch.Tensor, segments: torch.Tensor, state: None) -> tuple[torch.Tensor, None]:
        return torch.nn.functional.one_hot(torch.full_like(tokens, WORD), WORDS).float(), None

    def reorder(self, state: None, rows: Any, documents: Any) -> None:
        return None


def test_texts_that_go_on_have_limits_of_their_own() -> None:
    """A short one that begins stands beside a long one that nearly ends."""
    sources = [[*[WORD] * n, SEP, EOS] for n in (4, 40)]
    config = DecodingConfig(strategy="greedy", max_length_ratio=1.0, max_length_offset=1, loop_ngram_size=0)
    found = decode(Monotone(), *pad(sources, CPU), config, begun=[[WORD], [WORD] * 38])
    assert [hypothesis.tokens for [hypothesis] in found] == [(*[WORD] * 4, SEP), (*[WORD] * 3, SEP)]


def texts(tokens: tuple[int, ...]) -> list[list[int]]:
    """A text for each source segment, some of them empty where a separator consumes several."""
    found: list[list[int]] = [[]]
    for token in tokens:
        found[-1].append(token)
        if steps := steps_of(token):
            found += [[] for _ in range(steps)]
    return found[:-1]


def test_a_cut_segment_that_another_one_translates_is_not_cut() -> None:
    document = make_document([WORD, SEP, WORD, SEP, EOS], [(), ()], {})
    document.change(1, (WORD, SEP), 1)
    document.cut[1] = True
    document.change(0, (WORD, SEP2), 2)
    document.join()
    assert (document.texts, document.cut) == ([(WORD, SEP2), None], [False, False])


def test_scores_are_those_of_the_search() -> None:
    model, rng = model_of(9), random.Random(9)
    sources = [document(rng, 5), document(rng, 2)]
    config = DecodingConfig(strategy="greedy", length_penalty=0.6)
    forced = [{1: [WORD, WORD + 1]}, {}]
    found = decode_drafts(model, sources, [[()] * 5, [()] * 2], config, CPU, forced=forced)
    for [hypothesis], [wanted] in zip(found, decode(model, *pad(sources, CPU), config, forced=forced), strict=True):
        assert hypothesis.log_probability == pytest.approx(wanted.log_probability, rel=1e-5)
        assert hypothesis.score == pytest.approx(wanted.score, rel=1e-5)


def test_the_translation_itself_is_read_once() -> None:
    model, rng = model_of(4), random.Random(4)
    source = document(rng, 8)
    config = DecodingConfig(strategy="greedy", merge_segments=False, max_length_ratio=9)
    [[wanted]] = decode(model, *pad([source], CPU), config)
    counts = Counts()
    decode_drafts(model, [source], [texts(wanted.tokens)], config, CPU, counts=counts)
    assert counts.kept == counts.tokens == len(wanted.tokens)
    assert counts.calls < len(wanted.tokens) / 2


def test_without_a_draft_the_first_round_writes_one() -> None:
    """What stays of it counts, and a given one where it stays as given."""
    model, rng = model_of(4), random.Random(4)
    source = document(rng, 1)
    config = DecodingConfig(strategy="greedy", max_length_ratio=9)
    [[wanted]] = decode(model, *pad([source], CPU), config)
    told: list[float] = []
    for draft, kept in ((None, len(wanted.tokens)), ([WORD], 0)):
        counts = Counts()
        [[found]] = decode_drafts(
            model, [source], [[draft]], config, CPU, counts=counts, progress=lambda _, share: told.append(share)
        )
        assert found.tokens == wanted.tokens != (WORD, SEP)
        assert (counts.tokens, counts.kept) == (len(wanted.tokens), kept)
        assert told == sorted(told)
        assert 0 < told[-1] <= 0.5
        told.clear()


def test_the_texts_of_segments_are_told_in_order_and_a_document_can_be_given_up() -> None:
    model, rng = model_of(5), random.Random(5)
    sources = [document(rng, 6), document(rng, 6)]
    config = DecodingConfig(strategy="greedy")
    told: dict[int, list[int]] = {0: [], 1: []}

    def watch(place: int, tokens: Any) -> bool:
        told[place] += tokens
        return place == 0

    [[whole], [part]] = decode_drafts(model, sources, [[()] * 6] * 2, config, CPU, watch=watch)
    [[wanted], [other]] = decode(model, *pad(sources, CPU), config)
    assert tuple(told[0]) == whole.tokens == wanted.tokens
    assert part.tokens == other.tokens[: len(part.tokens)]
    assert not part.finished


@pytest.mark.parametrize(
    ("near", "kept", "sinusoids"), [(3, 64, "auto"), (1, 4, "auto"), (0, 2, "auto"), (1, 4, "segments")]
)
@torch.no_grad()
def test_every_place_goes_on_as_the_whole_text_does(near: int, kept: int, sinusoids: str) -> None:
    """States before places of two texts, the middles of segments too, give the logits of teacher forcing."""
    model, rng = model_of(3, near, kept, sinusoids=sinusoids), random.Random(3)
    sources, given = ([document(rng, 7) for _ in range(2)] for _ in range(2))
    encoded = model.encode(*pad(sources, CPU))
    target, mask, _ = pad([[BOS, *tokens[:-1]] for tokens in given], CPU)
    segments = consumed(target).cumsum(1)
    inputs, states = model.read_target(encoded, target, segments, mask)
    expected = model.logits(states).float()
    places = [(n, at) for n in (1, 0) for at in range(int(mask[n].sum()) - 3)]
    rows, starts = (torch.tensor(column) for column in zip(*places, strict=True))
    numbers = segments[rows, starts]
    state = model.states_before(model.cross_states(encoded), inputs, segments, rows, starts)
    alive = torch.ones_like(starts, dtype=torch.bool)
    for step in range(3):
        at = starts + step
        alive &= segments[rows, at] == numbers  # a row stays in its segment
        logits, state = model.step(target[rows, at], segments[rows, at], state)
        torch.testing.assert_close(logits[alive], expected[rows, at][alive], rtol=1e-4, atol=1e-4)
    assert alive.sum() > 10
