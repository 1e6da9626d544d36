"""A run on two tagged corpora: stopped, resumed, validated, tested, evaluated by corpus, and used to translate."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from scaleformer import Translator
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.text.documents import Document
from scaleformer.training import run as training
from tests.commands.calls import error_line, run_command
from tests.trainings import FAST, Command, configure, only_line, read_metrics, weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
TIMES = ("train/tokens_per_second", "train/data_share")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> str:
    """data.corpora of two languages; the second has no test split."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, language, train in (("one", 1, 40), ("two", 2, 30)):
        (folder / name).mkdir()
        config = SyntheticConfig(seed=language, language=language, train=train, valid=3, test=2, segments=(1, 3))
        for split in ("train", "valid", *(("test",) if name == "one" else ())):
            lines = [Document(d.id, d.source, d.target).to_json() for d in generate(config, split)]
            (folder / name / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    one = f"{{path:{folder}/one,weight:3,tag:2es,target_language:es}}"
    return f"data.corpora={{one:{one},two:{{path:{folder}/two,weight:1,tag:2zh,streaming:true,target_language:zh}}}}"


def settings(corpora: str) -> tuple[str, ...]:
    options = ("data=jsonl", corpora, *FAST[:1], *FAST[2:], "model.dropout=0.1", "trainer.val_check_interval=2")
    return (*options, "data.max_tokens=60", "tokenizer.vocab_size=440", "callbacks.validation_bleu.examples=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, cache: Path, corpora: str) -> Path:
    """Of six steps, with an evaluation."""
    folder = tmp_path_factory.mktemp("run") / "run"
    options = (*settings(corpora), "trainer.max_steps=6", "test.enabled=true", "decoding.max_length_ratio=0.1")
    training.run(configure(folder, cache, *options))
    return folder


def test_a_stopped_run_resumes_bit_for_bit(run: Path, tmp_path: Path, cache: Path, corpora: str) -> None:
    parts = tmp_path / "parts"
    for steps, more in ((3, ()), (6, (f"resume={parts}",))):
        options = (*settings(corpora), f"trainer.max_steps={steps}", "test.enabled=false", *more)
        training.run(configure(parts, cache, *options))
    assert read_metrics(parts, *TIMES)[-1] == read_metrics(run, *TIMES)[-1]
    expected = weights(run)
    assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts).items())


def test_validation_and_evaluation_are_by_corpus(run: Path) -> None:
    last = read_metrics(run)[-1]
    losses = [float(last[f"val/loss/{name}"]) for name in ("one", "two")]
    assert min(losses) < float(last["val/loss"]) < max(losses)
    for metric in ("bleu", "chrf"):
        scores = [float(last[f"val/{metric}/{name}"]) for name in ("one", "two")]
        assert float(last[f"val/{metric}"]) == pytest.approx(sum(scores) / 2)
    names = {path.name for path in (run / "results").iterdir()}
    assert "bleu-one-test.json" in names
    assert not [name for name in names if "two" in name or name.startswith("bleu-test")]
    corpus = json.loads((run / "results" / "bleu-one-test.json").read_text())["corpus"]
    assert (corpus["name"], corpus["split"], corpus["tag"]) == ("one", "test", "2es")
    data = json.loads((run / "results" / "data.json").read_text())
    assert {name: own["share"] for name, own in data["corpora"].items()} == {"one": 0.75, "two": 0.25}
    assert sum(own["examples"] for own in data["corpora"].values()) > 6
    assert set(data["splits"]) == {"one: train", "one: valid", "two: train (first window)", "two: valid"}


def test_evaluate_shows_each_corpus_that_has_the_split(run: Path, monkeypatch, capsys, tmp_path: Path) -> None:
    evaluate = partial(run_command, monkeypatch, capsys, "evaluate")
    code, out, err = evaluate(f"checkpoint={run}", "split=valid", f"output={tmp_path}", "ter=false")
    assert code == 0, err
    assert "one-valid: 3 documents" in out
    assert "two-valid: 3 documents" in out
    found = [json.loads((tmp_path / f"bleu-{name}-valid.json").read_text()) for name in ("one", "two")]
    assert [result["metrics"]["tokenize"] for result in found] == ["13a", "zh"]
    assert [result["corpus"]["tag"] for result in found] == ["2es", "2zh"]
    for command in ("boundaries", "extrapolation"):
        line = error_line(run_command(monkeypatch, capsys, command, f"checkpoint={run}"))
        assert "there are several corpora, one, two: choose one with data=jsonl data.path=DIR" in line


def test_translations_need_a_known_tag(run: Path, monkeypatch, capsys, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("geka vira .\n")
    translate = partial(run_command, monkeypatch, capsys, "translate")
    given = (f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out.txt'}")
    assert translate(*given, "tag=2zh")[0] == 0
    assert "all training data of the model had a tag: give tag=, one of 2es, 2zh" in error_line(translate(*given))
    unknown = error_line(translate(*given, "tag=2fr"))
    assert "tag='2fr': the model knows no such tag; it knows 2es, 2zh" in unknown
    translator = Translator.load(run)
    before = {tag: translator.tag_tokens(tag) for tag in ("2es", "<2es>", "2zh")}
    assert before["2es"] == before["<2es>"] != before["2zh"]
    assert Translator.load(run, tag="2zh").tag_tokens() == before["2zh"]
    with pytest.raises(ValueError, match="one of 2es, 2zh"):
        translator.translate([["geka"]])


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (("data.corpora={a:{path:x},a:{path:y}}",), "data.corpora: a is given twice: give each a different name"),
        (("data.corpora={a:{path:x,weight:0}}",), "data.corpora.a.weight is 0: it must be a float above 0"),
        (("data.corpora={a:{path:/none}}",), "data.corpora.a: /none: no such file or folder (data.path)"),
        (("data.corpora=3",), "data.corpora is 3: it must be {name: value} or null"),
        (("data.path=x", "data.tag=sep"), "data.tag is 'sep': <sep> is a reserved piece"),
    ],
)
def test_mistakes_end_in_one_line(command: Command, overrides: tuple[str, ...], line: str) -> None:
    assert line in only_line(command("data=jsonl", *overrides))


def test_a_tag_missing_from_the_vocabulary_of_the_parent(
    run: Path, command: Command, corpora: str, tmp_path: Path
) -> None:
    given: tuple[Any, ...] = (*settings(corpora), f"init_from={run}", f"hydra.run.dir={tmp_path}/child")
    line = only_line(command(*given, "data.corpora.one.tag=2fr"))
    assert "data.tag=2fr: the vocabulary that training starts with has no such piece: its tags are 2es, 2zh" in line
