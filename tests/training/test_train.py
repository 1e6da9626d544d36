"""The program: the files that a run leaves, and that it repeats and resumes exactly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import yaml

from scaleformer.cli.line import quoted
from scaleformer.system.display import displayed
from scaleformer.training import run as training
from scaleformer.training import trainer
from scaleformer.training.resume import OVERRIDES, merge_overrides
from scaleformer.training.run_folder import is_finished
from scaleformer.training.trainer import fast_precision, use_tensor_cores
from scaleformer.translation.translator import Translator
from tests.trainings import FAST, SMALL, Command, configure, read_metrics, weights

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
TIMES = ("train/tokens_per_second", "train/data_share")


@pytest.mark.usefixtures("curves")
def test_two_runs_give_the_same_losses_and_files(tmp_path: Path, capsys) -> None:
    cache = tmp_path / "cache"  # written by the first run, read by the second
    options = (*FAST, "trainer.max_steps=5", "trainer.val_check_interval=2", "model.dropout=0.2")
    for name in "ab":
        training.run(configure(tmp_path / name, cache, *options))
    runs = [tmp_path / "a", tmp_path / "b"]
    first, second = (read_metrics(run, *TIMES) for run in runs)
    assert [row["step"] for row in first] == ["1", "2", "3", "4", "5"]
    assert all(row["train/loss"] and row["train/padding"] for row in first)
    assert [bool(row["val/loss"]) for row in first] == [False, True, False, True, False]
    assert first == second
    assert all(torch.equal(weights(runs[0])[name], tensor) for name, tensor in weights(runs[1]).items())
    assert yaml.safe_load((runs[0] / "config.yaml").read_text(encoding="utf-8"))["model"]["dropout"] == 0.2
    data = json.loads((runs[0] / "results" / "data.json").read_text(encoding="utf-8"))
    assert data["splits"]["train"]["documents"] == 60
    assert {"command", "versions", "seed", "device", "fingerprint", "max_tokens"} <= set(data)
    assert (runs[0] / "plots" / "learning_curves.png").is_file()
    assert {path.name for path in (runs[0] / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    out = capsys.readouterr().out
    assert "cut documents" in out  # the data report
    assert f"trained to step 5: {runs[0]}" in out


@pytest.mark.parametrize("stream", [(), ("data.streaming=true", "data.window=40")], ids=["kept", "streamed"])
def test_every_checkpoint_knows_the_longest_segment(tmp_path: Path, cache: Path, stream: tuple[str, ...]) -> None:
    options = (*FAST, "trainer.max_steps=60", "trainer.val_check_interval=30", *stream)
    training.run(configure(tmp_path / "run", cache, *options))
    data = json.loads((tmp_path / "run" / "results" / "data.json").read_text(encoding="utf-8"))
    found = {path.stem: Translator.load(path).longest_segment for path in (tmp_path / "run").glob("checkpoints/*")}
    assert found == dict.fromkeys(("best", "last", "previous"), data["splits"]["train"]["longest_segment"])
    training.run(configure(tmp_path / "run", cache, *options, "trainer.max_steps=61", f"resume={tmp_path / 'run'}"))
    assert Translator.load(tmp_path / "run" / "checkpoints" / "last.ckpt").longest_segment == found["last"]
    if stream:  # within the first of several windows
        training.run(configure(tmp_path / "short", cache, *options, "trainer.max_steps=1"))
        short = Translator.load(tmp_path / "short").longest_segment
        assert short is not None
        assert 0 < short <= found["last"]


def test_resume_needs_only_the_run_and_its_record_does_not_grow(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "it's, one run"
    code, _, err = command(f"hydra.run.dir={quoted(str(run))}", "trainer.max_steps=1", "seed=3")
    assert code == 0, err
    recorded = set(merge_overrides(yaml.safe_load((run / OVERRIDES).read_text(encoding="utf-8"))))
    for steps in (2, 3):
        argument = f"resume={quoted(str(run))}"
        code, out, err = command(argument, f"trainer.max_steps={steps}")
        assert code == 0, err
        assert f"trained to step {steps}" in out
        now = yaml.safe_load((run / OVERRIDES).read_text(encoding="utf-8"))
        assert set(now) == recorded - {"trainer.max_steps=1"} | {argument, f"trainer.max_steps={steps}"}
        assert len(now) == len(set(now))
    assert [row["step"] for row in read_metrics(run)] == ["1", "2", "3"]
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert (config["seed"], config["trainer"]["max_steps"]) == (3, 3)


def test_a_moved_run_keeps_its_best_score_and_resumes(tmp_path: Path, command: Command) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    code, _, err = command(f"hydra.run.dir={old}", "trainer.max_steps=2")
    assert code == 0, err
    shutil.move(old, new)

    def best() -> tuple[float, str, bytes]:
        states = weights(new, "callbacks")
        (state,) = (state for name, state in states.items() if name.startswith("BestCheckpoint"))
        path = new / "checkpoints" / "best.ckpt"
        return float(state["best_model_score"]), state["best_model_path"], path.read_bytes()

    before = best()
    code, _, err = command(f"resume={new}", "trainer.max_steps=3", "optimizer.weight_decay=0.01")
    assert code == 0, err
    after = best()
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] == str(new / "checkpoints" / "best.ckpt")
    assert not old.exists()
    assert Translator.load(new).translate([["a"]])


def test_a_run_repeats_from_its_own_configuration(tmp_path: Path, command: Command) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    code, _, err = command(f"hydra.run.dir={first}", "trainer.max_steps=2", "model.dropout=0.3", "seed=4")
    assert code == 0, err
    from_it = ("--config-path", str(first), "--config-name", "config")
    code, _, err = command(*from_it, f"hydra.run.dir={second}")
    assert code == 0, err
    assert read_metrics(second, *TIMES) == read_metrics(first, *TIMES)
    configs = [yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) for run in (first, second)]
    assert [config["run_dir"] for config in configs] == [str(first), str(second)]
    assert configs[0]["hydra"]["run"]["dir"] == "${new_folder:'runs/smoke/${now:%Y-%m-%d_%H-%M-%S}'}"
    assert [c for c in configs[0] if configs[0][c] != configs[1][c]] == [
        "run_dir",
        "hydra",
    ]  # the folder that a third run would get
    record = json.loads((second / "environment.json").read_text(encoding="utf-8"))["starts"][0]
    assert record["seeds"]["seed"] == 4
    code, out, err = command(f"resume={second}", "trainer.max_steps=3")
    assert code == 0, err
    assert "trained to step 3" in out
    assert yaml.safe_load((second / "config.yaml").read_text(encoding="utf-8"))["model"]["dropout"] == 0.3


def test_auto_starts_resumes_and_skips_a_broken_checkpoint(tmp_path: Path, command: Command, recwarn) -> None:
    run = tmp_path / "run"
    for steps in (1, 2, 3):  # starts, resumes, and resumes from the checkpoint before the broken one
        code, out, err = command(f"hydra.run.dir={run}", f"trainer.max_steps={steps}", "resume=auto")
        assert code == 0, err
        assert f"trained to step {steps}" in out
        if steps == 2:
            (run / "checkpoints" / "last.ckpt").write_bytes(b"cut short")
            (run / "checkpoints" / "best.ckpt").unlink()
    (warning,) = [str(w.message) for w in recwarn if "readable" in str(w.message)]
    assert "last.ckpt: not a readable checkpoint" in warning
    assert warning.endswith("continuing from previous.ckpt instead, step 1")
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "finished"


def test_half_precision_on_a_cpu_is_bf16_and_says_so(tmp_path: Path, cache: Path) -> None:
    options = (*FAST, "trainer.accelerator=cpu", "trainer.max_steps=1", "trainer.precision=16-mixed")
    with pytest.warns(UserWarning, match="fp16 is not supported on CPU. Using `precision='bf16-mixed'` instead"):
        training.run(configure(tmp_path, cache, *options))
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path).values())


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [
        ("cuda", "bf16-mixed", "high"),
        ("cuda", "16-mixed", "high"),
        ("cuda", "32-true", "highest"),
        ("cpu", "bf16-mixed", "highest"),
    ],
)
def test_when_tf32_is_used(request, device: str, precision: str, expected: str) -> None:
    request.addfinalizer(lambda: torch.set_float32_matmul_precision("highest"))
    use_tensor_cores(torch.device(device), precision)
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize(
    ("accelerator", "gpu", "mps", "cpu", "expected"),
    [
        ("auto", True, False, False, "bf16-mixed"),
        ("auto", False, False, True, "32-true"),
        ("cpu", False, True, True, "bf16-mixed"),
        ("cpu", True, False, False, "32-true"),
        ("auto", None, False, True, "bf16-mixed"),
        ("auto", None, True, True, "32-true"),
        ("auto", None, False, None, "32-true"),
    ],
)
def test_what_the_automatic_precision_is(monkeypatch, accelerator: str, gpu, mps, cpu, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(trainer, "has_bf16", lambda: cpu)
    assert fast_precision(accelerator) == expected


def test_a_run_goes_on_in_the_precision_that_it_began_with(tmp_path: Path, cache: Path, monkeypatch, capsys) -> None:
    options = (*FAST, "trainer.accelerator=cpu", "trainer.max_steps=1", "trainer.precision=auto")
    monkeypatch.setattr(trainer, "has_bf16", lambda: True)
    training.run(configure(tmp_path, cache, *options))
    assert "parameters on CPUAccelerator in bf16-mixed" in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["trainer"]["precision"] == "bf16-mixed"
    monkeypatch.setattr(trainer, "has_bf16", lambda: False)
    with pytest.warns(UserWarning, match="is slow on this CPU") as caught:
        training.run(configure(tmp_path, cache, *options, "trainer.max_steps=2", f"resume={tmp_path}"))
    assert not any("results will differ" in str(one.message) for one in caught)
    assert "parameters on CPUAccelerator in bf16-mixed" in capsys.readouterr().out


@pytest.mark.parametrize(("precision", "lacks"), [("bf16-mixed", True), ("bf16-mixed", False), ("32-true", True)])
def test_bf16_without_products_is_said_to_be_slow(tmp_path: Path, cache: Path, monkeypatch, precision, lacks) -> None:
    monkeypatch.setattr(trainer, "has_bf16", lambda: not lacks)
    options = configure(tmp_path / "run", cache, f"trainer.precision={precision}", "trainer.max_steps=1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.run(options)
    said = any(str(one.message).startswith("trainer.precision=bf16-mixed is slow on this CPU") for one in caught)
    assert said is (lacks and precision == "bf16-mixed")


def test_a_full_disk_ends_the_run_and_keeps_its_last_checkpoint(command: Command, tmp_path: Path, monkeypatch) -> None:
    run, save, calls = tmp_path / "run", torch.save, []

    def full(content, file) -> None:
        calls.append(save(content, file))
        if len(calls) > 1:
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(torch, "save", full)
    code, _, err = command(f"hydra.run.dir={run}", "trainer.max_steps=8", "trainer.val_check_interval=100")
    assert code == 1
    assert err.splitlines()[-1] == (
        f"error: {run}/checkpoints/last.ckpt: the checkpoint cannot be written (No space left on device); "
        f"the previous one is intact: free disk space, then continue with resume={run}"
    )
    assert "Traceback" not in err
    assert weights(run, "global_step") == 3
    assert [row["step"] for row in read_metrics(run)] == ["1", "2", "3", "4", "5"]


def test_the_command_ends_with_the_table_and_its_errors_with_one_line(tmp_path: Path, cache: Path) -> None:
    options = [*SMALL, *FAST, f"data.cache_dir={cache}", "trainer.max_steps=1", "test.enabled=true", "test.ter=false"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "SCALEFORMER"))}

    def start(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "train.py", *options, f"hydra.run.dir={tmp_path / 'run'}", *more]
        return subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    done = start()
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    places = [
        done.stdout.find(part) for part in ("cut documents", "trained to step 1", "=== test/0", "d-BLEU", "written")
    ]
    assert -1 not in places
    assert places == sorted(places)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        "config.yaml",
        "metrics.csv",
        "checkpoints",
        "results",
        "plots",
        "samples.txt",
    }
    failed = start("model=huge", f"hydra.run.dir={tmp_path / 'other'}")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: In 'config': Could not find 'model/huge'")
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_broken_stdout_does_not_matter(tmp_path: Path, monkeypatch, encoding: str) -> None:
    options = ("trainer.max_steps=1", "test.enabled=true", "test.ter=false")
    with open("/dev/full" if encoding == "utf-8" else os.devnull, "w", encoding=encoding) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with displayed():
            training.run(configure(tmp_path / "run", tmp_path / "cache", *options))
    assert is_finished(tmp_path / "run")
    assert (tmp_path / "run" / "results" / "bleu-test.json").is_file()
