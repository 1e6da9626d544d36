"""Two folders become a corpus: every omission counted, filters by reason, a page to inspect."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.align.pipeline import Match, alignment_page
from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_report import PrepareReport
from scaleformer.data.quality.checks import BITS, DOUBTFUL, SegmentChecks
from scaleformer.data.quality.config import RAW
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.commands.calls import Benchmark

ENGLISH = """# Machine 12

Open valve V3 and wait 10 minutes. Close valve V4 at 80 °C. The meter M2 shows 55 bar.

```
run 12
```

Call 0800 123 for help.
"""
SPANISH = """# Máquina 12

Abra la válvula V3, espere 10 minutos y cierre la válvula V4 a 80 °C. El medidor M2 muestra
55 bar. ¡Gracias por comprar esta magnífica máquina!

Llame al 0800 123 para pedir ayuda.
"""


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name, text in {
        "en/guide/machine.en.md": ENGLISH,
        "es/guide/machine.es.md": SPANISH,
        "en/alone.txt": "No one.",
        "en/empty.txt": "",
        "es/empty.txt": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *more: str, **other: Any) -> tuple[list[Document], PrepareReport]:
    given = ["format=raw", "source_language=en", "target_language=es", f"output={folder / 'out'}", "valid=0", "test=0"]
    files = [f"source={folder / 'en'}", f"target={folder / 'es'}"]
    given += [*more] if any(option.startswith("input=") for option in more) else [*files, *more]
    report = prepare(Benchmark("prepare").read(given), **other)
    return list(read_jsonl(folder / "out" / "train.jsonl.gz")), report


def test_two_folders(folders: Path) -> None:
    (document,), report = run(folders)
    assert document.id == "guide/machine"
    assert document.source[:2] == ("Machine 12", "Open valve V3 and wait 10 minutes.")
    assert document.beads == ((1, 1), (2, 1), (1, 1), (0, 1), (1, 1))
    assert report.beads == {"1-1": 3, "2-1": 1, "0-1": 1}
    assert report.dropped_segments == {"blocks of code": 1}
    assert report.dropped_documents == {"files without a partner": 1, "no text on a side": 1}
    assert json.loads((folders / "out" / "report.json").read_text())["beads"] == report.beads
    page = (folders / "out" / "alignment.html").read_text(encoding="utf-8")
    assert "Text without a partner" in page
    assert "<script" not in page


def test_names_are_pairs_however_they_are_encoded(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    """macOS writes e and an accent, others one letter. What is not read, and links to folders, are named."""
    for side, form, text in (("en", "NFC", "Open valve V3."), ("es", "NFD", "Abra la válvula V3.")):
        name = unicodedata.normalize(form, "café.txt")
        (folders / side / name).write_text(text, encoding="utf-8")
        (folders / side / "page.rtf").write_bytes(b"{")
        (folders / side / "link").symlink_to(folders / side / "guide")
    documents, _ = run(folders)
    assert [document.id for document in documents] == ["café", "guide/machine"]
    assert "1 .rtf, rich text (save it as docx" in caplog.text
    assert caplog.text.count("a link to a folder, which is not followed") == 2


def test_the_samples(tmp_path: Path) -> None:
    """The command of docs/data-formats.md."""
    samples = Path(__file__).parents[3] / "data" / "samples" / "raw"
    (document,), report = run(tmp_path, f"source={samples / 'en'}", f"target={samples / 'es'}")
    assert document.id == "tea"
    assert document.beads == ((1, 1), (2, 1), (1, 1), (0, 1), (1, 1), (1, 1), (1, 1))
    assert not report.dropped_segments + report.dropped_documents


def test_text_without_a_partner_is_dropped(folders: Path) -> None:
    (document,), report = run(folders, "unmatched=drop")
    assert document.beads == ((1, 1), (2, 1), (1, 1), (1, 1))
    assert report.dropped_segments == {"blocks of code": 1, "unmatched": 1}


@pytest.mark.parametrize("unmatched", ["keep", "drop"])
def test_beads_with_low_confidence(folders: Path, unmatched: str) -> None:
    (folders / "es/guide/machine.es.md").write_text(SPANISH.replace("Llame al 0800 123 para pedir ayuda", "Hoy llueve"))
    (document,), report = run(folders, "min_confidence=0.5", f"unmatched={unmatched}")
    assert ("Call 0800 123 for help." in document.source) == (unmatched == "keep")
    assert ("Call 0800 123 for help.",) not in [source for source, target in document.parts() if target]
    assert ("confidence" in report.dropped_segments) == (unmatched == "drop")


def test_a_list_of_pairs(folders: Path) -> None:
    (folders / "pairs.tsv").write_text("en/guide/machine.en.md\tes/guide/machine.es.md\n")
    documents, _ = run(folders, f"input={folders / 'pairs.tsv'}", "split=paragraph")
    assert [(d.id, len(d.source)) for d in documents] == [("en/guide/machine.en", 3)]


def test_a_models_translation_is_aligned(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source shares nothing with the target: the model alone tells where it belongs."""
    words = ["uno dos tres cuatro", "cinco seis siete ocho", "nueve diez once doce"]
    for name, lines in {
        "en": ["aaaa bbbb cccc dddd", "eeee ffff gggg hhhh"],
        "es": [words[1], words[2], words[0]],
    }.items():
        (folders / name / "empty.txt").write_text("\n".join(lines))
        (folders / name / "guide").rename(folders / f"{name}-guide")
    asked: list[Any] = []

    class Model:
        def translate(self, documents: Any) -> list[list[str]]:
            asked.extend(documents)
            return [[words[2], words[0]]]

    monkeypatch.setattr("scaleformer.translation.translator.Translator.load", lambda path: Model())
    options = ["format=raw", "source_language=en", "target_language=es", "valid=0", "test=0", "split=none"]
    options += ["aligner=translation", "checkpoint=run", f"source={folders / 'en'}", f"target={folders / 'es'}"]
    Benchmark("prepare").main([*options, f"output={folders / 'out'}"])
    (document,) = read_jsonl(folders / "out" / "train.jsonl.gz")
    assert [list(part) for part in asked] == [["aaaa bbbb cccc dddd", "eeee ffff gggg hhhh"]]
    assert document.beads == ((0, 1), (1, 1), (1, 1))


