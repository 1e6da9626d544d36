"""Plain text: paragraphs or lines, and back."""

from __future__ import annotations

import pytest

from scaleformer.formats.text import TextFile
from tests.formats.fake import shown, translate, unchanged

LONG = "x" * 200


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("text", "by_line", "wanted"),
    [
        ("one\nline\n\n\ntwo\n", False, ["one line", "two"]),
        ("one\nline\n \n12\n\ntwo", True, ["one", "line", "two"]),
        ("one\ntwo\n", False, ["one", "two"]),
        (f"one\n{LONG}\n\ntwo\n", False, ["one", LONG, "two"]),
        ("\ufeff one\n", False, ["one"]),
        ("", False, []),
    ],
)
def test_paragraphs(text: str, by_line: bool, wanted: list[str], end: str) -> None:
    content = text.replace("\n", end).encode()
    file = TextFile(content, "a.txt", by_line)
    assert shown(file) == [("paragraph", text) for text in wanted]
    assert unchanged(file) == content
    assert translate(file)[0] == content.upper()
