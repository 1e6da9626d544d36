"""Conversion: every omission counted, nothing overwritten, all or nothing."""

from __future__ import annotations

import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.quality.config import FilterConfig
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, one_line
from tests.commands.calls import Benchmark, error_line, run_command

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "data" / "samples"
EVERYTHING = list(read_jsonl(SAMPLES / "one_file.jsonl.gz"))


def written(folder: Path) -> dict[str, list[Document]]:
    return {path.name.split(".")[0]: list(read_jsonl(path)) for path in sorted(folder.glob("*.jsonl.gz"))}


INPUTS = [
    pytest.param({"format": "jsonl", "input": str(SAMPLES / "one_file.jsonl.gz")}, 6, id="jsonl"),
    pytest.param({"format": "tsv", "input": str(SAMPLES / "documents.tsv")}, 6, id="tsv"),
    pytest.param({"format": "po", "input": str(SAMPLES / "po")}, 3, id="po"),
    pytest.param(
        {"format": "text", "input": str(SAMPLES / "text/train.en"), "target": str(SAMPLES / "text/train.es")},
        4,
        id="text",
    ),
    pytest.param(
        {
            "format": "text",
            "input": str(SAMPLES / "text_ids/train.en"),
            "target": str(SAMPLES / "text_ids/train.es"),
            "boundaries": "ids",
            "ids": str(SAMPLES / "text_ids/train.ids"),
        },
        4,
        id="text with ids",
    ),
]


@pytest.mark.parametrize(("settings", "documents"), INPUTS)
def test_samples(tmp_path: Path, settings: dict[str, Any], documents: int) -> None:
    report = prepare(PrepareConfig(output=str(tmp_path / "out"), **settings))
    splits = written(tmp_path / "out")
    assert {name: len(found) for name, found in splits.items()} == {"train": documents - 2, "valid": 1, "test": 1}
    assert report.documents == {name: len(found) for name, found in splits.items()}
    assert report.segments == {name: sum(len(d.source) for d in found) for name, found in splits.items()}
    kept = json.loads((tmp_path / "out" / "report.json").read_text())
    assert kept["settings"]["format"] == settings["format"]
    assert kept["documents"] == dict(report.documents)
    if settings["format"] in ("jsonl", "tsv"):
        assert sorted(d.id for found in splits.values() for d in found) == sorted(d.id for d in EVERYTHING)


LINES = "boundaries=lines"


@pytest.mark.parametrize(
    ("arguments", "wanted", "dropped"),
    [
        (
            ["format=xliff", f"input={SAMPLES / 'catalogues'}"],
            {"garden/spring.html": "El jardín despierta en marzo.", "garden/autumn.html": "Caen las hojas."},
            {"fuzzy": 1},
        ),
        (
            ["format=tmx", f"input={SAMPLES / 'catalogues'}", "source_language=es", "target_language=en"],
            {"kitchen": "Boil fresh water. Warm the pot."},
            {},
        ),
        (
            ["format=tmx", f"input={SAMPLES / 'catalogues/kitchen.tmx'}", LINES],
            {"kitchen:1": "Hierva agua fresca.", "kitchen:2": "Caliente la tetera."},
            {},
        ),
        (
            ["format=csv", f"input={SAMPLES / 'tables/rows.csv'}", *["source_column=en", "target_column=es"]],
            {"rows": "Hierva agua, fresca. Espere. Caen las hojas."},
            {},
        ),
        (
            [
                *("format=csv", f"input={SAMPLES / 'tables'}", "source_column=en", "target_column=es"),
                "document_column=page",
            ],
            {"tea": "Hierva agua, fresca. Espere.", "garden": "Caen las hojas."},
            {},
        ),
    ],
    ids=["xliff", "tmx", "tmx by unit", "csv", "csv by column"],
)
def test_bitexts(tmp_path: Path, arguments: list[str], wanted: dict[str, str], dropped: dict[str, int]) -> None:
    given = [*arguments, f"output={tmp_path / 'out'}", "valid=0", "test=0"]
    report = prepare(Benchmark("prepare").read(given))
    found = {document.id: one_line(document.target) for document in written(tmp_path / "out")["train"]}
    assert found == wanted
    assert report.dropped_segments == dropped


