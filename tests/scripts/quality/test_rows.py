"""What is asked of our own training, and the table of the rows."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

from scaleformer.checkpoints.model_file import load_model
from scaleformer.cli.command import CONF
from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.vocabulary import EOS, SEP
from scripts.quality import rows
from scripts.quality.__main__ import main, parse
from scripts.quality.programs import DRIVERS, Failed, call, phase, run_program
from scripts.quality.rows import OUR_ROWS, ROWS, table, training_overrides, updates_of


@pytest.mark.parametrize("row", OUR_ROWS)
def test_our_training_ends_by_the_clock(tmp_path: Path, row: str) -> None:
    (plan,), _ = parse(["C", "--minutes", "61.5"])
    level, _, layers = OUR_ROWS[row]
    overrides = training_overrides(plan, level, tmp_path / "run", tmp_path / "cache", layers)
    with initialize_config_dir(str(CONF.resolve()), version_base=None):
        config: Any = compose("config", overrides)
    assert (config.trainer.max_time, config.trainer.max_steps) == ("00:01:01:30", -1)
    assert (config.schedule.name, config.optimizer.learning_rate) == ("inverse_sqrt", 2e-3)
    assert config.data.level == ("segment" if level == "sentences" else "document")
    wanted = {"6+2": (6, 2), "7+1": (7, 1)}.get(row.rpartition("-")[2], (4, 4))
    assert (config.model.encoder_layers, config.model.decoder_layers) == wanted
    share = {"staged": 0.8, "staged-0.6": 0.6, "staged-0.9-whole": 0.9, "growing": 0.8, "growing-0.9": 0.9}.get(row)
    if share is not None:
        first = {"max_tokens": 64} if "growing" in row else {"level": "segment"}
        assert config.data.stages == [{**first, "until": share}, {"level": "document"}]
    elif row in ("sentences", "documents", "whole"):
        assert config.data.stages is None


def test_as_many_updates_as_another_training(tmp_path: Path) -> None:
    (plan,), _ = parse(
        ["C", "--seeds", "2", "--like", str(tmp_path), "--schedule", "cosine", "--learning-rate", "5e-3"]
    )
    with pytest.raises(Failed, match=r"^--like: no such training: .*train\.json$"):
        updates_of(tmp_path)
    (tmp_path / "train.json").write_text('{"updates": 3766, "train_seconds": 3600.0}')
    for log, second, stages in (
        (
            "run\nstage 2 of 2 begins after step 3,118\n",
            3118,
            [{"max_tokens": 64, "until": 3118}, {"level": "document"}],
        ),
        ("run\n", None, None),
    ):
        (tmp_path / "train.log").write_text(log)
        like = updates_of(tmp_path)
        assert like == (3766, second)
        level = "growing-0.8" if second else "sentences"
        overrides = training_overrides(plan, level, tmp_path / "run", tmp_path / "cache", "", like)
        with initialize_config_dir(str(CONF.resolve()), version_base=None):
            config: Any = compose("config", overrides)
        assert (config.trainer.max_time, config.trainer.max_steps, config.data.stages) == (None, 3766, stages)
        assert (config.schedule.name, config.schedule.total_steps) == ("cosine", 3766)
        assert config.optimizer.learning_rate == 5e-3


def test_rows_of_several_seeds() -> None:
    plans, rows = parse(["C", "--output", "O", "--seeds", "1", "3", "--rows", "scaleformer-staged-whole"])
    assert [(plan.seed, plan.output, plan.environments) for plan in plans] == [
        (1, "O/seed-1", "O/environments"),
        (3, "O/seed-3", "O/environments"),
    ]
    assert rows == ["scaleformer-staged-whole"]
    assert [plan.output for plan in parse(["C", "--output", "O", "--seeds", "3"])[0]] == ["O"]
    results = [{**result("scaleformer", "staged-0.6-whole", 20, 60), "seed": seed} for seed in (3, 1)]
    results.append({**result("scaleformer", "documents-6+2", 20, 60), "seed": 1})
    cells = [
        [cell.strip() for cell in line.split("|")[2:4]] + [line.split("|")[-2].strip()]
        for line in table(results, {}).splitlines()[2:5]
    ]
    assert cells == [
        ["documents from 0.6 on", "whole", "1"],
        ["documents from 0.6 on", "whole", "3"],
        ["documents, 6+2 layers", "pieces", "1"],
    ]


def result(program: str, level: str, bleu: float, seconds: float | None) -> dict[str, Any]:
    scores = [
        {"metric": metric, "score": bleu + n, "signature": f"of {metric}"}
        for n, metric in enumerate(("d-BLEU", "s-BLEU", "chrF++", "d-chrF++"))
    ]
    facts = {"version": "1.0", "updates": 1234, "parameters": 2_000_000, "translation_seconds": seconds}
    difference = {"omitted": 0.125, "added": 0.0}
    return {"program": program, "level": level, "scores": scores, "difference": difference, **facts}


def test_the_table_has_an_order_and_failures() -> None:
    ours = {**result("scaleformer", "whole", 20.004, None), "leaks": {"unseen": {"s_bleu": 18.256}}}
    results = [result("joeynmt", "documents", 10, 90), ours]
    assert table(results, {"eole-sentences": "no such package"}).splitlines() == [
        "| program         | trained on | translated as | updates | parameters | d-BLEU | s-BLEU | chrF++ | unseen "
        "| left out | added | minutes |",
        "| --------------- | ---------: | ------------: | ------: | ---------: | -----: | -----: | -----: | -----: "
        "| -------: | ----: | ------: |",
        "| Scaleformer 1.0 |  documents |         whole |   1,234 |  2,000,000 |  20.00 |  21.00 |  22.00 |  18.26 "
        "|    12.5% |  0.0% |       - |",
        "| JoeyNMT 1.0     |  documents |        pieces |   1,234 |  2,000,000 |  10.00 |  11.00 |  12.00 |      - "
        "|    12.5% |  0.0% |     1.5 |",
        "",
        "- d-BLEU: `of d-BLEU`",
        "- s-BLEU: `of s-BLEU`",
        "- chrF++: `of chrF++`",
        "",
        "- eole-sentences: failed: no such package",
    ]
    assert table([], {}).strip() == ""


def test_a_phase_is_run_once_and_told_by_its_last_line(tmp_path: Path) -> None:
    write = f"from pathlib import Path; Path({str(tmp_path / 'train.json')!r}).write_text('{{\"updates\": 3}}')"
    assert phase("train", tmp_path, [sys.executable, "-c", write], 1) == {"updates": 3}
    assert phase("train", tmp_path, ["no such program"], 1) == {"updates": 3}
    with pytest.raises(Failed, match=r"^ValueError: far too short \(exit code 1, see .*translate.log\)$"):
        phase("translate", tmp_path, [sys.executable, "-c", "raise ValueError('far too short')"], 1)
    call([sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"], tmp_path / "log", 3)
    assert (tmp_path / "log").read_text().splitlines()[-1] == "3"


def test_a_program_without_an_update_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver leaves as many updates as it was given seconds, and writes a line."""
    driver = """
import json, sys
from pathlib import Path
job = json.load(open(sys.argv[1]))
work = Path(job["work"])
(work / f"{sys.argv[2]}.json").write_text(json.dumps({"updates": job["seconds"]} if sys.argv[2] == "train" else {}))
(work / "test.output").write_text("5 6\\n")
"""
    (tmp_path / "train_copier.py").write_text(driver)
    monkeypatch.setattr("scripts.quality.programs.DRIVERS", tmp_path)
    python, work = Path(sys.executable), tmp_path / "work"
    with pytest.raises(Failed, match=r"no update was trained in 0 minutes: raise --minutes"):
        run_program("copier", python, {"seconds": 0, "threads": 1}, work)
    assert run_program("copier", python, {"seconds": 60, "threads": 1}, work) == ({"updates": 60}, ["5 6"])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = [f"{a} {b} {c}" for a in ("red", "green", "blue") for b in ("cat", "dog") for c in ("runs", "sits", "eats")]
    document = {"source": texts, "target": [text.upper() for text in texts]}
    for split in ("train", "valid", "test"):
        lines = [json.dumps({"id": f"{split}{n}", **document}) + "\n" for n in range(2)]
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    return tmp_path