def checked(filters: tuple[str, ...], sides: list[list[str]], languages: tuple[str, str]) -> Any:
    checks = SegmentChecks(dict.fromkeys(filters, True), sides, languages)

    def check(source: str, target: str) -> str:
        (found,), _ = checks.document([(source, target)])
        return next((name for name, bit in BITS.items() if found & bit), "")

    return check


def test_filters() -> None:
    english = "This sentence was written in English, and it is long enough that its language can be told."
    spanish = "Esta frase fue escrita en español, y es bastante larga para que se pueda reconocer su idioma."
    check = checked(RAW, [[english], [spanish]], ("en", "es"))
    assert check(english, spanish) == ""
    assert check(english, english) == "language"
    assert check("Short.", "Short.") == ""
    assert check(english, "Это предложение написано по-русски.") == "script"
    assert check(english, "sí y no " * 10) == "repetition"
    assert check("yes and no " * 10, "sí y no " * 10) == ""
    assert checked((), [[english], [spanish]], ("en", "es"))(english, english) == ""
    assert checked(RAW, [[english], [english]], ("en", "tlh"))(english, english) == ""


def test_markup_is_of_no_language() -> None:
    spanish = "Use [la opción de guardar](https://www.example.org/the/saving/of/your/own/files.html) aquí."
    spanish += " `with open(the_name_of_your_file) as file: write all of this to the file`"
    english = spanish.replace("la opción de guardar", "the save option").replace("aquí", "here")
    check = checked(RAW, [[english], [spanish]], ("en", "es"))
    assert check(english, spanish) == ""


def test_a_short_segment_of_a_third_language_between_kept_ones_stays() -> None:
    reasons = {"a": [], "b": [DOUBTFUL], "c": [DOUBTFUL], "d": ["script"]}

    class Told(SegmentChecks):
        def faults(self, part: Any, sides: Any) -> list[str]:
            return reasons[part[0]]

    def fates(texts: str) -> list[str]:
        found, _ = Told({}, [[], []], ("", "")).document([(text, text) for text in texts])
        return [next((name for name, bit in BITS.items() if bits & bit), "kept") for bits in found]

    assert fates("aba") == ["kept", "kept", "kept"]
    assert fates("abcad") == ["kept", "language", "language", "kept", "script"]
    assert fates("ba") == ["language", "kept"]
    assert fates("abd") == ["kept", "language", "script"]


