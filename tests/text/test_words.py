"""Words in languages with and without spaces."""

from __future__ import annotations

import pytest

from scaleformer.text.words import bare_words, candidates, phrase, spans, words, written_without_spaces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two,  three", ["one", "two,", "three"]),
        ("我用Python3编程。", ["我", "用", "Python3", "编", "程", "。"]),
        ("テーブル", ["テ", "ー", "ブ", "ル"]),
        ("นี้ a", ["นี้", "a"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("a\u00a0b", ["a", "b"]),
        ("", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected
    assert [text[start:stop] for start, stop in spans(text)] == expected


def test_words_without_punctuation():
    assert bare_words("Ja, Python3也行。 नमस्ते!") == ["Ja", "Python3", "也", "行", "नमस्ते"]


def test_candidate_terms():
    assert sorted(candidates("用Wi 路由")) == sorted(["Wi", "用", "路", "路由", "由"])


@pytest.mark.parametrize(
    ("term", "text", "found"),
    [
        ("路由器", "这个路由器是", True),
        ("router", "这个Router是", True),
        ("art", "start", False),
        ("art", "art!", True),
    ],
)
def test_phrases_begin_and_end_with_words(term, text, found):
    assert (phrase(term).search(text) is not None) is found


def test_text_without_spaces():
    assert written_without_spaces(["我喜欢你们的书。", "Python"])
    assert not written_without_spaces(["我 喜欢 你们 的 书"])
    assert not written_without_spaces(["one two", ""])
    assert not written_without_spaces([])
