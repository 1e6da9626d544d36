"""Result files are complete or absent, and state the conditions of their numbers."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from scaleformer.system.provenance import provenance, remember_command, write_result


def test_provenance_is_complete(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/evaluate_bleu.py", "checkpoint='a run'"])
    remember_command(["checkpoint=a run"])
    facts = provenance("cpu", 3, "runs/a/best.ckpt", "abc", {"d-BLEU": "nrefs:1"})
    assert facts["command"] == "python scripts/evaluate_bleu.py 'checkpoint=a run'"
    assert torch.__version__.startswith(facts["versions"]["torch"])  # some builds add +cpu or +cu130 to it
    assert {"python", "sacrebleu", "scaleformer"} <= set(facts["versions"])
    assert facts["device"]["type"] == "cpu"
    assert facts["device"]["threads"] == torch.get_num_threads()
    assert facts["seed"] == 3
    assert facts["checkpoint"] == {"path": "runs/a/best.ckpt", "sha256": "abc"}
    assert facts["signatures"] == {"d-BLEU": "nrefs:1"}


@pytest.mark.parametrize("program", ["/x/.venv/bin/scaleformer", "/x/scaleformer/__main__.py"])
def test_the_command_is_what_was_typed(monkeypatch, program):
    monkeypatch.setattr(sys, "argv", [program, "checkpoint='a run'"])
    remember_command(["plot", "output=DIR", "runs=[a,b]"])
    assert provenance()["command"] == "scaleformer plot output=DIR 'runs=[a,b]'"


def test_the_command_of_a_module_has_its_name(monkeypatch):
    monkeypatch.setattr("scaleformer.system.provenance._typed", [])
    monkeypatch.setattr(sys, "argv", ["/x/scripts/bench_attention/__main__.py", "--part", "long"])
    monkeypatch.setattr(sys, "orig_argv", ["/y/python3", "-m", "scripts.bench_attention", "--part", "long"])
    assert provenance()["command"] == "python -m scripts.bench_attention --part long"


def test_a_result_can_be_read_back(tmp_path):
    path = write_result(tmp_path / "results" / "x.json", {"score": 0.1, "text": "año", "of": (1, 2)})
    assert json.loads(path.read_text(encoding="utf-8")) == {"score": 0.1, "text": "año", "of": [1, 2]}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_values_json_cannot_hold_keep_the_old_file(tmp_path):
    path = write_result(tmp_path / "x.json", {"score": 1})
    for payload in ({"score": float("nan")}, {"score": object()}):
        with pytest.raises(ValueError, match=r"x\.json: the result cannot be written as JSON"):
            write_result(path, payload)
    assert json.loads(path.read_text()) == {"score": 1}
