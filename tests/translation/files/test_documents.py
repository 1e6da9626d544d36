"""`prepare` and `translate` read a document by the same code: the same segments train and are translated."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from scaleformer.data.prepare import prepare
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.server.reading import Prose
from scaleformer.translation.files.documents import ProseFile, open_file
from scaleformer.translation.translation_memory import masked
from scaleformer.translation.translations import DocumentHypothesis, Translation
from tests.books import book
from tests.commands.calls import Benchmark
from tests.formats import test_html, test_markdown_dialects, test_subtitles
from tests.formats.pages import page
from tests.formats.slides import ap, ar, presentation, shape
from tests.formats.test_odf import p, packed_odf, span
from tests.formats.test_xliff import one, unit
from tests.formats.test_xlsx import si, workbook
from tests.formats.word import real

TEA = Path(__file__).parents[3] / "data" / "samples" / "raw" / "en" / "tea.en.md"
WRAPPED = "\ufeffThe text of\ntwo lines. See `x. y`, www.a.org/b or v1.2.3.\n\nAnother\xa0one.\n12\n"
SAMPLES = {
    "tea.md": TEA.read_bytes(),
    **{f"page{seed}.md": page(seed).encode() for seed in range(10)},
    "dialects.md": test_markdown_dialects.PAGE.encode(),
    "page.html": test_html.PAGE.encode(),
    "book.epub": book(),
    "real.docx": real(),
    "a.pptx": presentation(shape(ap(ar("See "), ar("this", 'b="1"'), ar(" now."))), shape(ap(ar("Two. Three.")))),
    "a.odt": packed_odf(p("See ", span("T1", "this"), " now.") + p("Two. Three.")),
    "a.xlsx": workbook(si("One\ntwo") + si("Three. Four.")),
    "page.srt": test_subtitles.FILE.encode(),
    "page.vtt": test_subtitles.WEB.encode(),
    "wrapped.txt": WRAPPED.encode(),
    "lines.txt": WRAPPED.replace("\n\n", f" {'and more ' * 20}\n").replace("\n", "\r").encode(),
}


@pytest.mark.parametrize("grain", ["sentence", "paragraph"])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_segments_train_and_are_translated(name: str, grain: str, tmp_path: Path) -> None:
    for side in ("en", "es"):
        (tmp_path / side).mkdir()
        (tmp_path / side / name).write_bytes(SAMPLES[name])
    given = ["format=raw", "source_language=en", "target_language=es", "valid=0", "test=0", f"split={grain}"]
    given += [
        f"source={tmp_path / 'en'}",
        f"target={tmp_path / 'es'}",
        f"output={tmp_path / 'out'}",
        "filters.script=false",
        "filters.language=false",
        "filters.repetition=false",
    ]
    prepare(Benchmark("prepare").read(given))
    (document,) = read_jsonl(tmp_path / "out" / "train.jsonl.gz")
    file = open_file(tmp_path / "en" / name, "en", grain, True)
    assert isinstance(file, ProseFile)
    assert list(document.source) == [segment.unmasked for segments in file.segments for segment in segments]
    texts = [masked(text).text for text in document.source]
    if name.endswith((".docx", ".pptx", ".odt")):  # formatting has no marks in a text
        letters = [re.sub(r"\s", "", text) for text in texts]
        assert letters == [re.sub(r"⟨.⟩|\s", "", text) for text in file.documents[0].source]
    elif not name.startswith("page") or name == "page.html":  # some need their page: a link by its name
        assert texts == list(file.documents[0].source)


PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Open `a.txt` now."
msgstr "Abra `a.txt` ya."

msgid "New."
msgstr ""

#, fuzzy
msgid "Old."
msgstr "Viejo."

msgid "The end."
msgstr "El fin."
"""


def test_the_last_units_of_a_large_catalogue_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.formats.files.KNOWN", 1)
    (tmp_path / "a.po").write_text(PO)
    file = open_file(tmp_path / "a.po", "en", "sentence", True)
    assert file.documents[0].forced.known == (("The end.", "El fin."),)
    counts: Counter[str] = Counter()
    file.write([Translation((DocumentHypothesis(("Nuevo.",), 0.0, 0.0, True),), 1, 1)], counts)
    note = "translated units before the last 1, whose words do not help the others"
    assert counts[note] == 1
    what = Prose((tmp_path / "a.po").read_bytes(), "a.po", "po", "en", "sentence", 9)
    assert what.write(["Nuevo."])[1][note] == 1
    (tmp_path / "a.po").write_text(PO.replace('msgid "New."\nmsgstr ""', ""))
    assert note not in open_file(tmp_path / "a.po", "en", "sentence", True)._file.left


def test_units_that_cannot_be_read_do_not_keep_others_from_translation(tmp_path: Path) -> None:
    control = unit("See<cp hex='001A'/>that.")
    (tmp_path / "a.xlf").write_text(one(unit("Yes.", "<target>Sí.</target>"), control, unit("No.")))
    file = open_file(tmp_path / "a.xlf", "en", "sentence", True)
    assert file.documents[0].forced.known == (("Yes.", "Sí."),)
    [note] = [what for what in file._file.left if what.startswith("fault after which")]
    assert "<cp> stands for a control character" in note


def test_what_a_catalogue_has_translated_is_known(tmp_path: Path) -> None:
    """Masked as the segments of the file are; of XLIFF, too; nothing of other files."""
    path = tmp_path / "a.po"
    path.write_text(PO)
    [document] = open_file(path, "en", "sentence", True).documents
    assert document.source == ("New.",)
    assert document.forced.known == (("Open ⟨1⟩ now.", "Abra ⟨1⟩ ya."), ("The end.", "El fin."))
    assert Prose(path.read_bytes(), "a.po", "po", "en", "sentence", 9).read()[2] == document.forced.known
    units = unit("Yes.", "<target>Sí.</target>"), unit("No.", "<target state='needs-translation'>x</target>")
    (tmp_path / "a.xlf").write_text(one(*units))
    [document] = open_file(tmp_path / "a.xlf", "en", "sentence", True).documents
    assert (document.source, document.forced.known) == (("No.",), (("Yes.", "Sí."),))
    [document] = open_file(TEA, "en", "sentence", True).documents
    assert document.forced.known == ()
