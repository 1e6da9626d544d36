"""Files of terms: what is read, and the one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.formats.terms import read_terms
from scaleformer.system.errors import DataError


def test_terms_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("kernel\tnúcleo\n\n source  file \t fichero fuente\nkernel\tnúcleo\n", encoding="utf-8")
    assert read_terms(str(path)) == {"kernel": "núcleo", "source file": "fichero fuente"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nkernel\n", "terms.tsv:2: 0 tabs, wanted a source form, a tab and its target form"),
        ("a\tb\tc\n", "terms.tsv:1: 2 tabs"),
        ("a\t\n", "terms.tsv:1: the target form '' of a term is not text"),
        ("a\tb\na\tc\n", "terms.tsv:2: 'a' has the target form 'b' on an earlier line"),
        ("\n", "no terms: write a source form"),
    ],
)
def test_an_invalid_terms_file_gives_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_terms(str(tmp_path / "terms.tsv"))
