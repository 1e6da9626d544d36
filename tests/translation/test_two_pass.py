"""Two-pass translation: the second pass against a single pass, and against fixed segments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator
from scaleformer.translation.two_pass import FirstPass, InContext
from scaleformer.vocabulary import BOS, EOS, SEP
from tests.helpers import make_model
from tests.runs import make_run

FIRST_WORD = 20


@pytest.mark.parametrize(("near", "kept"), [(3, 64), (1, 4), (0, 2)])
@torch.no_grad()
def test_every_segment_goes_on_as_the_whole_text_does(near: int, kept: int) -> None:
    """Segments decoded in parallel that repeat the first pass have the logits of teacher forcing."""
    generator = torch.Generator().manual_seed(3)
    model = make_model(50, attention={"name": "segment_recall", "near": near, "kept": kept})
    for name, parameter in model.named_parameters():
        if name.endswith("salience"):
            parameter.normal_(generator=generator)
    sizes = [3, 1, 7, 4, 2, 5]
    words = [torch.randint(FIRST_WORD, 40, (n,), generator=generator).tolist() for n in sizes]
    target = torch.tensor([[token for tokens in words for token in (*tokens, SEP)]])
    source = torch.cat([target.flip(1)[:, 1:], torch.tensor([[SEP, EOS]])], 1)
    segments = ((source == SEP).cumsum(1) - (source == SEP).long()).clamp(min=0)
    ones = torch.ones_like(source, dtype=torch.bool)
    whole = torch.cat([torch.tensor([[BOS]]), target], 1)
    numbers = (whole == SEP).cumsum(1)
    batch = Batch(source, ones, segments, whole, whole, torch.ones_like(whole, dtype=torch.bool), numbers)
    expected = model.logits(model(batch))[0].float()

    order = [4, 0, 5, 2, 1, 3]
    search = InContext(FirstPass(model, source[0].tolist(), words), order)
    state = search.init_state(None, 1)
    tokens = torch.full((len(order),), BOS)
    starts = torch.tensor([int((numbers[0] == n).nonzero()[0]) for n in order])
    for i in range(min(sizes)):
        logits, state = search.step(tokens, torch.zeros_like(tokens), state)
        torch.testing.assert_close(logits, expected[starts + i])
        tokens = whole[0, starts + i + 1]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder: Path = make_run(tmp_path_factory.mktemp("two_pass") / "run")
    return Translator.load(folder)


def test_the_second_pass_has_the_first_as_its_context(translator: Translator) -> None:
    """Slow reference: a separate search for every segment, with those before it fixed."""
    documents = [["one two", "three", "", "four five six", "seven"], [""], ["eight nine", "ten"]]
    settings = {"strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}
    found = translator.translate(documents, mode="two-pass", **settings)
    first = translator.translate(documents, mode="segment", **settings)
    for document, once, twice in zip(documents, first, found, strict=True):
        for n, segment in enumerate(document):
            if not segment:
                assert twice[n] == ""
                continue
            fixed = [dict(enumerate(once[:n]))]
            slow = translator.translate([document], fixed=fixed, merge_segments=False, **settings)
            assert twice[n] == slow[0][n]


def test_segments_are_told_and_fixed_in_both_passes(translator: Translator) -> None:
    told: list[tuple[int, int, tuple[str, ...]]] = []

    def watch(document: int, first: int, texts: object) -> bool:
        told.extend((document, first, tuple(texts)) for _ in [0] if texts)  # type: ignore[call-overload]
        return True

    settings = {"strategy": "greedy", "mode": "two-pass", "fixed": [{1: "as it was"}]}
    [found] = translator.translate_documents(
        translator.request([["one", "two", "three"]], **settings), Listener(segments=watch)
    )  # type: ignore[arg-type]
    assert found.segments[1] == "as it was"
    assert sorted(n for _, n, _ in told) == [0, 1, 2]
    assert {document for document, _, _ in told} == {0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"match_segments": False}, "mode=two-pass: wanted match_segments=true; or set mode=document"),
        ({"max_tokens": 20}, "max_tokens=20 is for documents, mode=two-pass for segments: set only one"),
        ({"strategy": "beam", "n_best": 2}, "n_best=2: only the best hypotheses of pieces can be joined; set n_best=1"),
    ],
)
def test_what_does_not_fit_is_said(translator: Translator, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translator.translate_documents(translator.request([["one"]], mode="two-pass", **settings))  # type: ignore[arg-type]


def test_other_attentions_are_refused() -> None:
    model = make_model(50, attention={"name": "alibi"}, sites={"cross": {"name": "softmax", "positions": "none"}})
    search = InContext(FirstPass(model, [FIRST_WORD, SEP, EOS], [[FIRST_WORD]]), [0])
    with pytest.raises(ValueError, match="cannot start in the middle of a text: only segment_recall can"):
        search.init_state(None, 1)
