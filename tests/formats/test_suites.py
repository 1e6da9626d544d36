"""Contrastive suites in the layouts of their repositories, with sentences of our own, up to what `context` reads."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.evaluation.context.examples import read_contrastive
from scaleformer.formats.suites import Documents, read_suite
from scaleformer.system.errors import DataError
from tests.commands.calls import run_command
from tests.runs import make_run

ENGLISH = ["The lamp is old.", "I like it.", 'He said: "It hums."', "Yes."]
GERMAN = ["Die Lampe ist alt.", "Ich mag sie.", "Er sagte: «Sie summt.»", "Ja."]


def pronoun(line: int, source: str, right: str, wrong: list[str], distance: int, **changes: Any) -> dict[str, Any]:
    """An entry of contrapro.json, with all of its keys."""
    errors = [
        {"contrastive": text, "replacement": "es", "replacement gender": "Neut", "type": "pronominal coreference"}
        for text in wrong
    ]
    of_heads = {
        f"{side} ante {what}": None
        for side in ("src", "ref")
        for what in ("head", "head gender", "head id", "head lemma", "head morpho", "head pos", "phrase")
    }
    return {
        "ante distance": distance,
        "corpus": "ours",
        "document id": "1999_1_2.de",
        "errors": errors,
        "intrasegmental": distance == 0,
        "ref pronoun": "sie",
        "src pronoun": "it",
        "segment id": line,
        "ref segment": right,
        "src segment": source,
        **of_heads,
        **changes,
    }


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "1999").mkdir(parents=True)
    for ending, lines in (("en", ENGLISH), ("de", GERMAN)):
        (folder / "1999" / f"1999_1_2.{ending}").write_text("".join(f"{s}\n" for s in lines), encoding="utf-8")
    return folder


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def contrapro(tmp_path: Path) -> Path:
    entries = [
        pronoun(2, "I like it.", "Ich mag sie.", ["Ich mag es.", "Ich mag ihn."], 1),
        pronoun(3, "He said: ''It hums.''", "Er sagte: «Sie summt.»", ["Er sagte: «Es summt.»"], 2),
        pronoun(0, "The lamp is old.", "Sie.", ["Es."], 0, **{"document id": "1999_1_2", "src pronoun": "It"}),
        pronoun(4, "No.", "Nein.", ["Es."], 1),
        pronoun(2, "I like it.", "Ich mag sie.", ["Es."], 1, **{"document id": "2001_3_4.de"}),
        pronoun(2, "I like it.", "Ich mag sie.", ["Ich mag sie."], 1),
    ]
    return write(tmp_path / "contrapro.json", entries)


def test_contrapro_context_comes_from_the_documents(tmp_path: Path, documents: Path) -> None:
    dropped: Counter[str] = Counter()
    found = list(read_suite("contrapro", str(contrapro(tmp_path)), dropped, Documents(str(documents))))
    assert [(e.kind, e.distance, e.source_context, e.target_context) for e in found] == [
        ("it:sie", 1, (ENGLISH[0],), (GERMAN[0],)),
        ("it:sie", 2, tuple(ENGLISH[:2]), tuple(GERMAN[:2])),  # quotation marks differ from the document's
        ("it:sie", 0, (), ()),  # counted from 0, as in the French set
    ]
    assert (found[0].source, found[0].right, found[0].wrong) == (
        *("I like it.", "Ich mag sie."),
        ("Ich mag es.", "Ich mag ihn."),
    )
    assert dropped == {
        "examples whose document has another sentence there": 1,
        "examples whose document is not there": 1,
        "wrong translations that equal the right one": 1,
        "examples without a wrong translation": 1,
    }
    short = list(
        read_suite("contrapro", str(tmp_path / "contrapro.json"), dropped, Documents(str(documents), context=1))
    )
    assert [e.source_context for e in short] == [(ENGLISH[0],), (ENGLISH[1],), ()]


def test_bawden(tmp_path: Path) -> None:
    lamp = ["Die Lampe ist alt.", "Sie summt."]
    anaphora = {
        "1": {
            "inspired by": ["a", "b"],
            "src": ["The lamp is old.", "It hums."],
            "trg": [
                {"type": "m-sg", "correct": lamp, "incorrect": [lamp[0], "Es summt."]},
                {"type": "m-sg", "semi-correct": ["Das Licht ist alt.", "Es summt."], "incorrect": lamp},
            ],
        },
        "2": {"src": ["A.", "B."], "trg": [{"semi-correct": ["A.", "C."], "incorrect": ["A.", "D."], "type": "x"}]},
    }
    example = {"src": ["A.", "B."], "trg": {"correct": ["A.", "C."], "incorrect": ["A.", "D."]}}
    choice = {"7": {"inspired by": ["a", "b"], "type": "repet", "examples": [example]}}
    write(tmp_path / "sets" / "anaphora.json", anaphora)
    write(tmp_path / "sets" / "lexical-choice.json", choice)
    dropped: Counter[str] = Counter()
    found = list(read_suite("bawden", str(tmp_path / "sets"), dropped))
    assert [(e.id, e.kind) for e in found] == [
        ("anaphora/1/1", "anaphora"),
        ("anaphora/2/1", "anaphora, semi-correct"),
        ("lexical-choice/7/1", "lexical choice: repet"),
    ]
    first = found[0]
    assert (first.source_context, first.source, first.target_context) == (("The lamp is old.",), "It hums.", (lamp[0],))
    assert (first.right, first.wrong, first.distance) == ("Sie summt.", ("Es summt.",), 1)
    assert dropped == {"examples whose right and wrong translations have different contexts": 1}


def voita(tmp_path: Path) -> Path:
    groups = [
        {"src": "A . _eos B . _eos C . _eos D", "dst": ["a _eos b _eos c _eos d", "a _eos b _eos c _eos e"]}
        | {"true_ind": 1, "ctx_dist": 2},
        {"src": "A _eos B", "dst": ["a _eos b", "x _eos b"], "true_ind": 0, "ctx_dist": 1},
        {"src": "A _eos B", "dst": ["a _eos b", "a _eos c", "a _eos b"], "true_ind": 0, "ctx_dist": 1},
    ]
    return write(tmp_path / "voita" / "deixis_test.json", groups)


def test_voita(tmp_path: Path) -> None:
    dropped: Counter[str] = Counter()
    found = list(read_suite("voita", str(voita(tmp_path)), dropped))
    assert [(e.id, e.kind, e.distance) for e in found] == [
        ("deixis_test/1", "deixis_test", 2),
        ("deixis_test/3", "deixis_test", 1),
    ]
    assert (found[0].source_context, found[0].source) == (("A .", "B .", "C ."), "D")
    assert (found[0].target_context, found[0].right, found[0].wrong) == (("a", "b", "c"), "e", ("d",))
    assert found[1].wrong == ("c",)
    assert dropped == {
        "examples whose right and wrong translations have different contexts": 1,
        "wrong translations that equal the right one": 1,
    }


def test_context_reads_prepared_suites(tmp_path: Path, documents: Path, monkeypatch, capsys) -> None:
    given = {"format": "contrapro", "input": str(contrapro(tmp_path)), "documents": str(documents)}
    report = prepare(PrepareConfig(**given, output=str(tmp_path / "out")))
    assert (report.examples, sum(report.dropped_documents.values())) == ({"it:sie": 3}, 4)
    path = tmp_path / "out" / "contrapro.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert len(file.readlines()) == 3
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["examples"] == {"it:sie": 3}
    assert [(p.distance, p.kind) for e in read_contrastive(path) for p in e.phenomena] == [
        *((1, "it:sie"), (2, "it:sie"), (0, "it:sie"))
    ]
    run = make_run(tmp_path / "run")
    arguments = [f"checkpoint={run}", f"input={path}", "generative=false"]
    code, out, err = run_command(monkeypatch, capsys, "context", *arguments)
    assert code == 0, err
    assert "3 documents" in out
    scores = json.loads((run / "results" / "context-contrapro.json").read_text(encoding="utf-8"))["scores"]
    assert {score["distance"]: score["count"] for score in scores} == {"all": 3, "0": 1, "1": 1, "2": 1}


def test_the_table_and_nothing_left(tmp_path: Path, monkeypatch, capsys) -> None:
    arguments = ["format=voita", f"input={voita(tmp_path).parent}", f"output={tmp_path / 'out'}"]
    code, out, err = run_command(monkeypatch, capsys, "prepare", *arguments)
    assert code == 0, err
    assert "examples: deixis_test" in out
    assert "train" not in out
    same = write(tmp_path / "same.json", [{"src": "A", "dst": ["a", "a"], "true_ind": 0, "ctx_dist": 1}])
    with pytest.raises(DataError, match=r"no example is left \(1 wrong translations that equal .*, 1 examples without"):
        prepare(PrepareConfig("voita", str(same), str(tmp_path / "none")))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("suite", "content", "message"),
    [
        ("contrapro", {"a": 1}, r"x\.json: a JSON dict, wanted a list"),
        ("contrapro", [{"src segment": "a"}], r"x\.json\[0\]: no 'ref segment' \(present: src segment\): not the layo"),
        ("contrapro", [pronoun(-1, "a", "b", ["c"], 1)], r"x\.json\[0\]: 'segment id' is -1, wanted a whole number"),
        ("contrapro", [pronoun(1, " ", "b", ["c"], 1)], r"'src segment' is ' ', wanted a text"),
        ("bawden", [1], r"x\.json: a JSON list, wanted an object of numbered blocks"),
        (
            "bawden",
            {"1": {"src": ["a"], "trg": [{}]}},
            r"'src' is \['a'\], wanted the previous sentence and the sentence",
        ),
        ("voita", [{"src": "a _eos b", "dst": ["a"], "true_ind": 0, "ctx_dist": 1}], "2 sentences in 'src', 1 in one"),
        ("voita", [{"src": "a", "dst": ["a"], "true_ind": 1, "ctx_dist": 1}], "'true_ind' is 1, but 'dst' has 1 tr"),
        ("voita", [{"src": "a", "dst": [1], "true_ind": 0, "ctx_dist": 1}], "'dst' is not a list of texts"),
    ],
)
def test_other_layouts_are_named(tmp_path: Path, documents: Path, suite: str, content: Any, message: str) -> None:
    path = write(tmp_path / "x.json", content)
    with pytest.raises(DataError, match=message):
        list(read_suite(suite, str(path), Counter(), Documents(str(documents))))


def test_files_and_settings_are_checked(tmp_path: Path, documents: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match=r"x\.json: malformed JSON"):
        list(read_suite("voita", str(path), Counter()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no \.json files: wanted the folder of the voita suite"):
        list(read_suite("voita", str(tmp_path / "empty"), Counter()))
    entries = str(contrapro(tmp_path))
    for folder, message in (("none", "no such folder"), ("empty", r"no documents: wanted NAME\.en and NAME\.de")):
        with pytest.raises(DataError, match=message):
            list(read_suite("contrapro", entries, Counter(), Documents(str(tmp_path / folder))))
    (documents / "1999" / "1999_1_2.de").write_text("Ja.\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"1999_1_2\.en: 4 lines, but 1999_1_2\.de has 1: align them"):
        list(read_suite("contrapro", entries, Counter(), Documents(str(documents))))
    with pytest.raises(ValueError, match="format=contrapro needs documents=DIR"):
        PrepareConfig("contrapro", "i", "o")
    with pytest.raises(ValueError, match="context is -1: it must be an int of at least 0"):
        PrepareConfig("contrapro", "i", "o", documents="d", context=-1)
    with pytest.raises(ValueError, match=r"valid is 0\.0: only format=jsonl\|text\|"):
        PrepareConfig("voita", "i", "o", valid=0.0)
