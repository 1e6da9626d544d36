"""Terms in texts, by hand."""

from __future__ import annotations

import pytest

from scaleformer.text.terms import Term, find_terms, make_terms


def found(text: str, **forms: str) -> list[str]:
    return [text[match.start : match.stop] for match in find_terms(text, make_terms(forms))]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("file", "Files, a FILE, the file's profile, filed; refile filet", ["Files", "FILE", "file", "filed"]),
        ("compile", "It compiles while compiling what compiled; compiler", ["compiles", "compiling", "compiled"]),
        ("files", "one file, filing", ["file", "filing"]),
        ("copy", "copies copied copying copy", ["copies", "copied", "copying", "copy"]),
        ("copies", "a copy", ["copy"]),
        ("process", "the processes of a processor", ["processes"]),
        ("run", "run runs running runner", ["run", "runs", "running"]),
        ("go", "go goes gos", ["go"]),
        ("string", "strs and strings", ["strings"]),
        ("source file", "Source  files and source, file", ["Source  files"]),
        ("C++", "C++ and C++x", ["C++"]),
        ("STRASSE", "Straße, Straßen", ["Straße"]),
        ("東京", "在東京都", ["東京"]),
        ("kernel", "新しいkernelsをkernel。", ["kernels", "kernel"]),
        ("l'eau", "L\u2019eau de l\u02bceau", ["L\u2019eau", "l\u02bceau"]),
        ("l\u2019eau", "l'eau", ["l'eau"]),
        ("e-mail", "an e\u2011mail, e\u2010mail", ["e\u2011mail", "e\u2010mail"]),
        ("caf\u00e9", "cafe\u0301, Cafe\u0301s", ["cafe\u0301", "Cafe\u0301s"]),
        ("cafe\u0301", "caf\u00e9", ["caf\u00e9"]),
        ("\ud55c\uad6d", "\u1112\u1161\u11ab\u1100\u116e\u11a8", ["\u1112\u1161\u11ab\u1100\u116e\u11a8"]),
        ("kernel panic", "A ker\u00adnel pa\u00adnic\u200b.", ["ker\u00adnel pa\u00adnic"]),
        ("kernel panic", "**kernel** panic, ⟨1⟩kernel⟨2⟩ panics", ["kernel** panic", "kernel⟨2⟩ panics"]),
        ("kernel panic", "a <b>kernel</b> *panic*", ["kernel</b> *panic"]),
        ("kernel panic", "[kernel](a/b) panic; kernel ⟨1⟩ panic, kernel_panic", ["kernel](a/b) panic"]),
        ("kernel", "_kernel_ and kernel⟨1⟩x", ["kernel", "kernel"]),
        ("__init__", "the __init__ of init", ["__init__"]),
        ("max_len", "**max_len** max\u2011len", ["max_len"]),
        ("/colou?rs?/", "color, Colours", ["color", "Colours"]),
        ("/(?-i:API)/", "API api", ["API"]),
        ("/x*/", "a xx", ["xx"]),
    ],
)
def test_a_source_form_is_found_with_its_endings(form: str, text: str, expected: list[str]) -> None:
    assert found(text, **{form: "t"}) == expected


def test_of_overlapping_terms_the_first_and_longest_wins() -> None:
    terms = make_terms({"file": "fichero", "source file": "fuente", "file system": "sistema", "SOURCE": "origen"})
    text = "source file system, file system, sources"
    assert [(text[m.start : m.stop], m.term.target) for m in find_terms(text, terms)] == [
        ("source file", "fuente"),
        ("file system", "sistema"),
        ("sources", "origen"),
    ]


@pytest.mark.parametrize(
    ("language", "form", "text", "expected"),
    [
        ("de-AT", "STRASSE", "Straße, Straßen", ["Straße", "Straßen"]),
        ("de", "Haus", "Häuser, Hauses; Hausherr, häuslich", ["Häuser", "Hauses"]),
        ("es", "archivo de texto", "los Archivos de textos; archivador de texto", ["Archivos de textos"]),
        ("es", "opción", "opciones, opcional", ["opciones"]),
        ("en", "opción", "opciones", []),
        ("ru", "файл", "файлы файлов файловый", ["файлы", "файлов"]),
        ("en", "import", "imported important importance importer", ["imported"]),
        ("sk", "file", "files", ["files"]),  # a language without a stemmer
        ("en", "data date", "datum data dates", ["data dates"]),
    ],
)
def test_endings_are_those_of_the_language(language: str, form: str, text: str, expected: list[str]) -> None:
    term = Term(form, form, (language, language))
    assert [text[match.start : match.stop] for match in find_terms(text, [term])] == expected
    assert term.count(text) == len(expected)


def test_a_target_form_counts_with_its_endings() -> None:
    assert Term("a", "núcleo").count("Núcleo núcleos nuclear núcleo-x") == 3
    assert Term("a", "la la").count("la la la la la") == 2


def test_target_forms_are_counted_as_they_are_found() -> None:
    assert Term("a", "l'\u00e9tat du noyau").count("L\u2019e\u0301tat du **noyau**, l'\u00e9tat de noyau") == 1
    assert Term("a", "*x*").count("x *x*") == 1


def test_terms_of_prose_are_not_found_in_code_and_quotations() -> None:
    text = 'the file `file` “a file” "file" «file, file» files'
    for prose, expected in ((True, [4, 45]), (False, [4, 10, 19, 26, 33, 39, 45])):
        assert [match.start for match in find_terms(text, make_terms({"file": "x"}, prose=prose))] == expected
    both = (*make_terms({"file": "x"}), *make_terms({"file": "y"}, prose=True))
    assert {match.term.target for match in find_terms(text, both)} == {"x"}


@pytest.mark.parametrize("part", ["*", "* ", "a*", "*a", "<a ", "[", "](", "⟨1⟩", "`a", "_"])
def test_marks_take_linear_time(part: str) -> None:
    assert find_terms(part * 20_000, make_terms({"kernel panic": "x"})) == []


@pytest.mark.parametrize(
    ("forms", "message"),
    [
        (("", "x"), "the source form '' of a term is not text: wanted one or several words"),
        (("x", " "), "the target form ' ' of a term is not text"),
        (("x", "/y/"), "the target form '/y/' of a term is an expression: wanted text to write"),
        (("/(/", "y"), r"the source form '/\(/' of a term is not a valid expression: missing \)"),
        (("x", "\ud800"), "lone surrogate"),
    ],
)
def test_an_invalid_term_gives_one_line(forms: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Term(*forms)


def test_a_slow_expression_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.text.terms.SECONDS", 0.01)
    with pytest.raises(ValueError, match="takes too long: simplify it"):
        find_terms("a" * 50_000, [Term("/(a|aa)+$b/", "x")])
