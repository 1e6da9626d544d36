"""What Weights & Biases (offline), TensorBoard and MLflow hold of a run and of a resumed run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import wandb
import yaml
from matplotlib import pyplot
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scaleformer.training import run as training
from scaleformer.training.loggers import build_loggers, log_results, start_loggers
from scaleformer.training.run_results import RunResults, RunTable
from scaleformer.training.settings import LoggerConfig
from scaleformer.training.tensorboard_logger import markdown
from scaleformer.training.wandb_logger import log_report
from tests.trainings import configure

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))  # restored after each test


@pytest.mark.usefixtures("curves")
def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("logger=wandb", "trainer.log_every_n_steps=1", "trainer.val_check_interval=1", "test.ter=false")
    training.run(configure(run, tmp_path / "cache", *options, "trainer.max_steps=1", "test.enabled=true"))
    wandb.teardown()  # stops its service, which writes asynchronously
    folder = (run / "wandb" / "latest-run").resolve()
    (record,) = folder.glob("*.wandb")
    for text in (b"label_smoothing", b"train/loss", b"val/bleu", b"test/d-BLEU"):
        assert text in record.read_bytes()
    media = folder / "files" / "media"
    (scores,) = media.glob("table/test/scores*.json")
    table = json.loads(scores.read_text(encoding="utf-8"))
    results = json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))
    assert table["columns"] == ["metric", "score", "documents", "signature"]
    assert [row[0] for row in table["data"]] == ["d-BLEU", "s-BLEU", "chrF++", "d-chrF++"]
    assert [row[1] for row in table["data"]] == pytest.approx([score["score"] for score in results["scores"]])
    (samples,) = media.glob("table/test/samples*.json")
    assert [row[0] for row in json.loads(samples.read_text(encoding="utf-8"))["data"]] == [
        f"test/{i}" for i in range(4)
    ]
    assert list(media.glob("images/learning_curves*.png"))
    resumed = build_loggers(LoggerConfig("wandb"), run, 1)
    assert resumed[1].version == folder.name.rsplit("-", 1)[-1]  # continues the same run


def test_a_missing_account_is_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(wandb, "init", lambda **_: (_ for _ in ()).throw(wandb.errors.UsageError("no\nkey")))
    loggers = build_loggers(LoggerConfig("wandb"), tmp_path)
    with pytest.raises(ValueError, match=r"logger=wandb: no key .WANDB_MODE=offline needs no account"):
        start_loggers(loggers, {})


@pytest.mark.parametrize("kind", ["run", "offline-run"])
@pytest.mark.parametrize("identity", ["de-en-1", "fr-en-1", "iwmxkukv"])
def test_a_resumed_run_keeps_its_id(tmp_path: Path, kind: str, identity: str) -> None:
    folder = tmp_path / "wandb" / f"{kind}-20240506_102859-{identity}"
    folder.mkdir(parents=True)
    (tmp_path / "wandb" / "latest-run").symlink_to(folder)
    assert build_loggers(LoggerConfig("wandb"), tmp_path, 1)[1].version == identity


def test_results_that_wandb_rejects_do_not_fail_the_run(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("WANDB_DATA_DIR", "/dev/null/none")
    picture = tmp_path / "curve.png"
    pyplot.imsave(picture, [[0.0, 1.0]])
    loggers = build_loggers(LoggerConfig("wandb"), tmp_path)
    monkeypatch.setattr(loggers[1], "log_image", lambda *_: (_ for _ in ()).throw(PermissionError("no\nplace")))
    log_results(loggers, RunResults(picture, {}, {}, 1))
    assert "Weights & Biases did not get the results: no place" in caplog.text


def test_tables_are_staged_in_the_folder_of_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    build_loggers(LoggerConfig("wandb"), tmp_path)
    assert Path(os.environ.pop("WANDB_DATA_DIR")).is_relative_to(tmp_path)


def test_metrics_are_always_written_and_nothing_else_is_started(tmp_path: Path) -> None:
    loggers = build_loggers(LoggerConfig("csv"), tmp_path)
    assert [type(logger).__name__ for logger in loggers] == ["MetricsCsv"]
    start_loggers(loggers, {})
    log_results(loggers, RunResults(None, {}, {}, 1))
    assert not list(tmp_path.iterdir())


def test_a_report_goes_to_its_run(tmp_path: Path, monkeypatch) -> None:
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


def trained(run: Path, cache: Path, *overrides: str) -> None:
    options = ("trainer.log_every_n_steps=1", "trainer.val_check_interval=1", "test.ter=false", *overrides)
    training.run(configure(run, cache, *options, "test.enabled=true"))


def results(run: Path) -> dict[str, float]:
    content = json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))
    return {score["metric"]: score["score"] for score in content["scores"]}


def events(run: Path) -> EventAccumulator:
    read = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0, "images": 0})
    return read.Reload()


@pytest.mark.usefixtures("curves")
def test_tensorboard_holds_curves_samples_and_tables_over_a_resume(tmp_path: Path) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    trained(run, cache, "logger=tensorboard", "trainer.max_steps=2")
    held = events(run)
    assert [event.step for event in held.Scalars("train/loss")] == [1, 2]
    assert {"val/loss", "val/bleu", "train/learning_rate"} <= {*held.Tags()["scalars"]}
    assert {f"test/{name}": held.Scalars(f"test/{name}")[-1].value for name in results(run)} == pytest.approx(
        {f"test/{name}": score for name, score in results(run).items()}
    )
    assert held.Images("learning_curves")[0].width > 100
    scores, samples = (
        held.Tensors(f"test/{name}/text_summary")[0].tensor_proto.string_val[0].decode()
        for name in ("scores", "samples")
    )
    assert scores.splitlines()[0] == "| metric | score | documents | signature |"
    assert samples.count("test/") == 4
    assert yaml.safe_load((run / "tensorboard" / "hparams.yaml").read_text(encoding="utf-8"))["label_smoothing"]
    trained(run, cache, "logger=tensorboard", "trainer.max_steps=3", f"resume={run}")
    assert [event.step for event in events(run).Scalars("train/loss")] == [1, 2, 3]


def test_markdown_in_a_table_of_texts_is_escaped() -> None:
    table = RunTable(["id", "source"], [["a|b", "one *two*\n<sep>"]])
    assert markdown(table).splitlines() == [
        "| id | source |",
        "| --- | --- |",
        "| a&#124;b | one &#42;two&#42; |",
        "|  | &lt;sep&gt; |",
    ]


@pytest.mark.usefixtures("curves")
def test_mlflow_holds_curves_samples_and_tables_over_a_resume(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run, cache = tmp_path / "run", tmp_path / "cache"
    trained(run, cache, "logger=mlflow", "trainer.max_steps=2")
    client = MlflowClient("sqlite:///mlflow.db")
    (held,) = client.search_runs([client.get_experiment_by_name("scaleformer").experiment_id])
    assert (held.info.run_name, held.info.status) == ("run", "FINISHED")
    identity = held.info.run_id
    assert [metric.step for metric in client.get_metric_history(identity, "train/loss")] == [1, 2]
    assert {f"test/{name.replace('+', 'p')}": score for name, score in results(run).items()} == pytest.approx(
        {name: value for name, value in held.data.metrics.items() if name.startswith("test/")}
    )
    assert held.data.params["label_smoothing"] == "0.1"
    folder = Path(client.download_artifacts(identity, "", str(tmp_path)))
    assert (folder / "learning_curves.png").is_file()
    assert yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["logger"]["name"] == "mlflow"
    scores, samples = (json.loads((folder / "test" / f"{n}.json").read_text()) for n in ("scores", "samples"))
    assert [row[0] for row in scores["data"]] == ["d-BLEU", "s-BLEU", "chrF++", "d-chrF++"]
    assert [row[0] for row in samples["data"]] == [f"test/{i}" for i in range(4)]
    trained(run, cache, "logger=mlflow", "trainer.max_steps=3", f"resume={run}")
    assert [metric.step for metric in client.get_metric_history(identity, "train/loss")] == [1, 2, 3]


def test_an_unreachable_store_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"logger=mlflow: nothing://here: .*logger\.tracking_uri=URI sets another"):
        build_loggers(LoggerConfig("mlflow", tracking_uri="nothing://here"), tmp_path)


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")])
def test_a_missing_package_comes_with_its_installation(tmp_path: Path, monkeypatch, name: str, package: str) -> None:
    monkeypatch.delitem(sys.modules, f"scaleformer.training.{name}_logger", raising=False)
    for module in [module for module in sys.modules if module.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"logger={name} needs a package that is not installed: pip install 'scale"):
        build_loggers(LoggerConfig(name), tmp_path)
