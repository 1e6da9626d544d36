"""Terms and alignments of the command: files, JSON Lines and pipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.translation import one_form
from scaleformer.translation.term_forms import WrittenTerm
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, write_corpus

SOURCES = [document["source"] for document in DOCUMENTS]


def test_terms_of_a_file_and_of_documents_with_alignments(run, translate, tmp_path):
    documents = [{**DOCUMENTS[0], "terms": {"cat": "Kater"}}, *DOCUMENTS[1:]]
    source = write_corpus(tmp_path, documents=documents) / "test.jsonl"
    (tmp_path / "terms.tsv").write_text("cat\tMieze\ntree\tBaum\n", encoding="utf-8")
    output = tmp_path / "out.jsonl"
    code, _, err = translate(
        f"checkpoint={run}", f"input={source}", f"output={output}", f"terms={tmp_path / 'terms.tsv'}", "align=true"
    )
    assert code == 0
    assert "terms: 3 in the source, 3 as required, 0 not placed\n" in err
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    translator = Translator.load(run, "cpu")
    terms = {"cat": "Mieze", "tree": "Baum"}
    found = translator.translate(SOURCES, terms=[{**terms, "cat": "Kater"}, terms, terms])
    assert [record["hypothesis"] for record in records] == found
    assert [[line.count("-") for line in record["alignments"]] for record in records] == [
        [len(links) for links in segments] for segments in translator.align(SOURCES, found)
    ]


def test_text_has_its_alignments_in_a_file(run, translate, tmp_path):
    (tmp_path / "in.txt").write_text("the cat sees\nit runs\n", encoding="utf-8")
    code, _, _ = translate(
        f"checkpoint={run}", f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'out.txt'}", "align=true"
    )
    assert code == 0
    lines = (tmp_path / "out.txt.align").read_text(encoding="utf-8").splitlines()
    translations = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert [len(line.split()) for line in lines] == [len(text.split()) for text in translations]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["target_language=german"], "target_language is 'german': it must be a code of ISO 639"),
        (["terms=nowhere.tsv"], "nowhere.tsv"),
        (["align=true", "output=-"], "set align=FILE or output_format=jsonl"),
        (["terms=auto", "output=-"], "output=-: terms=auto and term_report need all translations"),
        (
            ["term_report=x.json", "decoding.match_segments=false"],
            "wanted decoding.n_best=1 and decoding.match_segments=true",
        ),
        (["terms=auto", "shard=1/2"], "terms are counted over all documents: leave one of them out"),
    ],
)
def test_what_is_wrong_is_one_line(run, translate, tmp_path, arguments, message):
    (tmp_path / "in.txt").write_text("the cat sees\n", encoding="utf-8")
    output = [] if any(a.startswith("output=") for a in arguments) else [f"output={tmp_path / 'out.txt'}"]
    code, _, err = translate(f"checkpoint={run}", f"input={tmp_path / 'in.txt'}", *output, *arguments)
    assert code == 1
    assert message in err
    assert len(err.strip().splitlines()) <= 2


def test_terms_in_one_form_with_their_table(run, translate, tmp_path, monkeypatch):
    """The forms are made up. The table is beside the output or where it is asked for."""
    found = [WrittenTerm("cat", (("Kater", 0, 0), ("Kater", 0, 0), ("Katze", 0, 1)))]
    monkeypatch.setattr(one_form, "find_forms", lambda *_: found)
    page = tmp_path / "a.txt"
    page.write_text("the cat sees\na cat\n", encoding="utf-8")
    lines = write_corpus(tmp_path, documents=[{"id": "a", "source": ["the cat sees", "a cat"]}]) / "test.jsonl"
    for source, output in ((page, tmp_path / "de"), (page, tmp_path / "b.txt"), (lines, tmp_path / "b.jsonl")):
        if output.suffix == "":
            output.mkdir()
        code, _, err = translate(f"checkpoint={run}", f"input={source}", f"output={output}", "terms=auto")
        assert code == 0, err
        assert "terms: 2 in the source, 2 as required, 0 not placed\n" in err
        written = (output / "a.txt" if output.is_dir() else output).read_text(encoding="utf-8")
        assert written.count("Kater") == 2
        table = json.loads(Path(f"{output}.terms.json").read_text(encoding="utf-8"))
        assert [list(row["asked"].values()) for row in table["terms"]] == [[{"target": "Kater", "left": []}]]
    report = tmp_path / "forms.json"
    code, _, err = translate(
        f"checkpoint={run}", f"input={page}", f"output={tmp_path / 'c.txt'}", f"term_report={report}"
    )
    assert code == 0, err
    assert "Kater" not in (tmp_path / "c.txt").read_text(encoding="utf-8")
    assert "1 repeated terms, 66.7% of their places in the most frequent form of the document" in err
    assert json.loads(report.read_text(encoding="utf-8"))["terms"][0]["asked"] == {}
