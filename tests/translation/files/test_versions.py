"""Versions of texts: what stays, what moved, and where parts of a text went."""

from __future__ import annotations

import pytest

from scaleformer.translation.files.versions import align_texts, follow_places, follow_ranges


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("abc", "abc", {0: 0, 1: 1, 2: 2}),
        ("abc", "cab", {0: 2, 1: 0, 2: 1}),  # moved
        ("abab", "b", {0: 1}),
        ("xaxb", "abxx", {0: 1, 1: 3, 2: 0, 3: 2}),  # equal ones move in order
        ("abc", "axc", {0: 0, 1: 1, 2: 2}),  # replaced
        ("abc", "axyc", {0: 0, 3: 2}),  # unlike, and not as many
        ([], ["a"], {}),
    ],
)
def test_the_same_texts_then_those_in_their_place(old, new, found):
    assert align_texts(list(old), list(new)) == found


def test_a_text_between_new_ones_is_found_by_its_words():
    old = ["first", "the cat sees a small dog", "last"]
    new = ["first", "quite another text", "the cat sees a large dog", "last"]
    assert align_texts(old, new) == {0: 0, 2: 1, 3: 2}


@pytest.mark.parametrize(
    ("new", "parts"),
    [
        ("One two. Three four.", ["One two.", "Three four."]),
        ("One 2. Three four.", ["One 2.", "Three four."]),
        ("New. One two. Three four.", ["New. One two.", "Three four."]),
        ("One two. And more. Three four.", ["One two. And more.", "Three four."]),
        ("Three four.", ["", "Three four."]),
        ("", ["", ""]),
    ],
)
def test_parts_of_a_text_are_followed(new, parts):
    ranges = follow_ranges("One two. Three four.", new, [(0, 8), (9, 20)])
    assert [new[slice(*one)] for one in ranges] == parts


def test_places_follow_their_texts():
    places = [[0, 0, 1], [1, 0, 2], [1, 3, 5], []]
    assert follow_places(["a", "bc de", "f"], ["bc x de", "f"], places) == [[], [0, 0, 4], [0, 5, 7], []]