def test_rows_that_copy(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes its references scores 100; one that cannot be had is told of, and the others go on."""

    def environment(program: str, folder: Path) -> Path:
        if program == "eole":
            raise Failed("no such package")
        return Path(sys.executable)

    asked: list[str] = []

    def run_program(program: str, python: Path, job: dict[str, Any], work: Path) -> tuple[dict[str, Any], list[str]]:
        texts = Path(job["texts"])
        asked.append(work.name)
        # test and training have the same documents
        pairs = zip(*((texts / f"train.{side}").read_text().splitlines() for side in ("source", "target")), strict=True)
        known = dict(pairs)
        written = [known[line] for line in (texts / "test.source").read_text().splitlines()]
        facts = {"version": "1", "updates": 1, "parameters": 1, "translation_seconds": 1.0}
        return facts, written

    monkeypatch.setattr(rows, "environment", environment)
    monkeypatch.setattr(rows, "run_program", run_program)
    settings = [str(corpus), "--output", str(tmp_path / "out"), "--vocabulary", "305"]
    settings += ["--rows", "joeynmt-sentences", "joeynmt-documents", "eole-sentences"]
    for _ in range(2):  # the second call has nothing to do but the row that failed
        with pytest.raises(ValueError, match="1 of 3 rows failed: eole-sentences"):
            main(settings)
    assert asked == ["joeynmt-sentences", "joeynmt-documents"]
    found = [json.loads((tmp_path / "out" / "results" / f"{name}.json").read_text()) for name in asked]
    assert [r["scores"][0]["score"] for r in found] == pytest.approx([100, 100])
    assert found[1]["pieces_of_other_segments"] == 0
    assert "eole-sentences: failed: no such package" in (tmp_path / "out" / "quality.md").read_text()
    with pytest.raises(ValueError, match=r"holds rows of other settings, segments \(was None\): choose another folder"):
        main([*settings, "--segments", "3"])


def test_wrong_options(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value, message in (
        ("--recipe", "best", "recipe is 'best': it must be one of own, ours"),
        ("--minutes", "0", "minutes is 0.0: it must be a float of at least 0.1"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(["C", option, value])
    with pytest.raises(SystemExit):
        parse(["C", "--rows", "fairseq-sentences"])
    assert "invalid choice: 'fairseq-sentences'" in capsys.readouterr().err


def test_every_program_has_a_driver() -> None:
    drivers = {path.stem.removeprefix("train_") for path in DRIVERS.glob("train_*.py")}
    assert drivers | {"scaleformer"} == {row.split("-")[0] for row in ROWS}


def test_a_marian_of_the_bench_is_read_as_a_public_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(DRIVERS))
    driver: Any = importlib.import_module("train_huggingface")
    tokenizer = Tokenizer.train([f"The {n}th line of a page, {n * n}." for n in range(200)], 320)
    sizes = {"vocabulary": tokenizer.vocab_size, "width": 16, "layers": 2, "heads": 2, "feedforward": 32}
    torch.manual_seed(1)
    theirs = driver.make_model({"sizes": sizes, "positions": 64, "dropout": 0.1}).eval()
    theirs.save_pretrained(tmp_path)
    rows.write_vocabulary(tmp_path, tokenizer)
    ours = load_model(tmp_path)
    source, target = "The 7th page, 49.", "A line of öthers"
    read, known = ours.source_tokenizer, ours.target_tokenizer
    assert [read.piece(n) for n in read.encode(source)] == [tokenizer.piece(n) for n in tokenizer.encode(source)]
    written = tokenizer.encode(target)
    sides = [np.array([*t.encode(text), SEP, EOS]) for t, text in ((read, source), (known, target))]
    with torch.inference_mode():
        forced = ours.model.logits(ours.model(collate([Example("", *sides)])))[0, : len(written) + 1]
        wanted = theirs(
            torch.tensor([[*tokenizer.encode(source), driver.EOS]]),
            decoder_input_ids=torch.tensor([[driver.BOS, *written]]),
        ).logits[0]
    names = [known.piece(n) for n in range(known.vocab_size)]
    for n in tokenizer.encode("lines of the page"):
        torch.testing.assert_close(forced[:, names.index(tokenizer.piece(n))], wanted[:, n], atol=1e-5, rtol=1e-5)
