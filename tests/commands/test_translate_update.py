"""Files translated again after edits: the same files as from nothing, with what a person corrected."""

from __future__ import annotations

import json

import pytest

from scaleformer.translation.files import translating
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from tests.commands.calls import error_line
from tests.runs import make_run

TEXT = "# The cat\n\nthe cat sees `it()` and runs. A *dog* sees it.\n\na house with a [tree](t.html)\n\nit runs\n"
LONG = ("decoding.max_length_ratio=1", "decoding.loop_ngram_size=0")


@pytest.fixture
def page(tmp_path, translate_files):
    """A page with its translation, and what the next calls begin with."""
    (tmp_path / "a.md").write_text(TEXT)
    both = f"input={tmp_path / 'a.md'}", f"output={tmp_path / 'b.md'}"

    def again(*settings: str, to: str = "b.md") -> str:
        code, _, err = translate_files(both[0], f"output={tmp_path / to}", *settings)
        assert code == 0, err
        return err

    return tmp_path / "a.md", tmp_path / "b.md", again


EDITS = {
    "nothing": lambda text: text,
    "a word": lambda text: text.replace("and runs", "and walks"),
    "moved": lambda text: "it runs\n\n" + text.removesuffix("it runs\n"),
    "split": lambda text: text.replace("runs. A", "runs.\n\nA"),
    "removed": lambda text: text.replace("the cat sees `it()` and runs.", ""),
    "another code": lambda text: text.replace("it()", "them()"),
    "all new": lambda text: "tree\n\ncat\n",
}


@pytest.mark.parametrize(
    ("strategy", "edit"),
    [
        *(("greedy", edit) for edit in EDITS),
        *((strategy, edit) for strategy in ("beam", "sample") for edit in ("a word", "moved", "removed")),
    ],
)
def test_the_same_file_as_from_nothing(page, strategy, edit):
    source, output, again = page
    how = (*LONG, f"decoding.strategy={strategy}")
    again(*how)
    source.write_text(EDITS[edit](TEXT))
    err = again("update=true", *how)
    again(*how, to="new.md")
    assert output.read_bytes() == output.with_name("new.md").read_bytes()
    assert "stay\n" in err
    assert ("this search uses no drafts" in err) == (strategy == "sample")


def test_what_changed_is_counted(words, page):
    source, output, again = page
    again()
    first = output.read_bytes()
    assert "update: of 5 segments 0 edited, 0 changed, 5 stay" in again("update=true")
    assert (output.read_bytes(), len(words)) == (first, 1)
    source.write_text(TEXT.replace("house", "home"))
    assert "update: of 5 segments 1 edited, 0 changed, 4 stay" in again("update=true")
    assert output.read_text() == first.decode().replace("HOUSE", "HOME")
    assert len(words) == 2


def test_another_model_or_other_settings_are_told(page, tmp_path):
    _, output, again = page
    again(*LONG)
    err = again("update=true", *LONG, "decoding.max_length_offset=5")
    again(*LONG, "decoding.max_length_offset=5", to="new.md")
    assert "another model or other settings than before: all was verified anew" in err
    assert output.read_bytes() == output.with_name("new.md").read_bytes()
    assert "another model" not in again("update=true", *LONG, "decoding.max_length_offset=5")
    other = make_run(tmp_path / "other", attention={"name": "segment_recall"})
    assert "another model" in again("update=true", *LONG, f"checkpoint={other}")


CORRECTIONS = [
    ("THE CAT SEES `it()` AND RUNS.", "EL GATO VE `it()` Y CORRE."),
    ("A *DOG* SEES IT.", "UN PERRO LO VE."),  # without its mark
    ("A *DOG* SEES IT.", "UN *PERRO* `muy()` LO VE."),  # with another
    ("# THE CAT", "# EL GATO"),
    ("[TREE](t.html)", "[ÁRBOL](es/t.html)"),
    ("RUNS. A *DOG*", "CORRE. UN *PERRO*"),  # two segments
    ("IT RUNS", "CORRE DE PRISA. Y ASÍ SIEMPRE."),
]


@pytest.mark.parametrize(("text", "correction"), CORRECTIONS)
def test_what_a_person_corrected_stays(words, page, text, correction):
    """Where its source stays, moves, or others are removed, and in later calls."""
    source, output, again = page
    again()
    before = output.read_text()
    assert text in before
    corrected = before.replace(text, correction)
    output.write_text(corrected)
    count = 2 if text.startswith("RUNS.") else 1
    assert f"{count} correction{'s' * (count > 1)} by hand kept: {source}, segment" in again("update=true")
    assert output.read_text() == corrected
    for change in ("the cat walks\n\n", "", "a dog\n\n" * 3):
        source.write_text(change + TEXT)
        assert f"{count} correction" in again("update=true")
        assert output.read_text() == change.upper() + corrected
    assert not list(output.parent.glob("*.edited*"))
    output.unlink()
    again("update=true")
    assert output.exists()


