"""COMET with a stand-in for its package: its input, its output, and the message without it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from scaleformer.evaluation.comet import comet_score, cut_lines, load_comet
from scaleformer.evaluation.saved_translations import read_translations, windows_of
from tests.commands.calls import run_command
from tests.results import TRANSLATIONS


class Overlap:
    """A simple metric: the share of the reference's words that the hypothesis has."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: list[dict[str, Any]] = []

    def predict(self, data: list[dict[str, str]], batch_size: int, gpus: int) -> SimpleNamespace:
        self.calls.append({"data": data, "batch_size": batch_size, "gpus": gpus})
        scores = [len(set(d["mt"].split()) & set(d["ref"].split())) / max(len(set(d["ref"].split())), 1) for d in data]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


class Unreferenced(Overlap):
    """A score of source and translation alone: the ratio of their words, 1 at most."""

    def predict(self, data: list[dict[str, str]], batch_size: int, gpus: int) -> SimpleNamespace:
        assert all(set(d) == {"src", "mt"} for d in data)
        scores = [min(1.0, len(d["src"].split()) / len(d["mt"].split())) for d in data]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def package(monkeypatch) -> ModuleType:
    """`comet` as in unbabel-comet, as far as we use it."""
    module: Any = ModuleType("comet")
    module.__version__ = "2.2.0"
    module.models = []

    def download_model(name: str) -> str:
        if name == "nothing/there":
            raise KeyError("nothing/there")
        return f"/cache/{name}"

    def load_from_checkpoint(path: str) -> Overlap:
        module.models.append(Overlap(path))
        return module.models[-1]

    module.download_model, module.load_from_checkpoint = download_model, load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    return module


def test_lines_go_in_and_scores_come_out(package, tmp_path: Path):
    score = comet_score(load_comet(), ["s", "t"], ["a b", "c"], ["a b", "c d"], batch_size=3, gpus=1)
    assert (score.score, score.lines) == (0.75, (1.0, 0.5))
    assert (score.model, score.version) == ("Unbabel/wmt22-comet-da", "2.2.0")
    (model,) = package.models
    assert model.path == "/cache/Unbabel/wmt22-comet-da"
    data = [{"src": "s", "mt": "a b", "ref": "a b"}, {"src": "t", "mt": "c", "ref": "c d"}]
    assert model.calls == [{"data": data, "batch_size": 3, "gpus": 1}]
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.touch()
    comet_score(load_comet(checkpoint), ["s"], ["a"], ["a"], checkpoint)
    assert package.models[-1].path == str(checkpoint)


def test_a_model_that_needs_no_reference_gets_none(package):
    package.load_from_checkpoint = lambda path: Unreferenced(path)
    score = comet_score(load_comet(), ["s", "t v"], ["a b", "c"], None)
    assert score.lines == (0.5, 1.0)
    with pytest.raises(ValueError, match="1 src, 2 mt"):
        comet_score(load_comet(), ["s"], ["a", "b"], None)


def test_faults_are_reported(package, monkeypatch):
    with pytest.raises(ValueError, match=r"COMET model nothing/there: 'nothing/there' \(wanted a name"):
        load_comet("nothing/there")
    with pytest.raises(ValueError, match="1 src, 0 mt, 1 ref"):
        comet_score(load_comet(), ["s"], [], ["a"])
    for absent in (None, ModuleType("comet")):  # missing, or another package of the same name
        monkeypatch.setitem(sys.modules, "comet", absent)
        with pytest.raises(ValueError, match="COMET is not installed: pip install unbabel-comet"):
            load_comet()