def test_moses_pairs(tmp_path: Path) -> None:
    """As OPUS has them: a line is a segment, and whatever stands in it stays."""
    for language, lines in {"en": "a\u00a0b\n &amp; c\n", "es": "x\ny\u2028z\n"}.items():
        (tmp_path / f"Books.en-es.{language}").write_text(lines, encoding="utf-8")
    names = [str(tmp_path / f"Books.en-es.{language}") for language in ("en", "es")]
    prepare(PrepareConfig("text", names[0], str(tmp_path / "out"), names[1], boundaries="lines", valid=0, test=0))
    found = written(tmp_path / "out")["train"]
    assert [(d.source, d.target) for d in found] == [(("a\u00a0b",), ("x",)), ((" &amp; c",), ("y\u2028z",))]


def test_a_tsv_with_and_without_names(tmp_path: Path) -> None:
    def read(content: str, *arguments: str) -> list[Document]:
        path, output = tmp_path / "a.tsv", tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_text(content)
        given = ["format=tsv", f"input={path}", f"output={output}", "valid=0", "test=0", *arguments]
        prepare(Benchmark("prepare").read(given))
        return written(output)["train"]

    assert read("d\tx\ty\n") == [Document("d", ("x",), ("y",))]
    assert read("id\tsource\ttarget\nd\tx\ty\n") == [Document("d", ("x",), ("y",))]
    assert read("source\ttarget\nx\ty\n") == [Document("a", ("x",), ("y",))]
    columns = ["source_column=en", "target_column=es", "document_column=p"]
    assert read("p\tno\tes\ten\nd\t1\ty\tx\n", *columns) == [Document("d", ("x",), ("y",))]
    assert read("d\tx\ty\nd\tz\tw\n", LINES) == [Document("d:1", ("x",), ("y",)), Document("d:2", ("z",), ("w",))]