def test_exchanged_sides_are_refused(folders: Path) -> None:
    english = "This sentence was written in English, and it is long enough that its language can be told."
    spanish = "Esta frase fue escrita en español, y es bastante larga para que se pueda reconocer su idioma."
    (folders / "en/empty.txt").write_text(f"{spanish}\n" * 3)
    (folders / "es/empty.txt").write_text(f"{english}\n" * 3)
    (folders / "en/guide/machine.en.md").unlink()
    with pytest.raises(DataError, match="sources are es, and their targets en: exchange source and target"):
        run(folders, "split=none")


def test_what_is_left_out_is_named(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folders, "unmatched=drop")
    (line,) = (folders / "out/left_out.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = {"document": "guide/machine", "reason": "unmatched", "source": ""}
    assert json.loads(line) == {**wanted, "target": "¡Gracias por comprar esta magnífica máquina!"}
    assert f"{folders / 'en/alone.txt'}: no partner in the other folder: left out" in caplog.text


def test_a_side_that_is_not_translated_is_told(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folders / "es/guide/machine.es.md").write_text(ENGLISH)
    run(folders, "filters.script=false", "filters.language=false", "filters.repetition=false")
    assert "segments are the same in source and target: is the target translated?" in caplog.text


def test_filtered_beads_are_counted(folders: Path) -> None:
    same = "This sentence was never translated by anybody, although it is long enough that its language can be told."
    for path in ("en/guide/machine.en.md", "es/guide/machine.es.md"):
        (folders / path).write_text((folders / path).read_text() + f"\n{same}\n")
    documents, report = run(folders)
    assert report.dropped_segments["language"] == 1
    assert same not in documents[0].target


def test_the_page_shows_the_least_confident_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.data.align.pipeline.SHOWN", 2)
    matches = [Match("d", str(sure), "<b>", sure) for sure in (0.9, 0.2, 0.5)] + [
        Match("d", "alone", "", None, "unmatched")
    ]
    page = alignment_page(matches, ("en", "es"))
    assert page.index("0.20") < page.index("0.50")
    assert "0.90" not in page
    assert "the first 2 of 3" in page
    assert "&lt;b&gt;" in page
    assert '<td dir="auto">unmatched</td>' in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source=none"], "none: no such folder"),
        (["target=null"], "format=raw needs source=DIR and target=DIR, or input=FILE.tsv"),
        (["source_language=null"], "format=raw needs source_language=, such as en"),
        (["source_language=xx"], "source_language is 'xx': it must be a code of ISO 639, such as en, de or pt-BR"),
        (["target_language=spanish"], "target_language is 'spanish': it must be a code of ISO 639"),
        (["target_language=en"], "source_language and target_language are both en: give two"),
        (["split=word"], "split is 'word': it must be one of sentence, paragraph, none"),
        (["unmatched=hide"], "unmatched is 'hide': it must be one of keep, drop"),
        (["filters.length=1"], "filters.length: no such setting"),
        (["min_confidence=2"], "min_confidence is 2: it must be a float from 0 to 1"),
        (["checkpoint=run"], "aligner=translation and checkpoint=RUN belong together"),
        (["subset=a"], "subset is 'a': only format=hub reads it, not raw"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_settings_are_one_line(folders: Path, arguments: list[str], message: str) -> None:
    with pytest.raises((ValueError, DataError)) as raised:
        run(folders, *arguments)
    assert str(raised.value).startswith(message)
    assert not (folders / "out").exists()


def test_unusable_lists_and_folders(folders: Path) -> None:
    (folders / "en/empty.md").write_text("twice")
    with pytest.raises(DataError, match="has the same name: keep one file per document"):
        run(folders)
    for content, message in {
        "a.md\n": ":1: 'a.md': wanted a source path, a tab and a target path",
        "": "no pairs of files",
        "a.md\tb.md\na.md\tc.md\n": "the document 'a' has several lines",
    }.items():
        (folders / "p.tsv").write_text(content)
        with pytest.raises(DataError, match=message):
            run(folders, f"input={folders / 'p.tsv'}")
