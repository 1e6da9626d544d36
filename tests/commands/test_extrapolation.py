"""The command: one system and several, files that sacrebleu scores the same, and one-line errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands.calls import error_line, run_command
from tests.runs import DOCUMENTS, make_run, write_corpus

ROOT = Path(__file__).parents[2]
SHORT = (
    "decoding.max_length_ratio=0.6",
    "decoding.max_length_offset=4",
    "bootstrap_samples=20",
    "randomization_trials=20",
)


@pytest.fixture
def corpus(tmp_path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path, corpus) -> Path:
    data = {"format": "jsonl", "path": str(corpus), "max_tokens": 24}
    return make_run(tmp_path / "run", {"data": data, "metrics": {"tokenize": "none", "lowercase": False}})


@pytest.fixture
def evaluate(monkeypatch, capsys):
    """The script in this process: exit code, stdout, stderr."""
    return partial(run_command, monkeypatch, capsys, "extrapolation")


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "extrapolation.json").read_text(encoding="utf-8"))


def keys(value: Any, free: tuple[str, ...] = ("versions", "decoding", "signatures")) -> set[str]:
    """All keys of a result, except inside objects whose keys are not part of the format."""
    if isinstance(value, dict):
        inner = (keys(item) for key, item in value.items() if key not in free)
        return set(value).union(*inner)
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_one_system(run, evaluate):
    code, out, err = evaluate(f"checkpoint={run}", *SHORT)
    assert code == 0, err
    results = run / "results"
    found = read(results)
    assert [length["label"] for length in found["lengths"]] == ["segment", "12-tokens", "24-tokens", "whole"]
    assert [length["times"] for length in found["lengths"]] == [None, 0.5, 1.0, None]
    assert [entry["label"] for entry in found["left_out"]] == [f"{n}-tokens" for n in (6, 48, 96, 192, 384)]
    assert len(found["results"]) == 4 * 3
    assert found["checkpoint"]["path"].endswith("best.ckpt")
    assert found["settings"]["window"] == {"unit": "tokens", "size": 24, "context": 12}
    assert found["settings"]["decoding"]["strategy"] == "greedy"
    assert found["settings"]["decoding"]["max_length_ratio"] == 0.6
    assert "tok:none" in found["signatures"]["d-BLEU"]
    for text in ("24-tokens x1", "chrF++", "left out: 48-tokens (48 tokens: longer than all test documents together"):
        assert text in out
    assert (results / "extrapolation.png").is_file()
    assert "segment: loss" in err


def test_the_format_is_the_one_described(run, evaluate, tmp_path):
    code, _, err = evaluate(
        f"checkpoint=[{run},{run}]", "names=[a,b]", f"output={tmp_path}", "lengths=[20,whole]", *SHORT
    )
    assert code == 0, err
    text = (ROOT / "docs" / "result-files.md").read_text(encoding="utf-8")
    found = keys(read(tmp_path))
    undescribed = [key for key in found if f"`{key}`" not in text and f'"{key}"' not in text]
    assert not undescribed
    section = text.split("## extrapolation.json")[1].split("\n## ")[0]
    described = {
        key for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    }
    assert described <= found


def test_sacrebleu_gives_the_same_numbers(run, evaluate):
    assert evaluate(f"checkpoint={run}", "lengths=[whole]", "modes=[pass,segments]", *SHORT)[0] == 0
    results = run / "results"
    for row in read(results)["results"]:
        decode, theirs = row["decode"], {}
        for prefix, metrics in (("", ["bleu", "chrf"]), ("segment_", ["bleu", "chrf"])):
            references, hypotheses = (results / decode[f"{prefix}{side}"] for side in ("references", "hypotheses"))
            flags = ["-tok", "none", "--chrf-word-order", "2", "-w", "15", "-f", "json"]
            command = [sys.executable, "-m", "sacrebleu", references, "-i", hypotheses, "-m", *metrics, *flags]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for score in found if isinstance(found, list) else [found]:
                theirs[prefix + score["name"]] = score
        names = {"d-BLEU": "BLEU", "s-BLEU": "segment_BLEU", "chrF++": "segment_chrF2++"}
        names["d-chrF++"] = "chrF2++"
        for ours in decode["scores"]:
            assert ours["score"] == pytest.approx(theirs[names[ours["metric"]]]["score"], rel=0, abs=1e-12)
            assert ours["signature"] == theirs[names[ours["metric"]]]["signature"]


def test_several_systems(run, evaluate, tmp_path):
    other = make_run(tmp_path / "other", {"data": {"max_tokens": 24}})
    with torch.no_grad():
        content = torch.load(other / "checkpoints" / "best.ckpt", weights_only=True)
        for weight in content["state_dict"].values():
            weight.mul_(1.5)
        torch.save(content, other / "checkpoints" / "best.ckpt")
    arguments = (f"checkpoint=[{run},{other}]", "segments=[1,2]", "modes=[pass]", f"output={tmp_path / 'both'}", *SHORT)
    code, out, err = evaluate(*arguments)
    assert code == 0, err
    found = read(tmp_path / "both")
    assert [system["name"] for system in found["systems"]] == ["run", "other"]
    assert found["checkpoint"] is None
    assert {(r["system"], r["length"]) for r in found["results"]} == {
        (system, length) for system in ("run", "other") for length in ("segment", "2-segments")
    }
    assert len(found["comparisons"]) == 4
    assert {c["baseline"] for c in found["comparisons"]} == {"run"}
    assert "other" in out
    assert not (run / "results").exists()
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "both" / "extrapolation" / "cache").iterdir()}
    code, _, err = evaluate(*arguments)
    assert code == 0
    assert "translation" not in err
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "both" / "extrapolation" / "cache").iterdir()} == before


def test_only_the_loss_of_some_documents(run, evaluate):
    code, out, err = evaluate(f"checkpoint={run}", "decode=false", "lengths=[segment]", "documents=4", "seed=3")
    assert code == 0, err
    assert "segment: 4 of 6 documents, seeded sample" in out
    found = read(run / "results")
    assert all(r["decode"] is None and len(r["loss"]["documents"]) == 4 for r in found["results"])
    assert found["settings"]["documents"] == 4


BAD = {
    "too long": (["lengths=[999]"], "999 tokens: longer than all test documents together"),
    "no length": (["lengths=[long]"], "lengths has 'long': each must be an int of at least 3, segment or whole"),
    "metrics": (["metrics.tokenize=best"], "metrics.tokenize is 'best': it must be one of auto, 13a, "),
    "no mode": (["modes=[]"], "modes is []: it must be one of pass, segments, window or nonempty list of one of"),
    "mode": (["modes=[page]"], "modes is ['page']: it must be one of pass, segments, window"),
    "window": (["window.size=4", "window.context=9"], "window.context is 9: it must be below window.size, 4"),
    "split": (["split=valid"], "'valid' split; present: test"),
    "names": (["names=[a,b]"], "2 names for 1 checkpoints"),
    "nothing": (["loss=false", "decode=false"], "set one of them to true"),
    "key": (["length=[3]"], "length: no such setting (did you mean lengths?); there are "),
    "documents": (["documents=0"], "documents is 0: it must be an int of at least 1 or null"),
    "documents in words": (["documents=abc"], "documents is 'abc': it must be an int of at least 1 or null"),
    "loss_tokens": (["loss_tokens=abc"], "loss_tokens is 'abc': it must be an int of at least 1"),
    "window.size": (["window.size=abc"], "window.size is 'abc': it must be an int of at least 1 or null"),
    "window alone": (
        ["window=5"],
        "window is '5': it must be a group of settings: window.unit, window.size, window.context",
    ),
    "window.unit alone": (["window.unit=segments"], "window.unit=segments: needs a size"),
    "half a length": (["lengths=1.5"], "lengths has 1.5: each must be an int of at least 3"),
    "loss": (["loss=perhaps"], "loss is 'perhaps': it must be a bool"),
    "max_documents": (["max_documents=0"], "max_documents is 0: it must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line(run, evaluate, name):
    changes, message = BAD[name]
    assert message in error_line(evaluate(f"checkpoint={run}", *changes))
    assert not (run / "results").exists()


def test_several_systems_need_names_and_a_folder(run, evaluate, tmp_path):
    code, _, err = evaluate(f"checkpoint=[{run},{run}]")
    assert (code, err) == (1, f"error: {run}: given 2 times: give each run once\n")
    code, _, err = evaluate(f"checkpoint=[{run},{run}]", "names=[a,b]")
    assert (code, err) == (1, "error: several systems: set output=DIR for their results\n")


def test_a_checkpoint_without_a_tokenizer(run, evaluate):
    path = run / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    del content["scaleformer"]["target_tokenizer"]
    torch.save(content, path)
    code, _, err = evaluate(f"checkpoint={run}")
    assert code == 1
    assert re.fullmatch(r"error: .*best\.ckpt: .*tokenizer.*\n", err)


def test_other_segment_counts_in_the_test_file(run, corpus, evaluate):
    write_corpus(corpus, "test", [{**DOCUMENTS[0], "target": ["die katze"]}])
    code, _, err = evaluate(f"checkpoint={run}")
    assert code == 1
    assert "2 source segments and 1 target segments: align them one to one" in err


def test_a_checkpoint_without_a_trained_length(tmp_path, corpus, evaluate):
    run = make_run(tmp_path / "bare")
    data = ("data=jsonl", f"data.path={corpus}")
    code, _, err = evaluate(f"checkpoint={run}", *data, "modes=[pass]")
    assert (code, err.count("\n")) == (1, 1)
    assert "set lengths or segments" in err
    code, _, err = evaluate(f"checkpoint={run}", *data, "segments=[2]", "window.size=2", "window.unit=segments", *SHORT)
    assert code == 0, err
