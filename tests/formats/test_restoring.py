"""Spans put back into translations, against values worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from scaleformer.formats.blocks import Span
from scaleformer.formats.restoring import restore
from tests.formats.test_segments import only


@pytest.mark.parametrize(
    ("source", "translation", "wanted", "count"),
    [
        ("a ^ b", "x ⟨1⟩ y", "x (2) y", {}),
        ("a ^ b ^", "⟨2⟩ x ⟨1⟩", "(6) x (2)", {}),
        ("a ^ b", "x y", "x y (2)", {"spans moved to the end of their segment": 1}),
        ("a^ b", "x y", "x y(1)", {"spans moved to the end of their segment": 1}),
        ("a ^ b", "⟨1⟩ x ⟨1⟩ ⟨4⟩", "(2) x  ", {"placeholders dropped that the source does not have": 2}),
        ("a [b] c", "x ⟨1⟩y⟨2⟩ z", "x <2>y</2> z", {}),
        ("a [b] c", "x ⟨1⟩ y ⟨2⟩ z", "x <2>y</2> z", {}),
        ("a [b] c", "x⟨1⟩ y ⟨2⟩z", "x <2>y</2> z", {}),
        ("a [b] c", "⟨2⟩ x ⟨1⟩ y z", "x <2>y</2> z", "torn"),
        ("a [b] c", "x y z ⟨1⟩⟨2⟩", "x <2>y</2> z", "torn"),
        ("a [b] c [d]", "⟨1⟩u ⟨3⟩v⟨2⟩ w⟨4⟩ x", "u <2>v</2> w <8>x</8>", "torn"),
        ("a [b] c", "x y z", "x <2>y</2> z", "torn"),
        ("a [b] c", "x", "<2>x</2>", "torn"),
        ("a ^ ^ b", "x ⟨1⟩⟨2⟩ y", "x (2) (4) y", {}),
        ("x] a [y", "⟨2⟩x ⟨1⟩y", "x</-1> <5>y", "torn"),
    ],
)
def test_spans_come_back(source: str, translation: str, wanted: str, count: dict[str, int] | str) -> None:
    counts: Counter[str] = Counter()
    change = restore(only(source), translation, counts)
    assert "".join(part.content if isinstance(part, Span) else part for part in change.parts) == wanted
    torn = "segments whose marks the model separated, placed as in the source"
    assert counts == ({torn: 1} if count == "torn" else count)
