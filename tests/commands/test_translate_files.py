"""Files and folders through the command, with an untrained model: structure, names, and one-line errors."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

from scaleformer.system.errors import DataError
from scaleformer.translation.files import translating
from scaleformer.translation.files.documents import ProseFile
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from tests.books import book
from tests.commands.calls import error_line
from tests.formats.pages import page, structure

PAGE = "<p>the <b>cat</b> sees <code>it()</code></p>\n"


@pytest.fixture
def identity(monkeypatch):
    """A model that copies its source."""

    def documents(self, request, listener, begun=()):
        found = [Translation((DocumentHypothesis(tuple(s), 0.0, 0.0, True),), len(s), 1) for s in request.documents]
        for translation in found[len(begun) :]:
            listener.finished(translation)
        return found

    monkeypatch.setattr(Translator, "translate_documents", documents)


def tree(folder: Path, pages: int = 30) -> Path:
    """A manual of several pages of Markdown, with a page of HTML, subtitles, a text and a picture."""
    for number in range(pages):
        path = folder / f"chapter{number % 4}" / f"page{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page(number).encode())
    (folder / "index.html").write_text(PAGE)
    (folder / "talk.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nThe cat sees.\n\n")
    (folder / "book.epub").write_bytes(book())
    (folder / "notes.txt").write_text("the cat sees\n\nit runs\n")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.md").write_text("left out")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tree_through_an_identity_is_the_same_bytes(identity, translate_files, tmp_path):
    source = tree(tmp_path / "en")
    code, out, err = translate_files(f"input={source}", f"output={tmp_path / 'es'}")
    assert (code, out) == (0, "")
    wanted = {name: content for name, content in files(source).items() if not name.endswith((".png", ".hidden.md"))}
    assert files(tmp_path / "es") == wanted
    assert "34 files" in err


def test_a_tree_through_a_model_keeps_its_structure(translate_files, tmp_path):
    """Every code span, address and placeholder once; the same headings, lists, cells and links."""
    source = tree(tmp_path / "en", pages=3)
    code, _, err = translate_files(f"input={source}", f"output={tmp_path / 'es'}")
    assert code == 0, err
    changed = 0
    for number in range(3):
        name = Path(f"chapter{number}") / f"page{number}.md"
        text, found = ((folder / name).read_bytes().decode() for folder in (source, tmp_path / "es"))
        assert structure(found) == structure(text)
        for kept in (
            r"https?://[\w./?=&#-]+",
            r"%s",
            r"%\(name\)s",
            r"\{name\}",
            r"v2\.10\.3",
            r"\{\{ site\.title \}\}",
        ):
            counts = [len(re.findall(kept, re.sub(r"\s+", " ", written))) for written in (found, text)]
            assert counts[0] == counts[1], kept
        changed += found != text
    assert changed == 3
    index = (tmp_path / "es" / "index.html").read_text()
    assert index.count("<code>it()</code>") == 1
    assert re.search(r"<b>[^<>]+</b>", index)


def test_files_by_pattern_and_into_a_folder(identity, translate_files, tmp_path):
    (tmp_path / "a.md").write_text("# The cat")
    (tmp_path / "b.txt").write_text("The cat sees. It runs.\n")
    code, _, err = translate_files(
        f"input=[{tmp_path}/a.md,{tmp_path}/b.txt]", f"output={tmp_path}/out", "split=sentence"
    )
    assert code == 0, err
    assert files(tmp_path / "out") == {"a.md": b"# The cat", "b.txt": b"The cat sees. It runs.\n"}
    assert translate_files(f"input={tmp_path}/a.md", f"output={tmp_path}/a.es.md")[0] == 0
    assert (tmp_path / "a.es.md").read_text() == "# The cat"


def test_omitted_and_misplaced_parts_are_reported(translate_files, tmp_path, caplog):
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "a.md").write_text("the `cat` sees *it* and\n")
    (tmp_path / "en" / "b.pdf").write_bytes(b"%PDF-1.7")
    code, _, err = translate_files(f"input={tmp_path / 'en'}", f"output={tmp_path / 'es'}")
    assert code == 0, err
    assert "1 of other formats skipped: 1 .pdf" in caplog.text
    assert "trained without data.mask_spans" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["input=en", "output=en"], "would be overwritten by its translation"),
        (["input=en/a.md", "output=en/a.md"], "would be overwritten by its translation"),
        (["input=en/a.md", "output=a.docx"], "a translation keeps the format of its source"),
        (["input=[en/a.md,en/sub/a.md]", "output=out"], "two files have this name"),
        (["input=[en/a.md,nowhere.md]", "output=out"], "nowhere.md: no such file or folder"),
        (["input=empty", "output=out"], "nothing to translate (no files)"),
        (["input=pictures", "output=out"], "nothing to translate (1 .png)"),
        (["input=bad", "output=out"], "bad/a.md:1: not UTF-8"),
        (["input=en/a.md", "output=nowhere/a.md"], "there is no folder nowhere"),
        (["input=en", "output=nowhere/es"], "there is no folder nowhere"),
        (["input=packed.md.gz", "output=out.md"], "packed.md.gz: is compressed: unpack it first"),
        (["input=en", "output=out", "decoding=beam", "decoding.n_best=2"], "a file holds one translation"),
        (["input=en", "output=out", "boundaries=blank"], "boundaries=blank: for lines of text"),
        (["input=en", "output=out", "split=word"], "split is 'word': it must be one of auto, sentence, paragraph"),
        (["input=en", "output=out", "source_language=null"], "set source_language=en, or split=paragraph"),
    ],
)
def test_errors_are_one_line(translate_files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for folder in ("en/sub", "empty", "pictures", "bad"):
        Path(folder).mkdir(parents=True)
    for name in ("en/a.md", "en/sub/a.md"):
        Path(name).write_text("# The cat")
    Path("pictures/a.png").write_bytes(b"\x89PNG")
    Path("bad/a.md").write_bytes(b"caf\xe9")
    Path("packed.md.gz").write_bytes(gzip.compress(b"# The cat"))
    before = files(tmp_path)
    assert message in error_line(translate_files(*arguments))
    assert files(tmp_path) == before


def test_a_bad_file_does_not_stop_the_others(identity, translate_files, tmp_path, caplog):
    source, output = tmp_path / "in", tmp_path / "es"
    source.mkdir()
    (source / "a.md").write_text("# The cat")
    (source / "b.srt").write_text("1\nThe cat sees.\n")
    (source / "c.md").write_bytes(b"caf\xe9")
    (source / "package.json").write_text('{"name": "cat"}')
    code, _, err = translate_files(f"input={source}", f"output={output}")
    assert code == 1
    assert f"error: 2 of 3 files were not translated, for the reasons above: {source}/b.srt, {source}/c.md" in err
    assert "b.srt:2: 'The cat sees.': wanted times" in caplog.text
    assert "c.md:1: not UTF-8" in caplog.text
    assert "1 of other formats skipped: 1 .json, a single JSON value" in caplog.text
    assert files(output) == {"a.md": b"# The cat"}
    assert not list(tmp_path.glob("*.part"))
    (source / "c.md").write_text("It runs.")
    (source / "b.srt").unlink()
    assert translate_files(f"input={source}", f"output={output}")[0] == 0
    assert files(output) == {"a.md": b"# The cat", "c.md": b"It runs."}


def test_finished_files_are_kept(identity, translate_files, tmp_path, caplog):
    source = tree(tmp_path / "en", pages=2)
    first = translate_files(f"input={source}", f"output={tmp_path / 'es'}")
    assert first[0] == 0, first[2]
    (tmp_path / "es" / "notes.txt").write_text("corregido\n")
    (tmp_path / "es" / "index.html").unlink()
    caplog.clear()
    code, _, err = translate_files(f"input={source}", f"output={tmp_path / 'es'}")
    assert code == 0, err
    assert "5 translations exist and are kept: overwrite=true replaces them" in caplog.text
    assert "1 file, " in err
    assert (tmp_path / "es" / "notes.txt").read_text() == "corregido\n"
    assert (tmp_path / "es" / "index.html").read_text() == PAGE
    assert translate_files(f"input={source}", f"output={tmp_path / 'es'}", "overwrite=true")[0] == 0
    assert (tmp_path / "es" / "notes.txt").read_text() == (source / "notes.txt").read_text()
    for name in ("page0.md", "notes.txt"):
        place = next(source.rglob(name))
        output = tmp_path / f"out-{name}"
        output.write_text("corregido\n")
        result = translate_files(f"input={place}", f"output={output}")
        assert f"{output}: exists and may have been corrected: overwrite=true replaces it" in error_line(result)
        assert output.read_text() == "corregido\n"
        assert translate_files(f"input={place}", f"output={output}", "overwrite=true")[0] == 0
        assert output.read_bytes() == place.read_bytes()


def test_a_call_that_was_broken_off_while_it_wrote_goes_on(identity, translate_files, tmp_path, monkeypatch):
    """Its own files are in the way as any, but the documents in the .part are not translated again."""
    source, output = tmp_path / "in", tmp_path / "es"
    source.mkdir()
    for name in "abcd":
        (source / f"{name}.md").write_text(f"# The cat {name}")
    output.mkdir()
    (output / "a.md").write_text("# El gato")
    os.utime(output / "a.md", (1, 1))
    write = translating.replaced

    def broken(path):
        if path.name == "c.md":
            raise KeyboardInterrupt
        return write(path)

    with monkeypatch.context() as patch:
        patch.setattr(translating, "replaced", broken)
        assert translate_files(f"input={source}", f"output={output}")[0] == 130
    assert sorted(files(output)) == ["a.md", "b.md"]
    (output / "b.md").write_text("# corregido")
    code, _, err = translate_files(f"input={source}", f"output={output}")
    assert code == 0, err
    assert "resuming: 3 of 3 documents" in err
    wanted = {"a.md": b"# El gato", "b.md": b"# corregido", "c.md": b"# The cat c", "d.md": b"# The cat d"}
    assert files(output) == wanted
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("several", [False, True])
def test_plain_text_keeps_all_but_its_prose(translate_files, tmp_path, several):
    content = "\ufeff  the cat sees https://a.org/b in v1.2.3\r\n\r\n\t42\r\n  it runs".encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.txt").write_bytes(b"")
    given = f"[{tmp_path}/a.txt,{tmp_path}/b.txt]" if several else tmp_path / "a.txt"
    output = tmp_path / "out" / ("" if several else "a.txt")
    (tmp_path / "out").mkdir()
    assert translate_files(f"input={given}", f"output={output}", "source_language=null")[0] == 0
    found = (tmp_path / "out" / "a.txt").read_bytes().decode()
    assert re.fullmatch(r"\ufeff  \S[^\r\n]*\r\n\r\n\t42\r\n  \S[^\r\n]*", found)
    assert found.count("https://a.org/b") == found.count("v1.2.3") == 1
    assert several == (tmp_path / "out" / "b.txt").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.ppt",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "an old Office file (save it as docx, pptx, xlsx) cannot be translated",
        ),
        ("a.php", b"a = b\n", "PHP (`php2po` makes PO of its arrays) cannot be translated"),
        (
            "a.json",
            b'{"a": 3}',
            "a.json: cannot be read as a single JSON value (`jq -c` makes JSON Lines): a is 3, not",
        ),
        ("a.pdf", b"%PDF-1.5", "a PDF (`pdftotext` makes text of it) cannot be translated"),
        ("a.tmx", b"<tmx/>", "a translation memory (TMX) cannot be translated: `scaleformer prepare format=tmx`"),
        ("a.xyz", b"a = b\n", "a file of unknown format (.xyz) cannot be translated: if each line is text, name it"),
    ],
)
def test_what_is_not_read_is_refused_alike(identity, translate_files, tmp_path, caplog, name, content, message):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "a.md").write_text("# The cat")
    assert message in error_line(translate_files(f"input={tmp_path / name}", f"output={tmp_path / 'b'}"))
    assert translate_files(f"input=[{tmp_path / name},{tmp_path}/a.md]", f"output={tmp_path / 'out'}")[0] == 1
    assert message in caplog.text
    assert files(tmp_path / "out") == {"a.md": b"# The cat"}
    if name.endswith(("xyz", "php")):
        assert translate_files(f"input={tmp_path / name}", f"output={tmp_path / 'b'}", "format=text")[0] == 0


def test_a_file_that_cannot_be_written_does_not_stop_the_others(monkeypatch, translate_files, tmp_path, caplog):
    def write(self, translations, counts):
        if self._name.endswith("a.md"):
            raise DataError(f"{self._name}:5: its encoding lacks a character")
        return real(self, translations, counts)

    real = ProseFile.write
    monkeypatch.setattr(ProseFile, "write", write)
    (tmp_path / "in").mkdir()
    for name in ("a.md", "b.md"):
        (tmp_path / "in" / name).write_text("# The cat")
    code, _, err = translate_files(f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}")
    assert code == 1
    assert f"1 of 2 files were not translated, for the reasons above: {tmp_path}/in/a.md" in err
    assert "a.md:5: its encoding lacks a character" in caplog.text
    assert list(files(tmp_path / "out")) == ["b.md"]


def test_files_that_are_not_to_be_replaced(translate_files, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.md").write_text("# The cat")
    (tmp_path / "b.md").write_text("mine")
    (tmp_path / "out.md.part").write_text("not ours\n")
    before = files(tmp_path)
    source = tmp_path / "in" / "a.md"
    for arguments, message in (
        ((f"input={tmp_path / 'in'}", f"output={tmp_path / 'b.md'}"), "b.md: is a file: several translations need a"),
        ((f"input={source}", f"output={tmp_path / 'c.md'}", f"term_report={source}"), "would replace a file that"),
        ((f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}", f"review={source}"), "would replace a file that"),
        ((f"input={source}", f"output={tmp_path / 'out.md'}"), "out.md.part: is no unfinished translation: move it"),
    ):
        code, _, err = translate_files(*arguments)
        assert (code, message in err.splitlines()[-1]) == (1, True)
        assert files(tmp_path) == before
