"""The command as users run it: forms of input and output, pipes, and calls that are broken off."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.formats.splicing import plain
from scaleformer.translation import pieces
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run, write_corpus

SCRIPT = Path(__file__).parents[2] / "scripts" / "translate.py"


def expected(run: Path, **decoding) -> list[list[str]]:
    return Translator.load(run, "cpu").translate([d["source"] for d in DOCUMENTS], **decoding)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_json_lines(run, translate, tmp_path, ending):
    source = write_corpus(tmp_path) / "test.jsonl"
    output = tmp_path / f"out.{ending}"
    code, out, err = translate(f"checkpoint={run}", f"input={source}", f"output={output}")
    assert (code, out) == (0, "")
    assert "translating" in err
    data = output.read_bytes()
    records = [json.loads(line) for line in (gzip.decompress(data) if ending.endswith("gz") else data).splitlines()]
    assert [record["id"] for record in records] == [d["id"] for d in DOCUMENTS]
    assert [record["source"] for record in records] == [d["source"] for d in DOCUMENTS]
    assert [record["target"] for record in records] == [d["target"] for d in DOCUMENTS]
    assert [record["hypothesis"] for record in records] == expected(run)
    assert all(record["finished"] in (True, False) and record["score"] <= 0 for record in records)


def test_text_keeps_its_shape(run, translate, tmp_path):
    (tmp_path / "in.txt").write_text(
        "\nthe cat sees\nit runs\n\n\na dog\n \na house\r\na tree\na cat", encoding="utf-8"
    )
    output = tmp_path / "out.txt"
    settings = ("decoding.match_segments=true", "decoding.max_length_offset=4", "boundaries=blank")
    code, _, err = translate(f"checkpoint={run}", f"input={tmp_path / 'in.txt'}", f"output={output}", *settings)
    assert code == 0
    one, two, three = expected(run, match_segments=True, max_length_offset=4)
    lines = ["", *one, "", "", *two, "", *three]
    assert output.read_text(encoding="utf-8") == "".join(" ".join(line.splitlines()) + "\n" for line in lines)
    assert "as many segments" not in err


def test_settings_of_the_run_are_the_default(run, translate, tmp_path):
    source = write_corpus(tmp_path) / "test.jsonl"
    arguments = (f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out.jsonl'}")

    def hypotheses(*overrides: str) -> list[list[str]]:
        assert translate(*arguments, "overwrite=true", *overrides)[0] == 0
        return [json.loads(line)["hypothesis"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    assert hypotheses("decoding.max_length_offset=9") == expected(run, max_length_offset=9)
    whole = {"strategy": "beam", "beam_size": 2, "max_length_ratio": 0.5, "max_length_offset": 10}
    assert hypotheses("decoding=beam", "decoding.beam_size=2", "decoding.max_length_ratio=0.5") == expected(
        run, **whole
    )


def test_n_best(run, translate, tmp_path):
    source = write_corpus(tmp_path) / "test.jsonl"
    arguments = (f"checkpoint={run}", f"input={source}", "decoding.strategy=beam", "decoding.n_best=2")
    assert translate(*arguments, f"output={tmp_path / 'out.jsonl'}")[0] == 0
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert len(record["n_best"]) == 2
        assert record["n_best"][0]["segments"] == record["hypothesis"]
    code, _, err = translate(*arguments, f"output={tmp_path / 'out.txt'}", "format=text")
    assert code == 1
    assert err.startswith("error: decoding.n_best=2: text can hold only one translation: set output_format=jsonl")


@pytest.mark.parametrize("name", ["out.jsonl", "out"])
def test_text_to_json_lines(run, translate, tmp_path, name):
    source, output = tmp_path / "in.txt", tmp_path / name
    source.write_text("the cat sees\nit runs\n\na dog\n", encoding="utf-8")
    arguments = (
        f"checkpoint={run}",
        f"input={source}",
        f"output={output}",
        "decoding.strategy=beam",
        "boundaries=blank",
    )
    lists = () if name.endswith("jsonl") else ("output_format=jsonl", "decoding.n_best=2")
    assert translate(*arguments, *lists)[0] == 0
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [r["id"] for r in records] == [f"{source}:1", f"{source}:4"]
    assert [r["source"] for r in records] == [["the cat sees", "it runs"], ["a dog"]]
    assert [len(r.get("n_best", [])) for r in records] == ([2, 2] if lists else [0, 0])


def test_pipes(run, translate, monkeypatch):
    for text, format in (("a dog\n", "text"), (json.dumps(DOCUMENTS[1]) + "\n", "jsonl")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code, out, err = translate(f"checkpoint={run}", "input=-", "output=-", f"format={format}")
        assert code == 0, err
        found = json.loads(out)["hypothesis"] if format == "jsonl" else out
        segments = expected(run)[1]
        assert found == (segments if format == "jsonl" else "".join(" ".join(s.splitlines()) + "\n" for s in segments))


def test_a_process_of_its_own(run, tmp_path):
    """Only the translation on stdout; a closed pipe does not cause a traceback."""
    command = (
        f"'{sys.executable}' '{SCRIPT}' checkpoint='{run}' input=- output=- format=text decoding.match_segments=true"
    )
    done = subprocess.run(
        ["bash", "-c", command], input="a dog\n\n" * 3, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.count("\n") == 6
    assert list(tmp_path.iterdir()) == []


def test_output_with_its_source_may_replace_the_input(run, translate, tmp_path):
    text = tmp_path / "in.txt"
    text.write_text("the cat sees\n", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to(text)
    code, _, err = translate(f"checkpoint={run}", f"input={text}", f"output={tmp_path / 'link.txt'}")
    assert code == 1
    assert "would be overwritten by its translation" in err
    assert text.read_text(encoding="utf-8") == "the cat sees\n"
    path = write_corpus(tmp_path) / "test.jsonl"
    _, _, err = translate(f"checkpoint={run}", f"input={path}", f"output={path}")
    assert f"error: {path}: exists and may have been corrected: overwrite=true replaces it" in err
    assert translate(f"checkpoint={run}", f"input={path}", f"output={path}", "overwrite=true")[0] == 0
    assert [json.loads(line)["hypothesis"] for line in path.read_text().splitlines()] == expected(run)


def test_empty_translations_are_reported(run, translate, tmp_path, monkeypatch, caplog):
    (tmp_path / "in.txt").write_text("the cat sees\n\nit runs\n", encoding="utf-8")
    monkeypatch.setattr(Tokenizer, "decode_segments", lambda self, tokens: ["b", ""])
    code, _, err = translate(f"checkpoint={run}", f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'out'}")
    assert code == 0, err
    assert f"empty translation of 1 segment: {tmp_path / 'in.txt'}:3" in caplog.text


def test_a_file_of_text_is_one_document(run, translate, tmp_path):
    source, output = tmp_path / "page.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n\n" for line in ("the cat sees", "it runs", "a dog")), encoding="utf-8")
    code, _, err = translate(f"checkpoint={run}", f"input={source}", f"output={output}")
    assert code == 0
    assert f"{source}: 1 file, 3 segments\n" in err
    lines = ["the cat sees", "it runs", "a dog"]
    [whole] = Translator.load(run, "cpu").translate([lines])
    wanted = [plain(text).strip() or line for text, line in zip(whole, lines, strict=True)]
    assert output.read_text(encoding="utf-8") == "".join(f"{text}\n\n" for text in wanted)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.txt", "out.txt.record", "page.txt"]


def test_a_segment_longer_than_in_training_is_reported(run, translate, tmp_path, caplog):
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    content["scaleformer"]["longest_segment"] = 20
    torch.save(content, tmp_path / "short.ckpt")
    (tmp_path / "in.txt").write_text("a dog\n\n" + "the cat sees. " * 10 + "\n", encoding="utf-8")
    code, _, _ = translate(
        f"checkpoint={tmp_path / 'short.ckpt'}", f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'out'}"
    )
    assert code == 0
    assert "1 segment of more tokens than the longest in training (20)" in caplog.text
    assert f"{tmp_path / 'in.txt'}:3 (" in caplog.text


def interrupt_the_third_batch(patch: pytest.MonkeyPatch) -> None:
    decode, calls = pieces.decode, []

    def third_time(*given, **named):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return decode(*given, **named)

    patch.setattr(pieces, "decode", third_time)


def test_an_interrupted_call_continues(run, translate, tmp_path, monkeypatch):
    source, output = write_corpus(tmp_path) / "test.jsonl", tmp_path / "out.jsonl"
    (tmp_path / ".out.jsonl.99999999.tmp").write_text("left by a process that was killed")
    arguments = (
        f"checkpoint={run}",
        f"input={source}",
        f"output={output}",
        "decoding.batch_tokens=1",
        "decoding.draft=none",
    )
    with monkeypatch.context() as patch:
        interrupt_the_third_batch(patch)
        code, _, err = translate(*arguments)
    assert code == 130
    assert not output.exists()
    assert (tmp_path / "out.jsonl.part").read_text().count("\n") == 3
    code, _, err = translate(*arguments)
    assert code == 0
    assert "resuming: 2 of 3 documents" in err
    assert [json.loads(line)["hypothesis"] for line in output.read_text().splitlines()] == expected(run)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "test.jsonl"]


def test_stdout_gets_each_document_when_it_is_finished(run, translate, tmp_path, monkeypatch):
    source = write_corpus(tmp_path) / "test.jsonl"
    interrupt_the_third_batch(monkeypatch)
    code, out, _ = translate(
        f"checkpoint={run}", f"input={source}", "output=-", "decoding.batch_tokens=1", "decoding.draft=none"
    )
    assert code == 130
    assert [json.loads(line)["id"] for line in out.splitlines()] == [d["id"] for d in DOCUMENTS[:2]]


def test_a_model_of_segments_translates_segments(translate, tmp_path):
    """As in training, unless a mode is given or documents are cut."""
    alone = make_run(tmp_path / "run", {"data": {"level": "segment"}})
    source, found = write_corpus(tmp_path) / "test.jsonl", {}
    for name, given in {"own": [], "document": ["mode=document"], "cut": ["max_tokens=9"]}.items():
        output = tmp_path / f"{name}.jsonl"
        code, *_ = translate(f"checkpoint={alone}", f"input={source}", f"output={output}", *given)
        assert code == 0
        found[name] = [json.loads(line)["hypothesis"] for line in output.read_text(encoding="utf-8").splitlines()]
    assert found == {
        "own": expected(alone, mode="segment"),
        "document": expected(alone),
        "cut": expected(alone, max_tokens=9),
    }
    assert found["own"] != found["document"]
