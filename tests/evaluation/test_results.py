"""Result files are whole or not there, and say how their numbers came about."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from scaleformer.evaluation.results import atomic_writer, device_in_words, provenance, write_result


def test_provenance_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/evaluate_bleu.py", "checkpoint=a run"])
    facts = provenance("cpu", 3, "runs/a/best.ckpt", "abc", {"d-BLEU": "nrefs:1"})
    assert facts["command"] == "python scripts/evaluate_bleu.py 'checkpoint=a run'"
    assert torch.__version__.startswith(facts["versions"]["torch"])  # some builds add +cpu or +cu130 to it
    assert {"python", "sacrebleu", "scaleformer"} <= set(facts["versions"])
    assert facts["device"]["type"] == "cpu"
    assert facts["device"]["threads"] == torch.get_num_threads()
    assert facts["seed"] == 3
    assert facts["checkpoint"] == {"path": "runs/a/best.ckpt", "sha256": "abc"}
    assert facts["signatures"] == {"d-BLEU": "nrefs:1"}


def test_a_result_comes_back(tmp_path):
    path = write_result(tmp_path / "results" / "x.json", {"score": 0.1, "text": "año", "of": (1, 2)})
    assert json.loads(path.read_text(encoding="utf-8")) == {"score": 0.1, "text": "año", "of": [1, 2]}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_what_json_cannot_hold_leaves_the_old_file(tmp_path):
    path = write_result(tmp_path / "x.json", {"score": 1})
    for payload in ({"score": float("nan")}, {"score": object()}):
        with pytest.raises(ValueError, match=r"x\.json: the result cannot be written as JSON"):
            write_result(path, payload)
    assert json.loads(path.read_text()) == {"score": 1}


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_writer(path) as file:
            file.write("new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_gzip_by_name(tmp_path):
    with atomic_writer(tmp_path / "out.jsonl.gz") as file:
        file.write("año\n")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode() == "año\n"


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    (tmp_path / "real").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with atomic_writer(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    with atomic_writer(os.devnull) as file:
        file.write("gone")
    assert not Path(os.devnull).is_file()


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(OSError, match="is a folder"), atomic_writer(tmp_path):
        pass


def test_a_device_in_words():
    assert device_in_words({"type": "cpu", "name": "AMD EPYC", "threads": 2}) == "AMD EPYC, threads 2"
    assert device_in_words({"type": "cuda", "name": "H200"}) == "H200"