def test_later_segments_read_corrections(page, run):
    _, output, again = page
    again(*LONG)
    lines = output.read_text().split("\n")
    output.write_text("\n".join(["# el gato", *lines[1:]]))
    again("update=true", *LONG)
    _, line = output.with_name("b.md.record").read_text().splitlines()
    _, record = json.loads(line)
    assert record["by_hand"] == [0]
    translator, fixed = Translator.load(run, "cpu"), [{0: "el gato"}]
    how = {"max_length_ratio": 1.0, "loop_ngram_size": 0, "draft": "none", "fixed": fixed}
    assert [record["target"]] == translator.translate([record["source"]], **how)


def test_corrections_are_discarded_on_request(words, page, caplog):
    source, output, again = page
    again()
    before = output.read_text()
    output.write_text(before.replace("IT RUNS", "CORRE"))
    again("update=true", "edits=discard")
    assert f"1 corrections by hand are discarded: {source}, segment 5" in caplog.text
    assert output.read_text() == before
    assert not list(output.parent.glob("*.edited*"))


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("`it()`", "`eso()`").replace("A HOUSE", "UNA CASA"),
        lambda text: text.replace("# THE CAT", "---\ntitle: gato\n---\n\n# THE CAT"),
        lambda text: text + "\nUna nota\n",
        lambda text: text.replace("IT RUNS\n", ""),
    ],
    ids=["edited source", "front matter", "added", "removed"],
)
def test_what_has_no_place_any_more_is_kept_beside(words, page, caplog, edit):
    source, output, again = page
    again()
    edited = edit(output.read_text())
    output.write_text(edited)
    source.write_text(TEXT.replace("a house", "a big house"))
    again("update=true")
    assert output.with_name("b.md.edited").read_text() == edited
    assert "has no place in" in caplog.text
    caplog.clear()
    again("update=true")
    assert "has no place" not in caplog.text


def test_a_correction_whose_source_is_edited_later_is_kept_beside(words, page, caplog):
    source, output, again = page
    again()
    corrected = output.read_text().replace("A HOUSE", "UNA CASA")
    output.write_text(corrected)
    again("update=true")
    assert "has no place" not in caplog.text
    source.write_text(TEXT.replace("a house", "a big house"))
    again("update=true")
    assert f"they are kept as {output}.edited" in caplog.text
    assert output.with_name("b.md.edited").read_text() == corrected
    assert "A BIG HOUSE" in output.read_text()


def test_a_damaged_or_foreign_record_loses_nothing(words, page, caplog, translate_files):
    source, output, again = page
    again()
    record = output.with_name("b.md.record")
    whole, text = record.read_bytes(), output.read_text()
    both = f"input={source}", f"output={output}", "update=true"
    header, line = whole.splitlines(keepends=True)
    wrong = [line[:-20], b"5\n", line.replace(b'"source": [', b'"source": ["x", '), line.replace(b"1,", b"-1,")]
    for content in [b"", b"notes\n", b"\xff\x00", *(header + one for one in wrong)]:
        record.write_bytes(content)
        for settings in (both, (*both[:2], "overwrite=true")):
            found = error_line(translate_files(*settings))
            assert f"{record}: damaged, or no record of this version of the program: move it away" in found
            assert (record.read_bytes(), output.read_text()) == (content, text)
    record.unlink()
    assert "exists and may have been corrected, and no record tells: overwrite=true" in error_line(
        translate_files(*both)
    )
    again("overwrite=true")
    assert json.loads(record.read_bytes().splitlines()[1])[1]["written"] == json.loads(line)[1]["written"]
    output.unlink()
    record.unlink()
    again()
    assert record.read_bytes() == whole


def test_a_folder(words, tmp_path, translate_files, caplog):
    source, output = tmp_path / "en", tmp_path / "es"
    source.mkdir()
    for name in "abc":
        (source / f"{name}.md").write_text(f"# page {name}\n\n{TEXT}")
    arguments = f"input={source}", f"output={output}"
    assert translate_files(*arguments)[0] == 0
    (source / "a.md").write_text("# page a\n\nthe tree\n")
    (source / "d.md").write_text("it is new\n")
    (output / "b.md").write_text((output / "b.md").read_text().replace("# PAGE B", "# PÁGINA B"))
    (output / "own.md").write_text("of a person")
    (source / "own.md").write_text("text")
    words.clear()
    code, _, err = translate_files(*arguments, "update=true")
    assert code == 0, err
    assert [document[0] for document in words] == ["page a", "page b", "it is new"]
    assert "update: of 14 segments 1 edited, 0 changed, 13 stay" in err
    assert "1 translations exist and are kept, and no record tells what was corrected there" in caplog.text
    assert (output / "a.md").read_text() == "# PAGE A\n\nTHE TREE\n"
    assert (output / "b.md").read_text().startswith("# PÁGINA B\n\n# THE CAT")
    assert (output / "d.md").read_text() == "IT IS NEW\n"
    assert (output / "own.md").read_text() == "of a person"
    assert translate_files(f"input={source / 'c.md'}", f"output={output}", "update=true")[0] == 0
    assert len((tmp_path / "es.record").read_text().splitlines()) == 5


