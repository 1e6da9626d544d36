"""Settings, inputs and outputs that `translate` refuses, in one line."""

from __future__ import annotations

import io
import sys

import pytest

from tests.runs import write_corpus

BAD = {
    "no checkpoint": (["checkpoint=nowhere"], "nowhere: no such run directory, checkpoint file or exported model"),
    "no input": (["input=missing.jsonl"], "missing.jsonl: no such file"),
    "key": (["beam=3"], "beam: no such setting (did you mean decoding.beam_size?); there are "),
    "setting": (
        ["decoding.beams=3"],
        "decoding.beams: no such setting (did you mean decoding.beam_size?); there",
    ),
    "added setting": (["+decoding.beams=3"], "decoding.beams: no such setting"),
    "choice": (["decoding=best"], "Available options in 'decoding': beam greedy sample"),
    "value": (["decoding.beam_size=0"], "decoding.beam_size is 0: it must be an int of at least 1"),
    "grammar": (["decoding.seed=a=b"], "decoding.seed=a=b: mismatched input '='"),
    "an equals sign in a name": (["input=a=b"], "a=b: no such file"),
    "format": (["format=xml"], "format is 'xml': it must be one of auto, text, jsonl"),
    "output_format": (["output_format=csv"], "output_format is 'csv': it must be one of auto, text, jsonl"),
    "boundaries": (["boundaries=page"], "boundaries is 'page': it must be one of file, blank, ids, lines"),
    "mode": (["mode=page"], "mode is 'page': it must be one of document, segment or null"),
    "device": (["device=gpu"], "device=gpu: not available here"),
    "max_tokens": (["max_tokens=ten"], "max_tokens is 'ten': it must be an int of at least 3 or null"),
    "devices": (["device=[cpu]"], "device=[cpu]: not available here"),
    "input that is a number": (["input=1e5"], "1e5: no such file"),
    "threads": (["threads=many"], "threads is 'many': it must be an int of at least 1 or null"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line(run, translate, tmp_path, name):
    changes, message = BAD[name]
    write_corpus(tmp_path)
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    arguments = {"checkpoint": run, "input": tmp_path / "test.jsonl", "output": output, "overwrite": "true"}
    arguments = {k: v for k, v in arguments.items() if not changes[0].startswith(f"{k}=")}
    code, out, err = translate(*(f"{k}={v}" for k, v in arguments.items()), *changes)
    assert code == 1
    assert out == ""
    *_, last = err.splitlines()
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in err
    assert "job with overrides" not in err
    assert output.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "test.jsonl"]


BAD_INPUT = {
    "malformed": (b'{"id": "a", "source": ["x"]}\n{"id"\n', "in.jsonl:2: malformed JSON"),
    "not UTF-8": (b'{"id": "a", "source": ["\xff"]}\n', "in.jsonl:1: not UTF-8"),
    "empty document": (b'{"id": "a", "source": []}\n', "in.jsonl:1: document 'a' is empty"),
    "lengths": (b'{"id": "a", "source": ["x"], "target": []}\n', "1 source segments and 0 target segments"),
    "nothing": (b"", "in.jsonl: no documents"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "stdin"])
def test_bad_input_is_reported_with_its_line(run, translate, tmp_path, monkeypatch, name, pipe):
    content, message = BAD_INPUT[name]
    (tmp_path / "in.jsonl").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    source = "-" if pipe else tmp_path / "in.jsonl"
    code, _, err = translate(f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out.jsonl'}")
    assert code == 1
    assert (message.replace("in.jsonl", "stdin") if pipe else message) in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("output", ["resutls/out.txt", "out/"])
def test_a_mistyped_output_makes_no_folder(run, translate, tmp_path, output):
    source = write_corpus(tmp_path) / "test.jsonl"
    code, _, err = translate(f"checkpoint={run}", f"input={source}", f"output={tmp_path}/{output}")
    assert code == 1
    assert "there is no folder" in err
    assert [p.name for p in tmp_path.iterdir()] == ["test.jsonl"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("align=IN overwrite=true", "align=IN: would replace a file that is read or written: give another name"),
        ("align=OUT", "align=OUT: would replace"),
        ("review=terms.tsv terms=terms.tsv", "review=terms.tsv: would replace"),
        ("term_report=a.html review=a.html", "review=a.html: would replace"),
        ("review=OUT.record", "review=OUT.record: would replace"),
        ("split=sentence", "split=sentence: input=IN is read as lines, wanted a .txt file"),
        ("source_language=klingon", "source_language is 'klingon': it must be a code of ISO 639"),
        ("alternatives=2 decoding.match_segments=false", "of source segments: set decoding.match_segments=true"),
        ("ensemble=logs", "ensemble=logs: of one model: name several checkpoints, or leave it out"),
    ],
)
def test_nothing_is_replaced_or_ignored_in_silence(run, translate, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(write_corpus(tmp_path))
    (tmp_path / "terms.tsv").write_text("cat\tkatze\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    names = {"IN": "test.jsonl", "OUT": "out.jsonl"}
    for short, name in names.items():
        given, said = given.replace(short, name), said.replace(short, name)
    code, _, err = translate(f"checkpoint={run}", "input=test.jsonl", "output=out.jsonl", *given.split())
    assert code == 1
    assert said in err.splitlines()[-1]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
