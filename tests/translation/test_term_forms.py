"""Repeated terms: which words are terms, and what was written for them; by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scaleformer.translation.request import Request
from scaleformer.translation.term_forms import Form, find_forms
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.word_alignments import Links
from tests.copier import GREEDY, make_copier

KERNEL = ["el núcleo x"] * 8 + ["los Núcleos x", "la almendra x", "la almendra x", "nada"]
OTHERS = [("see nothing", "el vacío")] * 6 + [("see nothing", "la nada x")] * 6


def report(
    monkeypatch: pytest.MonkeyPatch,
    pairs: Sequence[tuple[str, str]],
    links: Sequence[Links],
    shared: tuple[int, ...] = (),
) -> dict[str, tuple[int, dict[Form, list[int]]]]:
    """For each term of a document its count, and each form with its segments from 1, as often as there."""
    translation = Translation((DocumentHypothesis(tuple(t for _, t in pairs), 0.0, 0.0, True, shared),), len(pairs), 0)
    monkeypatch.setattr("scaleformer.translation.term_forms.align_words", lambda *_: [list(links)])
    request = Request([[s for s, _ in pairs]], GREEDY, ["a"], languages=("en", "es"))
    terms = find_forms(make_copier(), request, [translation])
    assert [len(term.places) for term in terms] == sorted((len(term.places) for term in terms), reverse=True)
    found: dict[str, tuple[int, dict[Form, list[int]]]] = {}
    for term in terms:
        assert term.counts() == term.counts(0)
        _, forms = found.setdefault(term.source, (len(term.places), {}))
        for form, document, segment in term.places:
            assert document == 0
            forms.setdefault(form, []).append(segment + 1)
    return found


def kernels(target: str, n: int) -> tuple[str, str]:
    return (f"the kernel{'s' * (n % 2)}, `kernel` {n}.", target)


def test_each_form_is_told_with_its_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 of 1,000 words are 20.7 times as many as a word outside of the 302 pieces lets expect, so `kernel` is a term;
    `see` and `the` are too short. The first segment links nothing, but has the form; the last but one has a form that
    occurs twice, the last one another. `el` and `la` stand elsewhere, too."""
    pairs = [kernels(target, n) for n, target in enumerate(KERNEL)] + OTHERS
    links: list[Links] = [((0, 0), (1, 1))] * len(pairs)
    links[0], links[11] = (), ((1, 0), (9, 0), (1, 9))  # of a vocabulary that reads more words than there are
    found = report(monkeypatch, pairs, links)
    assert found["kernel"] == (12, {"núcleo": [*range(1, 10)], "almendra": [10, 11], None: [12]})
    assert set(found) == {"kernel", "nothing"}


def test_what_is_linked_alone_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [kernels(target, n) for n, target in enumerate([*KERNEL[:11], "un grano"])] + OTHERS
    found = report(monkeypatch, pairs, [((0, 0), (1, 1))] * len(pairs))
    assert found["kernel"][1] == {"núcleo": [*range(1, 10)], "almendra": [10, 11], "grano": [12]}


def test_code_and_quotations_have_no_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [kernels(target, n) for n, target in enumerate(KERNEL)] + OTHERS
    pairs[3] = ("the \u201ckernel\u201d 3.", "el núcleo x")
    pairs[4] = ('the "kernel" `kernel`', "el núcleo x")
    links: list[Links] = [((0, 0), (1, 1))] * len(pairs)
    pairs += [("the kernel", "el núcleo")] * 2
    links += [((0, 0), (1, 1))] * 2
    assert report(monkeypatch, pairs, links)["kernel"][1]["núcleo"] == [1, 2, 3, 6, 7, 8, 9, 25, 26]


def test_longer_terms_win_and_forms_may_have_a_word_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """`line` alone occurs twice only; a comma parts two words. Two segments are translated by one."""
    pairs = [(f"Command lines {n}", "la línea de órdenes" if n % 3 else "línea órdenes") for n in range(12)]
    pairs += [
        ("a command, line", "una orden, línea"),
        ("a line", "una línea"),
        *OTHERS,
        ("Command", "línea"),
        ("line", ""),
    ]
    links: list[Links] = [((1, 1), (0, 3)) if n % 3 else ((1, 0), (0, 1)) for n in range(12)]
    links += [((1, 1), (2, 2)), ((1, 1),), *([()] * 12), ((1, 0),), ()]
    found = report(monkeypatch, pairs, links, shared=(27,))
    assert found["Command lines"] == (13, {"línea de órdenes": [*range(1, 13)], "línea": [27]})
    assert "line" not in found


def test_scripts_without_spaces_have_no_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report(monkeypatch, [("在東京", "Tokio")] * 12, [()] * 12) == {}