def test_a_call_broken_off_as_it_wrote_takes_nothing_for_a_correction(words, page, monkeypatch):
    source, output, again = page
    again()
    source.write_text(TEXT.replace("house", "home"))
    with monkeypatch.context() as patch:
        patch.setattr(translating, "replaced", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(AssertionError):
            again("update=true")
    assert "HOUSE" in output.read_text()
    words.clear()
    err = again("update=true")
    assert "by hand" not in err
    assert (words, "HOME" in output.read_text()) == ([], True)
    assert not output.with_name("b.md.part").exists()


def test_what_lies_beside_an_output_inside_the_input_is_not_counted(words, tmp_path, translate_files, caplog):
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / "own.record").write_text("of a person")
    for _ in range(2):
        caplog.clear()
        assert translate_files(f"input={tmp_path}", f"output={tmp_path / 'es'}", "overwrite=true")[0] == 0
        assert "1 of other formats skipped: 1 .record" in caplog.text
        (tmp_path / "es" / "a.md.edited").write_text("text")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["edits=discard"], "edits=discard: for update=true: set both"),
        (["update=true", "boundaries=blank"], "is read as lines, wanted files and folders; JSON Lines take the old"),
        (["update=true", "edits=all"], "edits is 'all': it must be one of keep, discard"),
    ],
)
def test_settings_that_do_not_fit(translate_files, tmp_path, settings, message):
    (tmp_path / "a.txt").write_text("the cat\n")
    assert message in error_line(
        translate_files(f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'b.txt'}", *settings)
    )


def test_an_entry_without_a_translation_does_not_take_that_of_another(monkeypatch, translate_files, tmp_path):
    def documents(self, request, listener, begun=()):
        texts = [tuple("" if text == "The cat" else text.upper() for text in one) for one in request.documents]
        found = [Translation((DocumentHypothesis(text, 0.0, 0.0, True),), len(text), 1) for text in texts]
        for translation in found[len(begun) :]:
            listener.finished(translation)
        return found

    monkeypatch.setattr(Translator, "translate_documents", documents)
    entries = 'msgid "Hello"\nmsgstr "{}"\n\nmsgid "The cat"\nmsgstr ""\n\nmsgid "Old name"\nmsgstr "{}"\n'
    (tmp_path / "in.po").write_text(entries.format("", "Nombre viejo"))
    both = f"input={tmp_path / 'in.po'}", f"output={tmp_path / 'out.po'}"
    assert translate_files(*both)[0] == 0
    assert (tmp_path / "out.po").read_text() == entries.format("HELLO", "Nombre viejo")
    (tmp_path / "out.po").write_text(entries.format("HELLO", "Nombre antiguo"))
    assert translate_files(*both, "update=true")[0] == 0
    assert (tmp_path / "out.po").read_text() == entries.format("HELLO", "Nombre viejo")
    assert (tmp_path / "out.po.edited").read_text() == entries.format("HELLO", "Nombre antiguo")


def test_a_string_catalog_is_corrected_and_updated(words, translate_files, tmp_path):
    def catalog(*keys: str, **values: str) -> str:
        done = {
            key: {"localizations": {"es": {"stringUnit": {"state": "needs_review", "value": value}}}}
            for key, value in values.items()
        }
        strings = {key: done.get(key, {}) for key in keys}
        return json.dumps({"sourceLanguage": "en", "strings": strings, "version": "1.0"})

    def read() -> dict[str, str]:
        strings = json.loads((tmp_path / "out.xcstrings").read_text())["strings"]
        return {key: one["localizations"]["es"]["stringUnit"]["value"] for key, one in strings.items()}

    source = tmp_path / "in.xcstrings"
    both = f"input={source}", f"output={tmp_path / 'out.xcstrings'}", "target_language=es"
    source.write_text(catalog("cat", "dog"))
    assert translate_files(*both)[0] == 0
    assert read() == {"cat": "CAT", "dog": "DOG"}
    (tmp_path / "out.xcstrings").write_text(catalog("cat", "dog", cat="gato", dog="DOG"))
    source.write_text(catalog("cat", "dog", "tree"))
    code, _, err = translate_files(*both, "update=true")
    assert code == 0, err
    assert read() == {"cat": "gato", "dog": "DOG", "tree": "TREE"}
