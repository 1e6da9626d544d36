"""Corrections by hand in the other formats that `translate` updates, with their sources in the same file or not."""

from __future__ import annotations

import pytest

from tests.commands.calls import error_line


def test_other_formats(words, tmp_path, translate_files, caplog):
    files = {
        "a.html": (b"<p>the <b>cat</b> sees</p><p>it runs</p>", b"SEES", b"VE"),
        "a.srt": (b"1\n00:00:01,000 --> 00:00:02,000\nthe cat\n\n", b"CAT", b"GATO"),
        "a.txt": (b"the cat\nit runs\n", b"RUNS", b"CORRE"),
    }
    for name, (content, text, correction) in files.items():
        (tmp_path / name).write_bytes(content)
        arguments = f"input={tmp_path / name}", f"output={tmp_path / ('es-' + name)}"
        assert translate_files(*arguments)[0] == 0
        output = tmp_path / f"es-{name}"
        corrected = output.read_bytes().replace(text, correction)
        output.write_bytes(corrected)
        code, _, err = translate_files(*arguments, "update=true")
        assert (code, "1 correction by hand kept" in err) == (0, True), name
        assert output.read_bytes() == corrected


PO = """msgid "the cat"
msgstr "el gato"

msgid "it runs"
msgstr ""

#, python-format
msgid "a %(name)s sees %s"
msgstr ""
"""
XLIFF = """<xliff version="1.2"><file source-language="en" target-language="es" original="a"><body>
<trans-unit id="1"><source>the cat</source><target state="translated">el gato</target></trans-unit>
<trans-unit id="2"><source>it runs</source></trans-unit>
<trans-unit id="3"><source>a <x id="1"/> sees <x id="2"/></source></trans-unit>
</body></file></xliff>
"""
LINES = '{"id": "a", "source": ["the cat", "it runs"]}\n{"id": "b", "source": ["a dog sees"]}\n'
CATALOGUES = {
    "a.po": (PO, 'msgid "a dog"\nmsgstr ""\n\n', [("IT RUNS", "corre"), ("A %(name)s SEES %s", "un %(name)s ve %s")]),
    "a.xlf": (
        XLIFF,
        '<trans-unit id="9"><source>a dog</source></trans-unit>',
        [("IT RUNS", "corre"), ('A <x id="1"/> SEES <x id="2"/>', 'un <x id="1"/> ve <x id="2"/>')],
    ),
    "a.jsonl": (LINES, '{"id": "c", "source": ["a dog"]}\n', [("IT RUNS", "corre"), ("A DOG SEES", "un perro ve")]),
}


@pytest.mark.parametrize("name", CATALOGUES)
def test_corrections_beside_their_sources_are_told(words, tmp_path, translate_files, caplog, name):
    text, added, corrections = CATALOGUES[name]
    source, output = tmp_path / "en" / name, tmp_path / "es" / name
    source.parent.mkdir()
    source.write_text(text)
    arguments = f"input={source.parent}", f"output={output.parent}"
    assert translate_files(*arguments)[0] == 0
    translated = corrected = output.read_text()
    for before, after in corrections:
        assert before in corrected
        corrected = corrected.replace(before, after)
    output.write_text(corrected)
    code, _, err = translate_files(*arguments, "update=true")
    assert (code, "update: 2 corrections by hand kept" in err) == (0, True), err
    assert output.read_text() == corrected
    place = {"a.po": 0, "a.xlf": text.find("<trans-unit"), "a.jsonl": len(text)}[name]
    source.write_text(text[:place] + added + text[place:])
    code, _, err = translate_files(*arguments, "update=true")
    assert (code, "update: 2 corrections by hand kept" in err) == (0, True), err
    found = output.read_text()
    assert "A DOG" in found
    assert all(after in found and before not in found for before, after in corrections)
    assert translate_files(*arguments, "update=true", "edits=discard")[0] == 0
    assert "2 corrections by hand are discarded" in caplog.text
    assert all(before in output.read_text() for before, _ in corrections)
    assert translated.strip().splitlines()[-1] in output.read_text()
    assert not list(output.parent.glob("*.edited*"))


def test_an_edited_file_that_cannot_be_read_stays(words, tmp_path, translate_files):
    source, output = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text(PO)
    arguments = f"input={source}", f"output={output}", "update=true"
    assert translate_files(*arguments)[0] == 0
    output.write_text("msgid el gato\n")
    found = error_line(translate_files(*arguments))
    assert "b.po:1:" in found
    assert "edits=discard replaces this translation" in found
    assert output.read_text() == "msgid el gato\n"
    assert translate_files(*arguments, "edits=discard")[0] == 0
    assert "IT RUNS" in output.read_text()
