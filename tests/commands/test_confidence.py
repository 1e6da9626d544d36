"""`scaleformer confidence`, and the page of `translate review=` that it makes possible."""

from __future__ import annotations

import json
import sys
from functools import partial
from html import escape
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import CHRF

from scaleformer.commands import confidence
from scaleformer.translation.confidence import Confidence, signs_of
from scaleformer.translation.translator import Translator
from tests.commands.calls import run_command
from tests.runs import make_run

pytest.importorskip("sklearn")


def write_split(folder: Path, name: str) -> list[dict]:
    generator = np.random.default_rng(len(name))
    words = ["the", "cat", "sees", "a", "dog", "runs", "house", "tree"]

    def text() -> str:
        return " ".join(generator.choice(words, 4))

    documents = [
        {"id": f"{name}{n}", "source": (some := [text() for _ in range(6)]), "target": [t[::-1] for t in some]}
        for n in range(10)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents), encoding="utf-8")
    return documents


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("train", "valid", "test"):
        write_split(folder, name)
    return folder


def test_it_is_learned_measured_and_used(monkeypatch, capsys, caplog, tmp_path, corpus):
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus)}})
    call = partial(run_command, monkeypatch, capsys)
    data = tmp_path / "page.md"
    data.write_text("# The cat sees\n\nA dog runs. The tree is 3 m.\n", encoding="utf-8")
    command = f"checkpoint={run}", f"input={data}", f"output={tmp_path / 'out.md'}", "source_language=en"
    review = f"review={tmp_path / 'review.html'}"
    code, _, err = call("translate", *command, review)
    assert code != 0
    assert "confidence.json: missing: `scaleformer confidence checkpoint=" in err
    assert not (tmp_path / "out.md").exists()
    code, _, err = call("confidence", f"checkpoint={run}", "calibrate=test")
    assert (code, "calibrate=test: is measured on split=test: name two splits" in err) == (1, True)

    code, out, err = call("confidence", f"checkpoint={run}", "threads=1")
    assert code == 0, err
    assert "Pearson" in out
    result = json.loads((run / "results" / "confidence-test.json").read_text())
    assert result["segments"] == 60
    assert sum(row["segments"] for row in result["reliability"]) == 60
    translator = Translator.load(run, "cpu")
    documents = [json.loads(line) for line in (corpus / "test.jsonl").read_text().splitlines()]
    found = translator.translate([d["source"] for d in documents])
    real = [
        CHRF(word_order=2).sentence_score(h, [t]).score
        for d, hypothesis in zip(documents, found, strict=True)
        for h, t in zip(hypothesis, d["target"], strict=True)
    ]
    mean = sum(row["real"] * row["segments"] for row in result["reliability"]) / 60
    assert mean == pytest.approx(np.mean(real))
    assert Confidence.of(translator).model == translator.sha256

    code, _, err = call("translate", *command, review)
    assert code == 0, err
    page = (tmp_path / "review.html").read_text(encoding="utf-8")
    assert page.count("<tr><td>") == 3
    assert "Read these 1 first" in page

    lines = tmp_path / "in.jsonl"
    source = ["the cat sees", "a dog runs", " ", "a tree"]
    lines.write_text(json.dumps({"id": "a", "source": source, "fixed": {"1": "un perro"}}) + "\n", encoding="utf-8")

    def written(*more: str, output: str = "out.jsonl") -> tuple[str, str]:
        command = f"checkpoint={run}", f"input={lines}", f"output={tmp_path / output}", "overwrite=true", *more
        code, _, err = call("translate", *command)
        assert code == 0, err
        return (tmp_path / output).read_text(encoding="utf-8"), caplog.text

    plain = json.loads(written()[0])
    assert "confidence" not in plain
    text, err = written("min_confidence=100")
    marked = json.loads(text)
    assert [value is None for value in marked["confidence"]] == [False, True, True, False]
    assert (marked["unsure"], marked["hypothesis"]) == ([0, 3], plain["hypothesis"])
    assert "confidence below 100: 2 segments, marked in XLIFF, PO and JSON Lines: a, segment 1, a, segment 4" in err
    text, err = written("min_confidence=100", "unsure=leave", review)
    left = json.loads(text)
    assert left["hypothesis"] == [source[0], "un perro", plain["hypothesis"][2], source[3]]
    assert "2 segments, left untranslated" in err
    page = (tmp_path / "review.html").read_text(encoding="utf-8")
    assert f"<td>{escape(plain['hypothesis'][0])}<td>" in page  # as the model wrote it
    assert json.loads(written("min_confidence=0")[0])["unsure"] == []

    code, _, err = call("translate", *command, "min_confidence=100", "unsure=leave", "overwrite=true")
    assert code == 0, err
    assert (tmp_path / "out.md").read_text(encoding="utf-8") == data.read_text(encoding="utf-8")
    code, _, err = call("translate", *command, "unsure=leave")
    assert "unsure=leave: min_confidence=40 (of 100) says of which segments: set both" in err


