"""Weights & Biases without a network: configuration, curves, tables and picture are in its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import wandb
from matplotlib import pyplot

from scaleformer.training import run as training
from scaleformer.training.loggers import build_loggers, log_report, log_results, start_loggers
from scaleformer.training.settings import LoggerConfig
from tests.trainings import configure

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))  # put back after what a test sets


def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("logger=wandb", "trainer.log_every_n_steps=1", "trainer.val_check_interval=1", "test.ter=false")
    training.run(configure(run, tmp_path / "cache", *options, "trainer.max_steps=1", "test.enabled=true"))
    wandb.teardown()  # ends its service, which writes in its own time
    folder = (run / "wandb" / "latest-run").resolve()
    (record,) = folder.glob("*.wandb")
    for text in (b"label_smoothing", b"train/loss", b"val/bleu", b"test/d-BLEU"):
        assert text in record.read_bytes()
    media = folder / "files" / "media"
    (scores,) = media.glob("table/test/scores*.json")
    table = json.loads(scores.read_text(encoding="utf-8"))
    results = json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))
    assert table["columns"] == ["metric", "score", "documents", "signature"]
    assert [row[0] for row in table["data"]] == ["d-BLEU", "s-BLEU", "chrF++"]
    assert [row[1] for row in table["data"]] == pytest.approx([score["score"] for score in results["scores"]])
    (samples,) = media.glob("table/test/samples*.json")
    assert [row[0] for row in json.loads(samples.read_text(encoding="utf-8"))["data"]] == [
        f"test/{i}" for i in range(4)
    ]
    assert list(media.glob("images/learning_curves*.png"))
    resumed = build_loggers(LoggerConfig("wandb"), run, 1)
    assert resumed[1].version == folder.name.rsplit("-", 1)[-1]  # goes on in the same run


def test_an_account_that_is_not_there_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(wandb, "init", lambda **_: (_ for _ in ()).throw(wandb.errors.UsageError("no\nkey")))
    loggers = build_loggers(LoggerConfig("wandb"), tmp_path)
    with pytest.raises(ValueError, match=r"logger=wandb: no key .WANDB_MODE=offline needs no account"):
        start_loggers(loggers, {})


@pytest.mark.parametrize("kind", ["run", "offline-run"])
@pytest.mark.parametrize("identity", ["de-en-1", "fr-en-1", "iwmxkukv"])
def test_a_resumed_run_has_the_id_that_it_had(tmp_path: Path, kind: str, identity: str) -> None:
    folder = tmp_path / "wandb" / f"{kind}-20240506_102859-{identity}"
    folder.mkdir(parents=True)
    (tmp_path / "wandb" / "latest-run").symlink_to(folder)
    assert build_loggers(LoggerConfig("wandb"), tmp_path, 1)[1].version == identity


def test_results_that_wandb_cannot_take_fail_no_run(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("WANDB_DATA_DIR", "/dev/null/none")
    picture = tmp_path / "curve.png"
    pyplot.imsave(picture, [[0.0, 1.0]])
    loggers = build_loggers(LoggerConfig("wandb"), tmp_path)
    monkeypatch.setattr(loggers[1], "log_image", lambda *_: (_ for _ in ()).throw(PermissionError("no\nplace")))
    log_results(loggers, None, "test", picture)
    assert "Weights & Biases did not get the results: no place" in caplog.text


def test_tables_are_made_ready_in_the_folder_of_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    build_loggers(LoggerConfig("wandb"), tmp_path)
    assert Path(os.environ.pop("WANDB_DATA_DIR")).is_relative_to(tmp_path)


def test_metrics_are_always_written_and_nothing_else_is_started(tmp_path: Path) -> None:
    loggers = build_loggers(LoggerConfig("csv"), tmp_path)
    assert [type(logger).__name__ for logger in loggers] == ["MetricsCsv"]
    start_loggers(loggers, {})
    log_results(loggers, None, "test", None)
    assert not list(tmp_path.iterdir())


def test_a_report_goes_to_the_run_that_it_is_of(tmp_path: Path, monkeypatch) -> None:
    picture = tmp_path / "curve.png"
    pyplot.imsave(picture, [[0.0, 1.0]])
    (tmp_path / "config.yaml").write_text("logger: {name: csv, project: ours, run_name: null}\n", encoding="utf-8")
    tables = [("test split", ["run", "score"], [["a", 1.5], ["a", None]])]
    log_report(tmp_path, {"Curve": picture}, tables)
    wandb.teardown()
    folder = (tmp_path / "wandb" / "latest-run").resolve()
    media = folder / "files" / "media"
    assert list(media.glob("images/report/Curve*.png"))
    (table,) = media.glob("table/report/tables/test split*.json")
    assert json.loads(table.read_text(encoding="utf-8"))["data"] == [["a", 1.5], ["a", None]]
    monkeypatch.setattr(wandb, "init", lambda **_: (_ for _ in ()).throw(wandb.errors.UsageError("no\nkey")))
    with pytest.raises(ValueError, match="wandb=true: no key"):
        log_report(tmp_path, {}, [])
