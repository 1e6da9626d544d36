"""Settings that do not exist, and values that are empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.calls import error_of


@pytest.mark.parametrize(
    ("command", "override", "line"),
    [
        (
            "translate",
            "decoding.beam=5",
            "decoding.beam: no such setting (did you mean decoding.beam_size?); there",
        ),
        ("translate", "beam=5", "beam: no such setting (did you mean decoding.beam_size?); there are decoding, "),
        ("translate", "lr=1", "lr: no such setting; there are decoding, checkpoint"),
        ("train", "lr=1", "lr: no such setting (did you mean optimizer.learning_rate?); there are seed, "),
        ("train", "batch_size=8", "batch_size: no such setting (did you mean data.batch_tokens?)"),
        ("train", "epochs=8", "epochs: no such setting (did you mean +trainer.max_epochs?)"),
        (
            "train",
            "data.max_token=8",
            "data.max_token: no such setting (did you mean data.max_tokens?); there are path",
        ),
        ("train", "trainer.max_epochs=1", "trainer.max_epochs: no such setting (did you mean +trainer.max_epochs?)"),
        ("train", "optimizer.warmup_steps=8", "optimizer.warmup_steps: no such setting (did you mean schedule.warmup_"),
    ],
)
def test_a_misspelt_setting_suggests_the_closest(capsys, monkeypatch, tmp_path: Path, command, override, line) -> None:
    monkeypatch.chdir(tmp_path)
    places = ["checkpoint=x", "input=y", "output=z"] if command == "translate" else []
    said = error_of(capsys, monkeypatch, command, *places, override)
    assert said.startswith(line)
    assert said.endswith("may have others)") == ("." in override)


def test_a_setting_of_a_corpus_that_is_not_chosen(capsys, monkeypatch) -> None:
    said = error_of(capsys, monkeypatch, "evaluate", "checkpoint=x", "data.path=x")
    assert said.startswith("data: the corpus is that of the run: for another one add data=jsonl or data=text")
    said = error_of(capsys, monkeypatch, "train", "data.corpora.a.path=x")
    assert said == "data.corpora.a: data.corpora has no settings yet: give it whole, as in data.corpora='{a: ...}'"


def test_a_value_that_is_empty_is_refused(capsys, monkeypatch) -> None:
    for given, name in ((("input=", "output=x"), "input"), (("input=[a,'']", "output=x"), "input")):
        said = error_of(capsys, monkeypatch, "translate", "checkpoint=x", *given)
        assert said.startswith(f"{name}=: empty: give a value, or leave it out: scaleformer translate")
