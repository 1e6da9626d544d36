"""metrics.csv: one row per step, kept over a resume."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scaleformer.training.metrics_csv import MetricsCsv


def read(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_metrics_of_one_step_share_a_row(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"train/loss": 2.5}, 10)
    logger.log_metrics({"val/loss": 2.0}, 10)
    logger.log_metrics({"train/loss": 1.5}, 20)
    logger.save()
    assert read(tmp_path) == [
        {"step": "10", "train/loss": "2.5", "val/loss": "2.0"},
        {"step": "20", "train/loss": "1.5", "val/loss": ""},
    ]


def test_a_resumed_run_keeps_earlier_rows_and_replaces_later_ones(tmp_path: Path) -> None:
    first = MetricsCsv(tmp_path)
    for step in (10, 20, 30):
        first.log_metrics({"train/loss": float(step)}, step)
    first.save()
    second = MetricsCsv(tmp_path, 20)
    second.log_metrics({"train/loss": 0.5, "extra": 1.0}, 20)
    second.finalize("success")
    assert [(row["step"], row["train/loss"], row["extra"]) for row in read(tmp_path)] == [
        ("10", "10.0", ""),
        ("20", "0.5", "1.0"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_later_rows_go_even_if_the_next_row_skips_steps(tmp_path: Path) -> None:
    first = MetricsCsv(tmp_path)
    for step in (10, 20, 30, 40):
        first.log_metrics({"train/loss": float(step)}, step)
    first.save()
    second = MetricsCsv(tmp_path, 10)
    assert len(read(tmp_path)) == 4  # until new rows replace them
    second.log_metrics({"train/loss": 0.5}, 30)
    second.save()
    assert [(row["step"], row["train/loss"]) for row in read(tmp_path)] == [("10", "10.0"), ("30", "0.5")]


def test_a_new_run_replaces_the_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,train/loss\n5,1.0\n", encoding="utf-8")
    logger = MetricsCsv(tmp_path)
    assert len(read(tmp_path)) == 1  # until new rows replace it
    logger.log_metrics({"train/loss": 2.0}, 10)
    logger.save()
    assert read(tmp_path) == [{"step": "10", "train/loss": "2.0"}]


@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", b"step,a\n1,2\nx,2\n", b"a,step\n1\n", b"step\n1\n\xff\n", b"step\n" + b"1" * 200_000],
    ids=["no step", "a word", "cut short", "bytes", "a huge cell"],
)
def test_a_foreign_file_is_reported_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"metrics\.csv: not the metrics of a run"):
        MetricsCsv(tmp_path, 5)
    assert (tmp_path / "metrics.csv").read_bytes() == content


def test_a_failed_write_keeps_the_old_rows(tmp_path: Path, monkeypatch) -> None:
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"train/loss": 2.0}, 10)
    logger.save()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    logger.log_metrics({"train/loss": 1.0}, 20)
    with pytest.raises(OSError, match="No space left") as error:
        logger.save()
    assert error.value.filename == str(tmp_path / "metrics.csv")
    logger.finalize("failed")  # must not hide the original error
    assert len(read(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