def test_a_hub_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    rows: list[tuple[str, str, str]] = [("1", "a", "x"), ("1", "b", "y"), ("2", "same", "same"), ("2", "c", "z")]
    lines = [json.dumps({"doc": doc, "translation": {"en": source, "es": target}}) for doc, source, target in rows]
    (tmp_path / "rows.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    arguments = ["format=hub", "input=json", f"data_files={{some: {tmp_path / 'rows.jsonl'}}}", "split=some"]
    arguments += ["source_column=translation.en", "target_column=translation.es", "document_column=doc"]
    given = [*arguments, f"output={tmp_path / 'out'}", "drop_identical=true", "valid=0", "test=0"]
    config = Benchmark("prepare").read(given)
    report = prepare(config)
    assert report.dropped_segments == {"identical": 1}
    wanted = [Document("1", ("a", "b"), ("x", "y")), Document("2", ("c",), ("z",))]
    assert written(tmp_path / "out") == {"train": wanted}
    kept = json.loads((tmp_path / "out" / "report.json").read_text())
    assert kept["settings"]["source_column"] == "translation.en"


def test_same_bytes_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        prepare(PrepareConfig("jsonl", str(SAMPLES / "one_file.jsonl.gz"), str(tmp_path / name)))
    files = sorted(path.name for path in (tmp_path / "a").glob("*.gz"))
    assert len(files) == 3
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_everything_left_out_is_counted(tmp_path: Path) -> None:
    documents = [
        Document("a", ("same", "", "long long long long", "good", "fine"), ("same", "x", "no", "bueno", "bien")),
        Document("b", ("same", "kept"), ("same", "queda")),
        Document("c", ("one", "two"), ("uno", "dos")),
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(d.to_json() + "\n" for d in documents))
    config = PrepareConfig(
        "jsonl",
        str(path),
        str(tmp_path / "out"),
        valid=0,
        test=0,
        drop_identical=True,
        max_ratio=3.0,
        min_segments=2,
    )
    report = prepare(config)
    assert written(tmp_path / "out") == {
        "train": [Document("a", ("good", "fine"), ("bueno", "bien")), documents[2]],
    }
    assert report.dropped_segments == {"identical": 2, "empty": 1, "length ratio": 1, "of documents left out": 1}
    assert report.dropped_documents == {"fewer than 2 segments": 1}
    assert sum(report.segments.values()) + sum(report.dropped_segments.values()) == 9


def test_existing_output_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    config = PrepareConfig("jsonl", str(SAMPLES / "one_file.jsonl.gz"), str(tmp_path / "out"))
    prepare(config)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError, match="exists and is not an empty folder"):
        prepare(config)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(['{"id": "a", "source": ["x"], "target": ["y"]}', "{"], "in.jsonl:2: malformed", id="malformed"),
        pytest.param(['{"id": "a", "source": [""], "target": ["y"]}'], "no document is left .1 empty", id="all empty"),
        pytest.param([], "no document is left .the input is empty", id="no lines"),
        pytest.param(['{"id": "a", "source": ["x"], "target": ["y"]}'], "1 documents are too few", id="too few"),
    ],
)
def test_failure_leaves_no_output(tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "in.jsonl").write_text("".join(line + "\n" for line in lines))
    with pytest.raises(DataError, match=message):
        prepare(PrepareConfig("jsonl", str(tmp_path / "in.jsonl"), str(tmp_path / "out")))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format is 'xml': it must be one of"),
        ({"boundaries": "dot"}, "boundaries is 'dot'"),
        ({"format": "tmx", "boundaries": "ids"}, "boundaries=ids: only format=text reads it, not tmx"),
        ({"boundaries": "lines"}, "boundaries is 'lines': only format=text.po.tmx.* reads it, not jsonl"),
        ({"source_language": "en"}, "source_language is 'en': only format=tmx.raw.contrapro reads it"),
        ({"target": "t"}, "target is 't': only format=text.raw reads it, not jsonl"),
        ({"format": "text", "target": "t", "subset": "a"}, "subset is 'a': only format=hub reads it, not text"),
        ({"format": "text"}, "needs target=FILE"),
        ({"format": "text", "target": "t", "boundaries": "ids"}, "belong together"),
        ({"valid": 0.7, "test": 0.7}, "valid=0.7 test=0.7: the shares must be at most 1 together"),
        ({"max_ratio": 0.1}, "max_ratio is 0.1: it must be a float of at least 1"),
        ({"min_segments": 0}, "min_segments is 0: it must be an int of at least 1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrepareConfig(**{"format": "jsonl", "input": "i", "output": "o", **options})


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["format=po", f"input={SAMPLES / 'po'}", f"output={tmp_path / '2024'}", "valid=0", "test=0"]
    code, out, err = run_command(monkeypatch, capsys, "prepare", *arguments)
    assert code == 0, err
    assert "left out: fuzzy" in out
    assert set(written(tmp_path / "2024")) == {"train"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["format=po", "output=x"], "error: format=po needs input="),
        (["format"], "error: format: a setting is written KEY=VALUE: scaleformer prepare format="),
        (["formt=po"], "error: formt: no such setting (did you mean format?); there are format, input"),
        (
            ["format=po", "input=none", "output=x", "valid=much"],
            "error: valid is 'much': it must be a float from 0 to 1",
        ),
        (["format=po", "input=none", "output=x"], "error: none: no such file or folder"),
    ],
    ids=["missing", "no value", "unknown", "type", "no input"],
)
def test_command_errors_are_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert error_line(run_command(monkeypatch, capsys, "prepare", *arguments)).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_has_the_defaults_of_the_class() -> None:
    content = yaml.safe_load((ROOT / "conf" / "commands" / "prepare.yaml").read_text(encoding="utf-8"))
    usual = {f.name: f.default for f in fields(PrepareConfig) if f.default is not MISSING}
    assert {name: content[name] for name in usual} == usual
    assert set(content) - set(usual) == {"defaults", "format", "input", "output", "filters"}
    assert FilterConfig(**content["filters"]) == FilterConfig()


@pytest.mark.parametrize(
    ("format", "name", "content", "reason"),
    [
        ("text", "a.txt", "x\ny\n", "a blank line ends a document; boundaries=lines makes every line one"),
        ("po", "a.po", 'msgid "x"\nmsgstr "y"\n', "each file is a document; input= also takes a folder"),
        ("csv", "a.csv", "source,target\na,b\n", "each file is a document; document_column groups its rows"),
        ("tsv", "a.tsv", "a\tx\ty\n", "the lines with the same name form a document"),
    ],
)
def test_too_few_documents_say_why(tmp_path: Path, format: str, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    target = str(tmp_path / name) if format == "text" else None
    with pytest.raises(DataError, match=rf"{name}: 1 documents are too few .*: {reason}.*valid=0 test=0 "):
        prepare(PrepareConfig(format, str(tmp_path / name), str(tmp_path / "out"), target))


def test_the_names_of_columns_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\ten\tes\na\tx\ty\n")
    report = prepare(PrepareConfig("tsv", str(tmp_path / "a.tsv"), str(tmp_path / "out"), valid=0.0, test=0.0))
    assert (report.documents, report.dropped_segments) == ({"train": 1}, {"the names of the columns": 1})


def test_a_pipe_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: is a pipe, but it has to be read twice: write it to a file"):
        prepare(PrepareConfig(format="tsv", input=str(tmp_path / "pipe"), output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
