"""Models pushed to a stand-in for the Hugging Face Hub, and loaded from there by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
import yaml

from scaleformer.checkpoints.model_file import find_checkpoint, load_model
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.run import build
from scaleformer.translation.translator import Translator
from tests.commands.calls import error_line, run_command
from tests.hub import Hub, served
from tests.runs import DOCUMENTS, make_run
from tests.trainings import configure

NAME = "people/small-en-de"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with served() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # the stand-in is at hand
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_tests")
        monkeypatch.chdir(tmp_path)
        yield hub


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = {"format": "text", "path": "/home/somebody/manuals", "source_suffix": "en", "target_suffix": "de"}
    run = make_run(tmp_path / "run", {"data": data, "seed": 3})
    found = load_model(run)
    score = {"metric": "d-BLEU", "score": 31.256, "signature": "nrefs:1|tok:13a"}
    result = {
        "checkpoint": {"sha256": found.sha256},
        "corpus": {"name": "manuals"},
        "split": "test",
        "documents": 1200,
        "scores": [score],
        "decoding": {"strategy": "beam", "beam_size": 5},
        "mode": "document",
        "unfinished": ["one"],
        "seed": 3,
        "versions": {"torch": "2.13"},
        "device": {"name": "a processor"},
    }
    other = {**result, "checkpoint": {"sha256": "of another"}, "split": "valid"}
    split = {"documents": 7, "segments": 21, "source_tokens": 1234, "target_tokens": 2345}
    report = {"splits": {"train": split}, "fingerprint": {"train": "abc"}}
    (run / "results").mkdir()
    for name, content in (("bleu-test", result), ("bleu-valid", other), ("data", report)):
        (run / "results" / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return run


def export(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    return run_command(monkeypatch, capsys, "export", *arguments)


def test_a_pushed_model_loads_by_name(run: Path, hub: Hub, tmp_path: Path, monkeypatch, capsys, cache: Path) -> None:
    code, out, err = export(monkeypatch, capsys, f"checkpoint={run}", f"push={NAME}", "license=cc-by-4.0")
    assert (code, err) == (0, "")
    assert f"to {hub.endpoint}/{NAME}: scaleformer translate checkpoint={NAME}" in out
    assert hub.private == {NAME}
    names = {"README.md", "config.yaml", "model.safetensors", "source.model", "target.model"}
    assert set(hub.models[NAME]) == names
    sources = [document["source"] for document in DOCUMENTS]
    there = Translator.load(NAME, "cpu")
    assert there.translate(sources) == Translator.load(run, "cpu").translate(sources)
    commit = hub.commit(NAME)
    assert find_checkpoint(f"{NAME}@{commit}") == find_checkpoint(NAME) == there.path
    with SignalWatch() as signals:
        options = ("tokenizer.vocab_size=290", "model/attention=segment_recall", f"init_from={NAME}")
        parts = build(configure(tmp_path / "child", cache, *options), signals)
    assert parts.module.package["parent"]["sha256"] == there.sha256
    weights = parts.module.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in there.model.state_dict().items())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert find_checkpoint(NAME) == there.path  # from the cache


def test_the_card_says_what_the_model_is(run: Path, hub: Hub, monkeypatch, capsys) -> None:
    export(monkeypatch, capsys, f"checkpoint={run}", f"push={NAME}", "license=cc-by-4.0", "private=false")
    assert not hub.private
    files = {name: content.decode() for name, content in hub.models[NAME].items() if name.endswith((".md", ".yaml"))}
    _, metadata, card = files["README.md"].split("---\n", 2)
    assert yaml.safe_load(metadata) == {
        "license": "cc-by-4.0",
        "library_name": "scaleformer",
        "pipeline_tag": "translation",
        "tags": ["document-translation", "segment_recall"],
        "language": ["en", "de"],
    }
    for text in (
        f"# {NAME}\n",
        f"`{load_model(run).sha256}`",
        "`manuals`",
        "| train | 7 | 21 | 1,234 | 2,345 |",
        "* sha256 of train: `abc`",
        "manuals test, 1,200 documents:",
        "| d-BLEU | 31.26 | `nrefs:1|tok:13a` |",
        "decoding: strategy beam, beam_size 5, mode document",
        "documents cut at the length limit: 1",
        "seed 3; torch 2.13; device: a processor",
        "## Licence\n\ncc-by-4.0\n",
    ):
        assert text in card
    assert "valid" not in card  # scores of other weights
    assert not any("somebody" in content for content in files.values())  # folders of this machine
    assert yaml.safe_load(files["config.yaml"])["config"]["data"]["path"] == "manuals"


def test_scores_of_other_options_are_not_those_of_the_model(run: Path, hub: Hub, monkeypatch, capsys) -> None:
    export(monkeypatch, capsys, f"checkpoint={run}", f"push={NAME}", "attention={kept: 8}")
    card = hub.models[NAME]["README.md"].decode()
    assert "None are known for these weights." in card
    assert "license: unknown" in card
    assert "Not given: ask the publisher of the model." in card


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no destination: give output=DIR, push=OWNER/NAME, or both"),
        (("push=small",), "push=small: wanted OWNER/NAME"),
        (("push=people/small@main",), "push=people/small@main: wanted OWNER/NAME"),
    ],
)
def test_wrong_destinations(run: Path, monkeypatch, capsys, arguments: tuple[str, ...], message: str) -> None:
    assert message in error_line(export(monkeypatch, capsys, f"checkpoint={run}", *arguments))


def test_a_refused_push_gives_one_line(run: Path, hub: Hub, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nowhere")
    error = error_line(export(monkeypatch, capsys, f"checkpoint={run}", f"push={NAME}"))
    assert f"push={NAME}: " in error
    assert "(set HF_TOKEN to your access token)" in error


def test_a_missing_model_gives_one_line(hub: Hub, tmp_path: Path) -> None:
    for name in ("people/none", f"{NAME}@old"):
        hub.models[NAME] = {"README.md": b""}
        with pytest.raises(
            ValueError, match=rf"^{name}: no such run directory, .* Hub does not provide it: ."
        ) as error:
            load_model(name)
        assert "\n" not in str(error.value)
    with pytest.raises(
        ValueError, match=r"not a scaleformer model: it has no model\.safetensors"
    ):  # a model of another program
        load_model(NAME)


def test_a_mistyped_file_is_not_looked_up_on_the_hub(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for path in ("runs/mistyped", "mistyped", "./people/model", tmp_path / "none", "a/b/c"):
        with pytest.raises(ValueError, match=r"no such run directory, checkpoint file or exported model$"):
            find_checkpoint(path)
    assert hub.asked == []
