"""Faults of segments, by hand."""

from __future__ import annotations

import pytest

from scaleformer.data.quality import checks
from scaleformer.data.quality.checks import BITS, UNSURE_BIT, SegmentChecks
from scaleformer.data.quality.config import FilterConfig

ALL = FilterConfig(usual=True).active()
ENGLISH = "The quick brown fox jumps over the lazy dog and runs away into the deep dark forest."
SPANISH = "El rápido zorro marrón salta por encima del perro perezoso y huye al bosque oscuro."
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund und läuft davon in den tiefen Wald."


def names(source: str, target: str, **changes: object) -> set[str]:
    """The faults of a pair between two good ones."""
    checks = SegmentChecks({**ALL, **changes}, [[ENGLISH], [SPANISH]], ("en", "es"), everything=True)
    faults, _ = checks.document([(ENGLISH, SPANISH), (source, target), (ENGLISH, SPANISH)])
    assert not faults[0] & ~UNSURE_BIT
    return {name for name, bit in BITS.items() if faults[1] & bit}


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        (ENGLISH, SPANISH, set()),
        ("Open the box.", " ", {"empty"}),
        ("Guido van  Rossum", "Guido van Rossum", {"copies"}),
        ("`copy(a, b)`", "`copy(a, b)`", set()),  # code is of no language
        (ENGLISH, ENGLISH, {"copies", "language"}),
        (ENGLISH, "Быстрая лиса прыгает через ленивую собаку", {"script"}),
        ("Close it.", "CiÃ©rrelo.", {"mojibake"}),
        ("It’s “here”", "«AQUÍ», ¿NÃO?", set()),  # letters that only look like it
        ("Yes.", "Sí, por supuesto, con mucho gusto y cuando quiera.", {"ratio"}),
        ("Wait 10 minutes.", "Espere 12 minutos.", {"numbers"}),
        ("It has 1,234 pages.", "Tiene 1.234 páginas.", set()),
        ("See https://a.org now.", "Vea https://b.org ya.", {"URLs"}),
        ("A <b>big</b> box", "Una caja grande", {"tags"}),
        ("Hello %s there", "Hola", {"placeholders"}),
    ],
)
def test_faults_of_a_segment(source: str, target: str, wanted: set[str]) -> None:
    assert names(source, target) == wanted


def test_only_filters_that_are_on_look() -> None:
    checks = SegmentChecks({"ratio": 2.0}, [[], []], ("en", "es"))
    faults, _ = checks.document([(ENGLISH, "Sí."), (ENGLISH, ENGLISH), ("", "x")])
    assert faults == [BITS["ratio"], 0, 0]


def test_a_document_in_another_language_is_told_from_short_segments() -> None:
    checks = SegmentChecks({"language": True}, [[], []], ("en", "es"))
    short = [(f"{one} {two}", "Der Hund läuft heute nicht.") for one, two in zip("abcdef", "ghijkl", strict=True)]
    faults, spoken = checks.document(short)
    assert [found & ~UNSURE_BIT for found in faults] == [BITS["language"]] * 6
    assert spoken == ("en", "de")


def test_another_language_between_good_segments() -> None:
    assert names(ENGLISH, GERMAN + " " + GERMAN + " " + GERMAN) == {"language"}


def test_a_short_text_in_another_language_is_only_suspected() -> None:
    checks = SegmentChecks({"language": True}, [[], []], ("en", "es"))
    faults, _ = checks.document(
        [(ENGLISH, SPANISH), ("The dog runs away from the house.", "Der Hund läuft aus dem Haus weg.")]
    )
    assert faults == [0, UNSURE_BIT]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        *(
            (t, False)
            for t in ("La letra «Ñ» es", "of 20 Å³ was", "“Ñ”", "»JYVÄSKYLÄ»", "10 Å\u00a0", "ESPAÑ…", "(Å²)")
        ),
        *(
            (t, True)
            for t in ("vaikÅ³ ir", "Ä»oti labi", "Ñ‚ÐµÑ\x81Ñ‚", "Ð²Ñ‹", "aÃ±o", "cafÃ© ", "Â» x", "Å\u00a0koda x")
        ),
    ],
)
def test_letters_before_closing_marks_are_no_mojibake(text: str, broken: bool) -> None:
    assert (checks._MOJIBAKE.search(text) is not None) is broken


def test_an_unknown_language_is_named(caplog: pytest.LogCaptureFixture) -> None:
    SegmentChecks({"language": True}, [[], []], ["eng", "es"])
    assert caplog.messages == ["the language filter cannot tell 'eng' from others: nothing of that side is left out"]
