"""Translation memories: exact matches, the most frequent translation, equal spans."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from scaleformer.system.errors import DataError
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translation_memory import (
    FIXED,
    OTHER_SPANS,
    Masked,
    TranslationMemory,
    fill_forced,
    masked,
)

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


def test_similar_entries_by_hand():
    """The shared word weighs more in a source whose other words are frequent; an entry is there once."""
    memory = TranslationMemory(
        [("red house", "casa roja"), ("red tree", "árbol rojo"), ("a big `x` tree", "un árbol `x`")]
    )
    assert memory.similar(["The red boat"], 5) == (("red tree", "árbol rojo"), ("red house", "casa roja"))
    assert memory.similar(["The red boat"], 1) == (("red tree", "árbol rojo"),)
    assert memory.similar(["house", "red House"], 1) == (("red house", "casa roja"),)
    assert memory.similar(["nothing", ""], 5) == ()
    both = memory.similar([Masked("tree", ()), Masked("house", ())], 1)
    assert both == (("red tree", "árbol rojo"), ("red house", "casa roja"))
    assert memory.similar([Masked("big", ())], 1) == (("a big ⟨1⟩ tree", "un árbol ⟨1⟩"),)
    memory.add("blue boat", "barco azul")
    assert memory.similar(["A boat"], 1) == (("blue boat", "barco azul"),)
    assert TranslationMemory([("...", "…")]).similar(["..."], 3) == ()


def test_similar_entries_are_the_nearest_by_cosine():
    """Beside tf-idf by hand: (1 + ln tf) (1 + ln((1 + N) / (1 + df)))."""
    rng = random.Random(3)
    sources = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 6))) for _ in range(30)]
    memory = TranslationMemory((source, source.upper()) for source in sources)
    entries = [Counter(source.split()) for source in dict.fromkeys(sources)]
    inverse = {w: 1 + math.log((1 + len(entries)) / (1 + sum(w in e for e in entries))) for w in "abcdefgh"}

    def vector(counts: Counter[str]) -> dict[str, float]:
        raw = {word: (1 + math.log(count)) * inverse[word] for word, count in counts.items()}
        norm = math.sqrt(sum(value**2 for value in raw.values()))
        return {word: value / norm for word, value in raw.items()}

    for _ in range(20):
        text = " ".join(rng.choices("abcdefgh", k=4))
        query = vector(Counter(text.split()))
        merits = [sum(query.get(w, 0.0) * value for w, value in vector(entry).items()) for entry in entries]
        nearest = sorted(merits, reverse=True)[:3]
        found = [merits[list(dict.fromkeys(sources)).index(source)] for source, _ in memory.similar([text], 3)]
        assert found == pytest.approx(nearest)


def test_known_entries_are_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    [found] = fill_forced(TranslationMemory(PAIRS), [ForcedTexts(known=(("x", "y"),))], [["a house", "the tree"]], 2)
    assert found.fixed == {0: "un hogar"}
    assert found.known == (("x", "y"), ("a house", "un hogar"), ("A dog", "un perro"), ("a tree", "un árbol"))
    assert "translation memory: of 2 segments 1 fixed; 3 similar pairs" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "sklearn", None)
    [found] = fill_forced(TranslationMemory(PAIRS), [ForcedTexts()], [["the tree"]], 2)
    assert found == ForcedTexts()
    assert "similar pairs need scikit-learn: pip install 'scaleformer[confidence]'" in capsys.readouterr().err
