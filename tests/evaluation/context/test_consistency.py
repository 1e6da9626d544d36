"""Names and terms counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.evaluation.context.consistency import read_variants, score_consistency
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.system.errors import DataError
from tests.commands.calls import run_command

SOURCE = ("open the driver of Foo", "it fails", "a driver for Foo", "this ends", "the end of it")
TARGET = ("öffne den Treiber von Foo", "es scheitert", "ein Treiber für Foo", "dies endet", "das Ende davon")


def document(*hypothesis: str) -> TranslatedDocument:
    return TranslatedDocument("d", SOURCE, TARGET, hypothesis)


def kinds(*hypothesis: str, terms=None) -> dict:
    return {score.kind: score for score in score_consistency([document(*hypothesis)], terms)}


def test_the_reference_is_consistent_with_itself():
    found = kinds(*TARGET)
    assert set(found) == {"name", "term"}
    assert (found["name"].words, found["name"].mentions) == (1, 2)  # Foo
    assert found["term"].words == 1  # driver; the, of, it are too short or not consistent in the reference
    assert [(s.as_reference, s.consistent) for s in found.values()] == [(1, 1), (1, 1)]


def test_a_consistent_word_need_not_be_the_references():
    found = kinds("öffne das Programm von Foo", "es scheitert", "ein Programm für Bar", "dies endet", "das Ende")
    assert (found["term"].as_reference, found["term"].consistent) == (0, 1)  # Programm, both times
    assert (found["name"].as_reference, found["name"].consistent) == (0.5, 0.5)  # Foo once


def test_text_without_spaces_has_terms_and_names():
    """No space marks where a term begins: any string that occurs in exactly these segments is one."""
    source = ("open the router of Foo", "it fails", "a router for Foo", "this ends", "the end of it")
    target = ("打开Foo的路由器", "失败了", "用Foo的一台路由器", "这结束了", "它完")
    other = ("打开Foo的交换机", "失败了", "用一台交换机", "这结束了", "它完")
    for hypothesis, kept, names in ((target, 1, 1), (other, 0, 0.5)):
        scores = score_consistency([TranslatedDocument("d", source, target, hypothesis)], {"router": ["路由器"]})
        found = {score.kind: score for score in scores}
        assert (found["name"].mentions, found["name"].as_reference) == (2, names)
        assert (found["listed"].mentions, found["listed"].as_reference) == (2, kept)
        assert found["term"].consistent == 1
    back = score_consistency([TranslatedDocument("d", target, source, source)])
    terms = next(score for score in back if score.kind == "term")
    assert terms.words == 1, "路由器, not each of its parts"


def test_changing_words_are_not_consistent():
    found = kinds("öffne den Treiber", "", "ein Programm", "", "")
    assert (found["term"].as_reference, found["term"].consistent) == (0.5, 0.5)
    assert kinds("", "", "", "", "")["term"].consistent == 0


def test_a_word_in_every_segment_does_not_agree_with_the_mentions():
    found = kinds(*["Treiber"] * 5)
    assert found["term"].as_reference == 1
    assert found["term"].consistent == pytest.approx(2 / 5)


def test_listed_terms():
    terms = {"Driver": ["Treiber", "Gerätetreiber"], "fails": ["scheitert"]}
    found = kinds("der Gerätetreiber", "", "ein Treiber", "", "", terms=terms)["listed"]
    assert (found.words, found.mentions) == (1, 2)  # "fails" occurs once
    assert (found.as_reference, found.consistent) == (0.5, 0.5)
    assert kinds("Treibern", "", "", "", "", terms=terms)["listed"].consistent == 0  # whole words


def test_documents_with_differing_segment_counts_are_left_out():
    assert score_consistency([TranslatedDocument("d", SOURCE, TARGET[:2], TARGET)]) == ()


def test_a_list_is_read(tmp_path: Path):
    path = tmp_path / "terms.tsv"
    path.write_text("driver\tTreiber | Gerätetreiber\n\nend user\tAnwender\n", encoding="utf-8")
    assert read_variants(str(path)) == {"driver": ["Treiber", "Gerätetreiber"], "end user": ["Anwender"]}
    path.write_text("driver Treiber\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"terms\.tsv:1: wanted a source term, a tab"):
        read_variants(str(path))
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="no terms"):
        read_variants(str(path))


def test_the_command(tmp_path: Path, monkeypatch, capsys):
    path = tmp_path / "bleu-test.jsonl"
    record = {"id": "d", "source": SOURCE, "target": TARGET, "hypothesis": TARGET}
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    made = {"seed": 3, "checkpoint": {"path": "best.ckpt", "sha256": "abc"}}
    path.with_suffix(".json").write_text(json.dumps(made), encoding="utf-8")
    code, out, err = run_command(monkeypatch, capsys, "consistency", f"translations={path}")
    assert code == 0, err
    assert "100.0%" in out
    result = json.loads((tmp_path / "consistency-test.json").read_text(encoding="utf-8"))
    assert {key: result[key] for key in made} == made
    assert [score["kind"] for score in result["scores"]] == ["name", "term"]
    path.write_text(json.dumps({**record, "source": ["a"], "target": ["b"]}) + "\n", encoding="utf-8")
    code, _, err = run_command(monkeypatch, capsys, "consistency", f"translations={path}")
    assert code == 1
    assert "no document repeats a word" in err
