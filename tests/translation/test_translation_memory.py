"""Translation memories: exact matches, the most frequent translation, equal spans."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scaleformer.system.errors import DataError
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translation_memory import FIXED, OTHER_SPANS, Masked, TranslationMemory, masked

PAIRS = [
    ("A  dog ", "un perro"),
    ("a house", "una casa"),
    ("a house", "un hogar"),
    (" a\nhouse", "un hogar"),
    ("a tree", "un árbol"),
    ("a tree", "el árbol"),
    ("Run `make` in /usr/lib", "En /usr/lib, usa `make`"),
    ("Run `make` now", "Usa `cmake` ya"),
    ("", "nada"),
]


def test_exact_matches_but_for_white_space_are_fixed():
    counts: Counter[str] = Counter()
    segments = ["A dog", "a dog", "a house", "a\ttree", "", "Run `make` in  /usr/lib", "a house"]
    told = TranslationMemory(PAIRS).fill(ForcedTexts({2: "casa"}, {6: "El"}), segments, counts)
    assert told == ForcedTexts({0: "un perro", 2: "casa", 3: "un árbol", 5: "En /usr/lib, usa `make`"}, {6: "El"})
    assert counts == {FIXED: 3}


def test_spans_have_to_be_the_same_and_are_numbered_as_in_the_source():
    counts: Counter[str] = Counter()
    segments = [
        Masked("a house", ()),
        Masked("Run ⟨1⟩ in ⟨2⟩", ("`make`", "/usr/lib")),
        Masked("Run ⟨1⟩ in ⟨2⟩", ("`make`", "/usr/bin")),
        Masked("Run ⟨1⟩ in ⟨2⟩", ("`make`", None)),
        Masked("Run ⟨1⟩ now", ("`make`",)),
        Masked("Walk ⟨1⟩ now", ("`make`",)),
    ]
    told = TranslationMemory(PAIRS).fill(ForcedTexts(), segments, counts)
    assert told.fixed == {0: "un hogar", 1: "En ⟨2⟩, usa ⟨1⟩"}
    assert counts == {FIXED: 2, OTHER_SPANS: 3}


def test_neighbouring_spans_share_a_placeholder():
    assert masked("see <b>`x`</b> and `y`") == Masked("see ⟨1⟩ and ⟨2⟩", ("<b>`x`</b>", "`y`"))
    many = " ".join(["`x`"] * 10)
    assert masked(many) == Masked(many, ())


CONTENT = {
    "memory.tmx": '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body><tu>'
    '<tuv xml:lang="en"><seg>a dog</seg></tuv><tuv xml:lang="es"><seg>un perro</seg></tuv></tu></body></tmx>\n',
    "memory.po": 'msgid "a dog"\nmsgstr "un perro"\n',
    "memory.xlf": '<xliff version="1.2"><file original="a"><body><trans-unit id="1"><source>a dog</source>'
    "<target>un perro</target></trans-unit></body></file></xliff>\n",
    "memory.tsv": "a\ta dog\tun perro\n",
    "named.tsv": "target\tsource\nun perro\ta dog\n",
}


@pytest.mark.parametrize("name", CONTENT)
def test_memories_of_all_formats(tmp_path: Path, name: str):
    (tmp_path / name).write_text(CONTENT[name], encoding="utf-8")
    memory = TranslationMemory.read(str(tmp_path / name))
    assert memory.fill(ForcedTexts(), ["a dog"], Counter()).fixed == {0: "un perro"}


def test_what_is_no_memory_is_one_line(tmp_path: Path):
    (tmp_path / "memory.md").write_text("# a dog\n")
    with pytest.raises(DataError, match=r"translation_memory=.*memory.md: Markdown, wanted one of a gettext catalogue"):
        TranslationMemory.read(str(tmp_path / "memory.md"))
