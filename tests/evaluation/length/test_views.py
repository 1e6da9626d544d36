"""Views of a document, by hand and by invariants."""

from __future__ import annotations

import random

import pytest

from scaleformer.evaluation.length.views import View, Window, views


def test_by_hand():
    assert views("pass", [3, 4, 5]) == [View(0, 0, 3)]
    assert views("segments", [3, 4, 5]) == [View(0, 0, 1), View(1, 1, 2), View(2, 2, 3)]
    assert views("window", [1] * 7, Window("segments", 4, 2)) == [
        View(0, 0, 2),
        View(0, 2, 4),
        View(2, 4, 6),
        View(4, 6, 7),
    ]
    assert views("window", [1] * 4, Window("segments", 4, 2)) == [View(0, 0, 4)]
    # 11 tokens, one of them </s>: 5 new ones and a context of 5
    assert views("window", [2, 3, 4, 9, 2, 2], Window("tokens", 11, 5)) == [
        View(0, 0, 2),
        View(0, 2, 3),
        View(3, 3, 4),  # a long segment alone: with one before it there would be 14
        View(4, 4, 6),  # the long one is not a context
    ]
    assert views("window", [5, 5], Window("tokens", 5, 0)) == [View(0, 0, 1), View(1, 1, 2)]
    # a segment of 300 leaves no room for one of 250 next to it, whatever the context
    assert views("window", [250, 300, 200], Window("tokens", 512, 256)) == [View(0, 0, 1), View(1, 1, 2), View(2, 2, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_views_cover_the_document_and_contexts_are_whole_views(seed):
    generator = random.Random(seed)
    tokens = [generator.randint(1, 12) for _ in range(generator.randint(1, 30))]
    size = generator.randint(4, 40)
    window = Window("tokens", size, generator.randint(0, size - 1))
    found = views("window", tokens, window)
    assert [place for v in found for place in range(v.new, v.stop)] == list(range(len(tokens)))
    starts = {v.new for v in found}
    for v in found:
        assert v.start in starts
        context = sum(tokens[v.start : v.new])
        assert context <= window.context
        assert context + sum(tokens[v.new : v.stop]) < size or (v.stop - v.new == 1 and not context)


def test_wrong_choices():
    with pytest.raises(ValueError, match=r"window\.unit is 'words': it must be one of tokens, segments"):
        Window("words", 4, 2)
    with pytest.raises(ValueError, match=r"window\.context is 4: it must be below window\.size, 4"):
        Window("tokens", 4, 4)