class Words:
    """Stands in for a COMET model: the longer a translation, the better. It reads 15 characters."""

    encoder = SimpleNamespace(tokenizer=lambda texts: {"input_ids": [[*text] for text in texts]}, max_positions=17)

    def predict(self, data: list[dict[str, str]], batch_size: int, gpus: int) -> SimpleNamespace:
        assert all(set(d) == {"src", "mt"} for d in data)
        return SimpleNamespace(scores=[float(len(d["mt"])) for d in data], system_score=0.0)


def test_a_peer_is_measured_beside_it(monkeypatch, capsys, tmp_path, corpus):
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus)}})
    comet: Any = ModuleType("comet")
    comet.__version__, comet.load_from_checkpoint = "2.2.7", lambda path: Words()
    comet.download_model = lambda name: name
    monkeypatch.setitem(sys.modules, "comet", comet)
    data = "data=jsonl", f"data.path={corpus}"
    code, out, err = run_command(monkeypatch, capsys, "confidence", f"checkpoint={run}", *data, "peer=some/kiwi")
    assert code == 0, err
    assert "some/kiwi: Pearson" in out
    result = json.loads((run / "results" / "confidence-test.json").read_text())
    peer = result.pop("peer")
    documents = [json.loads(line) for line in (corpus / "test.jsonl").read_text().splitlines()]
    sources = [d["source"] for d in documents]
    found = [text for document in Translator.load(run, "cpu").translate(sources) for text in document]
    real = [
        CHRF(word_order=2).sentence_score(text, [reference]).score
        for text, reference in zip(found, (t for d in documents for t in d["target"]), strict=True)
    ]
    assert peer["pearson"] == pytest.approx(np.corrcoef([len(text) for text in found], real)[0, 1])
    too_long = sum(len(s) > 15 or len(h) > 15 for s, h in zip((s for d in sources for s in d), found, strict=True))
    assert 0 < too_long < len(found)
    assert (peer["model"], peer["version"], peer["cut"]) == ("some/kiwi", "2.2.7", too_long)
    assert f"some/kiwi read only the beginning of {too_long} segments" in out
    assert set(result) >= {"auc", "pearson", "reliability"}


def test_a_tagged_model_is_calibrated_with_its_tag(monkeypatch, capsys, tmp_path, corpus):
    asked = []
    monkeypatch.setattr(confidence, "signs_of", lambda model, s, t, tag: asked.append(tag) or signs_of(model, s, t))
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus), "tag": "t"}})
    monkeypatch.setattr(Translator, "tag_tokens", lambda self, tag=None: [])
    code, _, err = run_command(monkeypatch, capsys, "confidence", f"checkpoint={run}", "threads=1")
    assert (code, asked) == (0, ["t", "t"]), err
