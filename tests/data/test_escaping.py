"""Texts are escaped before sentencepiece reads them."""

from __future__ import annotations

from hypothesis import given, settings

from scaleformer.data.tokenizer import escape, escaped_with, unescape
from tests.data.test_tokenizer import TEXT


@settings(max_examples=100, deadline=None)
@given(text=TEXT)
def test_escape_is_inverted_and_hides_special_pieces(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "<sep>" not in escape(text)
    assert "\u2581" not in escape(text)


def test_tags_of_a_vocabulary_are_escaped_too() -> None:
    found = escaped_with(["2es"])
    assert escape("a <2es> <sep> <2fr>", found) == "a <\ue0002es> <\ue000sep> <2fr>"
    assert unescape(escape("a <2es> <sep>", found)) == "a <2es> <sep>"