def test_the_command(package, tmp_path: Path, monkeypatch, capsys):
    path = tmp_path / "bleu-test.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in TRANSLATIONS), encoding="utf-8")
    code, out, err = run_command(monkeypatch, capsys, "comet", f"translations={path}")
    assert code == 0, err
    result = json.loads((tmp_path / "comet-test.json").read_text(encoding="utf-8"))
    assert result["segments"] == pytest.approx([2 / 3, 1, 1])
    assert result["signatures"]["COMET"] == "model:Unbabel/wmt22-comet-da|version:2.2.0"
    assert (result["checkpoint"], result["seed"]) == (None, None)  # no result file says where they come from
    assert f"COMET {result['score']:.4f}" in out
    uneven = {**TRANSLATIONS[0], "id": "uneven", "source": ["a"], "target": ["x", "y"]}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(uneven) + "\n")
    code, out, err = run_command(monkeypatch, capsys, "comet", f"translations={path}")
    assert code == 0, err
    assert "left out, because the segment counts of source and reference differ: uneven" in out
    again = json.loads((tmp_path / "comet-test.json").read_text(encoding="utf-8"))
    assert (again["segments"], again["left_out"]) == (result["segments"], ["uneven"])
    monkeypatch.setitem(sys.modules, "comet", None)
    code, _, err = run_command(monkeypatch, capsys, "comet", f"translations={path}")
    assert (code, err.count("\n")) == (1, 1)
    assert "pip install unbabel-comet" in err


def test_windows_of_segments(package, tmp_path: Path, monkeypatch, capsys):
    """Windows lie within documents; the last one ends with its document; a shorter document is one window."""
    words = [f"w{n}" for n in range(5)]
    long = {"id": "long", "source": words, "target": words, "hypothesis": [*words[:4], "x"]}
    path = tmp_path / "bleu-test.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (long, TRANSLATIONS[1])), encoding="utf-8")
    lines = windows_of(read_translations(path), 2, 2)
    assert lines.references == ["w0 w1", "w2 w3", "w3 w4", "das haus"]
    assert lines.hypotheses == ["w0 w1", "w2 w3", "w3 x", "das haus"]
    assert windows_of(read_translations(path), 1).hypotheses == [*long["hypothesis"], "das haus"]
    code, out, err = run_command(monkeypatch, capsys, "comet", f"translations={path}", "window=2", "stride=2")
    assert code == 0, err
    result = json.loads((tmp_path / "comet-test-window2.json").read_text(encoding="utf-8"))
    assert (result["window"], result["stride"], result["segments"]) == (2, 2, [1, 1, 0.5, 1])
    assert "4 windows of 2 segments" in out
    code, _, err = run_command(monkeypatch, capsys, "comet", f"translations={path}", "window=0")
    assert (code, err) == (1, "error: window is 0: it must be an int of at least 1\n")


class Reader:
    """An encoder that reads nine tokens of a text: words, and one at either end."""

    max_positions, size_separator = 11, 2

    @staticmethod
    def tokenizer(texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [[0, *range(len(text.split())), 1] for text in texts]}


def test_a_window_longer_than_the_model_reads_is_made_smaller(package, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setattr(Overlap, "encoder", Reader, raising=False)
    joined = SimpleNamespace(encoder=Reader, concat_inputs=None)  # a line of 3 + 3 + 4 with ends, 11 - 1 - 6 are read
    assert [cut_lines(one, ["a"], ["b"], ["c d"]) for one in (load_comet(), joined)] == [0, 1]
    assert cut_lines(load_comet(), ["a " * 7, "a"], ["a", "a " * 8], ["a", "a"]) == 1
    path = tmp_path / "bleu-test.jsonl"

    def scored(segments: list[str], window: int) -> dict[str, Any]:
        record = {"id": "a", "source": segments, "target": segments, "hypothesis": segments}
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        code, _, err = run_command(monkeypatch, capsys, "comet", f"translations={path}", f"window={window}", "stride=4")
        assert code == 0, err
        [found] = tmp_path.glob("comet-*.json")
        result = json.loads(found.read_text(encoding="utf-8"))
        found.unlink()
        return {key: result[key] for key in ("window", "stride", "cut")} | {"texts": len(result["segments"])}

    assert scored(["a b"] * 8, 3) == {"window": 3, "stride": 4, "cut": 0, "texts": 3}
    assert scored(["a b"] * 8, 6) == {"window": 3, "stride": 3, "cut": 0, "texts": 3}
    assert "window=6: longer than Unbabel/wmt22-comet-da reads: window=3 instead" in caplog.text
    assert scored([*["a b"] * 7, "a " * 9], 3)["cut"] == 1
    assert "reads only the beginning of 1 of" in caplog.text
