"""The program: what a run leaves behind, that it repeats and goes on exactly, and that bad input ends in one line."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

import train
from scaleformer.cli import Interrupted
from scaleformer.resume import OVERRIDES, merge_overrides, quoted
from scaleformer.translator import Translator
from tests.runs import DOCUMENTS, write_corpus
from tests.training import SMALL, configure, read_metrics

ROOT = Path(__file__).parents[1]
FAST = (
    "trainer.log_every_n_steps=1",
    "callbacks.validation_bleu.examples=0",
    "callbacks.checkpoint.every_n_train_steps=3",
)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
TIMES = ("train/tokens_per_second", "train/data_share")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def command(monkeypatch, capsys, cache: Path) -> Command:
    """train.py in this process with a small configuration: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setenv("SCALEFORMER_ONE_LINE", "0")
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
        resumed = any(argument.startswith(("resume=/", "resume='", "--config-path")) for argument in arguments)
        small = [] if resumed else [*SMALL, *FAST, f"data.cache_dir={cache}"]
        monkeypatch.setattr(
            sys,
            "argv",
            [str(ROOT / "train.py"), *(arguments if resumed else ()), *small, *quiet, *(() if resumed else arguments)],
        )
        code: object = 0
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as error:
            code = error.code
        return int(str(code or 0)), *capsys.readouterr()

    return run


def only_line(result: tuple[int, str, str]) -> str:
    """The error of a command that had to fail before the first step, in one line."""
    code, _, err = result
    assert code == 1
    assert err.count("\n") == 1, err
    return err.strip()


def weights(run: Path, key: str = "state_dict") -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)[key]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_runs_give_the_same_losses_and_leave_everything_behind(tmp_path: Path, capsys) -> None:
    cache = tmp_path / "cache"  # made by the first run, read by the second
    options = (*FAST, "trainer.max_steps=5", "trainer.val_check_interval=2", "model.dropout=0.2")
    for name in "ab":
        train.run(configure(tmp_path / name, cache, *options))
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
    assert "cut documents" in out  # the report of the data
    assert f"trained to step 5: {runs[0]}" in out


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(
    tmp_path: Path, cache: Path, monkeypatch, accumulate: int
) -> None:
    options = (*FAST, "model.dropout=0.1", "callbacks.ema.decay=0.5", "trainer.val_check_interval=2")
    options += (f"trainer.accumulate_grad_batches={accumulate}",)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.run(configure(whole, cache, *options, "trainer.max_steps=9"))
    step = train.TranslationModule.training_step

    def killed(self, batch, index):
        if self.global_step == 5:
            raise KeyError("killed")
        return step(self, batch, index)

    monkeypatch.setattr(train.TranslationModule, "training_step", killed)
    with pytest.raises(KeyError, match="killed"):
        train.run(configure(parts, cache, *options, "trainer.max_steps=9"))
    assert weights(parts, "loops")["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 3 * accumulate
    assert [row["step"] for row in read_metrics(parts)] == ["1", "2", "3", "4", "5"]
    monkeypatch.setattr(train.TranslationModule, "training_step", step)
    for steps in (7, 9):  # on from step 3; then, from where the run ended, by more steps
        train.run(configure(parts, cache, *options, f"trainer.max_steps={steps}", f"resume={parts}"))
    assert read_metrics(parts, *TIMES) == read_metrics(whole, *TIMES)
    for key in ("state_dict", "current_model_state"):
        expected = weights(whole, key)
        assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts, key).items())


def test_a_run_that_ended_with_a_validation_goes_on_logging(tmp_path: Path, cache: Path) -> None:
    options = (*FAST, "trainer.val_check_interval=4", "trainer.log_every_n_steps=2")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.run(configure(whole, cache, *options, "trainer.max_steps=8"))
    train.run(configure(parts, cache, *options, "trainer.max_steps=4"))
    train.run(configure(parts, cache, *options, "trainer.max_steps=8", f"resume={parts}"))
    rows = read_metrics(parts, *TIMES)
    assert [row["step"] for row in rows if row["train/loss"]] == ["2", "4", "6", "8"]
    assert rows == read_metrics(whole, *TIMES)


def test_a_run_says_from_which_step_it_goes_on(tmp_path: Path, cache: Path, monkeypatch) -> None:
    said = []

    def killed(module, batch, index):
        said.append(json.loads((tmp_path / "status.json").read_text(encoding="utf-8")))
        raise KeyError("killed")

    options = (*FAST, f"resume={tmp_path}", "trainer.max_steps=4")
    train.run(configure(tmp_path, cache, *FAST, "trainer.max_steps=2"))
    monkeypatch.setattr(train.TranslationModule, "training_step", killed)
    with pytest.raises(KeyError, match="killed"):
        train.run(configure(tmp_path, cache, *options))
    monkeypatch.setattr(train.pl.Trainer, "fit", lambda *_, **__: killed(None, None, 0))
    with pytest.raises(KeyError, match="killed"):
        train.run(configure(tmp_path, cache, *options))
    assert [(status["state"], status["step"]) for status in said] == [("training", 2)] * 2
    status = json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))
    assert (status["state"], status["step"]) == ("failed", 2)


@pytest.mark.parametrize("where", ["training_step", "validation_step"])
def test_a_signal_that_no_step_follows_is_not_lost(tmp_path: Path, cache: Path, monkeypatch, where: str) -> None:
    disturbed = getattr(train.TranslationModule, where)

    def told(module, batch, index):
        if module.global_step == 4 - (where == "training_step") and not module.stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return disturbed(module, batch, index)

    options = (*FAST, "trainer.max_steps=4", "trainer.val_check_interval=4", "test.enabled=true")
    monkeypatch.setattr(train.TranslationModule, where, told)
    with pytest.raises(Interrupted, match=f"interrupted by SIGTERM, saved at step 4: go on by resume={tmp_path}"):
        train.run(configure(tmp_path, cache, *options))
    assert weights(tmp_path, "global_step") == 4
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["state"] == "interrupted"
    assert not (tmp_path / "results" / "bleu-test.json").exists()
    monkeypatch.setattr(train.TranslationModule, where, disturbed)
    train.run(configure(tmp_path, cache, *options, f"resume={tmp_path}"))
    assert (tmp_path / "results" / "bleu-test.json").is_file()
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["state"] == "finished"


def test_resume_needs_nothing_else_and_its_record_does_not_grow(tmp_path: Path, command: Command) -> None:
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


def test_a_run_that_was_moved_keeps_its_best_score_and_goes_on(tmp_path: Path, command: Command) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    code, _, err = command(f"hydra.run.dir={old}", "trainer.max_steps=2")
    assert code == 0, err
    shutil.move(old, new)

    def best() -> tuple[float, str, bytes]:
        states = weights(new, "callbacks")
        (state,) = (state for name, state in states.items() if name.startswith("ModelCheckpoint"))
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
    assert all(config["run_dir"] == "${hydra:runtime.output_dir}" for config in configs)
    assert configs[0]["hydra"]["run"]["dir"] == "runs/smoke/${now:%Y-%m-%d_%H-%M-%S}"
    assert [c for c in configs[0] if configs[0][c] != configs[1][c]] == ["hydra"]  # where a third one would go
    record = json.loads((second / "environment.json").read_text(encoding="utf-8"))["starts"][0]
    assert record["seeds"]["seed"] == 4
    code, out, err = command(f"resume={second}", "trainer.max_steps=3")
    assert code == 0, err
    assert "trained to step 3" in out
    assert yaml.safe_load((second / "config.yaml").read_text(encoding="utf-8"))["model"]["dropout"] == 0.3


def test_auto_begins_goes_on_and_passes_over_a_broken_checkpoint(tmp_path: Path, command: Command, recwarn) -> None:
    run = tmp_path / "run"
    for steps in (1, 2, 3):  # begins, goes on, and goes on from the checkpoint before the broken one
        code, out, err = command(f"hydra.run.dir={run}", f"trainer.max_steps={steps}", "resume=auto")
        assert code == 0, err
        assert f"trained to step {steps}" in out
        if steps == 2:
            (run / "checkpoints" / "last.ckpt").write_bytes(b"cut short")
            (run / "checkpoints" / "best.ckpt").unlink()
    (warning,) = [str(w.message) for w in recwarn if "readable" in str(w.message)]
    assert "last.ckpt: not a readable checkpoint" in warning
    assert warning.endswith("going on from previous.ckpt instead, step 1")
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "finished"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run of one step, as the command leaves it."""
    run = tmp_path_factory.mktemp("finished") / "run"
    train.run(configure(run, cache, *FAST, "trainer.max_steps=1"))
    (run / OVERRIDES).parent.mkdir()
    (run / OVERRIDES).write_text(yaml.safe_dump([*SMALL, *FAST, f"data.cache_dir={cache}"]), encoding="utf-8")
    return run


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.width=32", "model.width=32, but the run has model.width=16"),
        ("optimizer.name=adam", "optimizer.name=adam, but the run has optimizer.name=adamw"),
        ("decoding.beam_size=0", "beam_size=0"),
        ("data.path=nowhere", "nowhere: no such file or folder"),
        ("nothing=1", "nothing: no such setting; there are seed, threads"),
        ("trainer.precision=half", "trainer: Precision 'half' is invalid"),
    ],
    ids=lambda value: value if "=" in value and " " not in value else "",
)
def test_a_resume_that_cannot_be_leaves_the_run_alone(
    finished: Path, command: Command, override: str, message: str
) -> None:
    before = snapshot(finished)
    more = ["data=jsonl"] if override.startswith("data.path") else []
    assert message in only_line(command(f"resume={finished}", *more, override))
    assert snapshot(finished) == before


def test_a_new_run_does_not_overwrite_another(finished: Path, command: Command) -> None:
    before = snapshot(finished / "checkpoints")
    line = only_line(command(f"hydra.run.dir={finished}"))
    assert line == f"error: {finished} holds a run: go on with it by resume={finished}, or take another hydra.run.dir"
    assert snapshot(finished / "checkpoints") == before


def test_a_resumed_run_does_not_overwrite_another(
    finished: Path, command: Command, tmp_path: Path, monkeypatch
) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    before = snapshot(other)
    line = only_line(command(f"resume={finished}", f"hydra.run.dir={other}", "trainer.max_steps=2"))
    assert line == f"error: {other} holds a run: go on with it by resume={other}, or take another hydra.run.dir"
    assert snapshot(other) == before
    (tmp_path / "link").symlink_to(other)
    code, out, err = command(f"resume={tmp_path / 'link'}", f"hydra.run.dir={other}", "trainer.max_steps=2")
    assert code == 0, err
    assert "trained to step 2" in out
    monkeypatch.chdir(tmp_path)
    config = configure(Path("other"), tmp_path, f"resume={other}/checkpoints/last.ckpt", *FAST, "trainer.max_steps=3")
    train.run(config)
    assert weights(other, "global_step") == 3


def test_a_checkpoint_cut_short_is_named(finished: Path, command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / OVERRIDES).parent.mkdir(parents=True)
    (run / OVERRIDES).write_bytes((finished / OVERRIDES).read_bytes())
    (run / "checkpoints").mkdir()
    content = (finished / "checkpoints" / "last.ckpt").read_bytes()
    (run / "checkpoints" / "last.ckpt").write_bytes(content[: len(content) // 2])
    assert "last.ckpt: not a readable checkpoint" in only_line(command(f"resume={run}"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["nothing=1"], "nothing: no such setting; there are seed, threads"),
        (["trainer.nothing=1"], "trainer.nothing: no such setting; there are accelerator"),
        (["+trainer.nothing=1"], "trainer: Trainer.__init__() got an unexpected keyword argument 'nothing'"),
        (["model=huge"], "Could not find 'model/huge' Available options in 'model': base small tiny"),
        (["seed"], "missing EQUAL"),
        (["seed=one"], "seed=one: wanted a whole number"),
        (["trainer.precision=half"], "trainer: Precision 'half' is invalid"),
        (["trainer.strategy=best"], "trainer: You selected an invalid strategy name: `strategy='best'`"),
        (["trainer.accelerator=abacus"], "trainer: You selected an invalid accelerator name"),
        (["trainer.devices=0"], "trainer: `Trainer(devices=0)` value is not a valid input"),
        (["trainer.strategy=ddp_spawn", "trainer.devices=2"], "trainer.strategy=ddp_spawn copies this process: wanted"),
        (["trainer.strategy=fsdp_cpu_offload"], "trainer: The strategy `fsdp` requires a GPU accelerator"),
        (["trainer.precision=bf16-true"], "trainer.precision=bf16-true: weights stay in fp32, wanted 32-true"),
        (
            ["trainer.devices=2", "trainer.strategy=ddp", "trainer.val_check_interval=00:01:00:00"],
            "the clocks of 2 processes differ, and some would wait for the others: wanted a number of batches",
        ),
        (
            ["trainer.strategy=fsdp", "callbacks.validation_bleu.examples=4"],
            "could translate in validations: set callbacks.validation_bleu.examples=0",
        ),
        (["trainer.strategy=fsdp", "callbacks.ema.decay=0.9"], "not average weights: set callbacks.ema.decay=null"),
        (["trainer.max_time=soon"], "trainer: `Timer(duration='soon')` is not a valid duration"),
        (["resume=nowhere"], "resume=nowhere: no run to go on with (nowhere/.hydra/overrides.yaml is missing)"),
        (["data=jsonl", "data.path=nowhere"], "nowhere: no such file or folder (data.path)"),
        (["data.max_tokens=10", "data.overlong=error"], "tokens are more than data.max_tokens=10: raise it"),
        (["tokenizer.vocab_size=90000"], "tokenizer.vocab_size=90000 is larger than the training text allows: set"),
        (["test.enabled=true", "test.split=dev"], "no 'dev' split; present: train, valid, test"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_ends_in_one_line(command: Command, tmp_path: Path, overrides: list[str], message: str) -> None:
    assert message in only_line(command(f"hydra.run.dir={tmp_path / 'run'}", *overrides))
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "HINT: Use `--ntasks-per-node=4` instead"),
        ({"SLURM_NTASKS_PER_NODE": "4"}, "no 'SLURM_NODEID' in the environment: start it by srun or torchrun"),
        (
            {"SLURM_NTASKS_PER_NODE": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
            "number of tasks per node configured in SLURM `--ntasks-per-node=4` does not match. HINT: Set `devices=4`",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"},
            "the product (2 * 1) does not match the world size (4)",
        ),
    ],
    ids=["SLURM, tasks", "SLURM, no srun", "SLURM, devices", "torchrun"],
)
def test_other_processes_than_were_started_are_named(
    command: Command, tmp_path: Path, monkeypatch, variables: dict[str, str], message: str
) -> None:
    job = {} if "RANK" in variables else {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train"}
    for name, value in (job | variables).items():
        monkeypatch.setenv(name, value)
    options = ("trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu")
    assert message in only_line(command(f"hydra.run.dir={tmp_path / 'run'}", *options))


def test_half_precision_on_a_cpu_is_bf16_and_says_so(tmp_path: Path, cache: Path) -> None:
    options = (*FAST, "trainer.accelerator=cpu", "trainer.max_steps=1", "trainer.precision=16-mixed")
    with pytest.warns(UserWarning, match="fp16 is not supported on CPU. Using `precision='bf16-mixed'` instead"):
        train.run(configure(tmp_path, cache, *options))
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path).values())


def test_splits_that_the_run_will_want_are_missed_before_it_starts(command: Command, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", "train", DOCUMENTS * 20)
    options = ("data=jsonl", f"data.path={corpus}", "tokenizer.vocab_size=290", f"hydra.run.dir={tmp_path / 'run'}")

    def failing(*more: str) -> str:
        return only_line(command(*options, *more))

    assert "no 'test' split; present: train (wanted for the final evaluation: test.split" in failing(
        "test.enabled=true"
    )
    assert "patience needs a valid split" in failing("callbacks.early_stopping.patience=1")
    (corpus / "test.jsonl").write_text("{", encoding="utf-8")
    assert "test.jsonl:1: malformed JSON" in failing("test.enabled=true")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_splits_of_the_hub_that_the_run_does_not_want_may_be_missing(
    command: Command, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    corpus = write_corpus(tmp_path / "corpus", "train", DOCUMENTS * 20) / "train.jsonl"
    run = tmp_path / "run"
    options = ("data=hub", "data.hub.name=json", f"data.hub.data_files={{train:{corpus}}}", "tokenizer.vocab_size=290")

    def start(*more: str) -> tuple[int, str]:
        code, _, err = command(*options, f"hydra.run.dir={run}", "trainer.max_steps=1", *more)
        return code, err.splitlines()[-1]  # before it bars of `datasets`

    code, line = start()
    assert code == 1
    assert line.endswith('data.hub.valid="" where there is none)')
    code, line = start("data.hub.valid=", "test.enabled=true")
    assert code == 1
    assert line.endswith("test.enabled=false does without)")
    assert not (run / "config.yaml").exists()
    assert start("data.hub.valid=")[0] == 0
    (start_of_it,) = json.loads((run / "environment.json").read_text(encoding="utf-8"))["starts"]
    assert list(start_of_it["data"]) == ["train"]


def test_no_place_for_the_run(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    assert "file/run: Not a directory" in only_line(command(f"hydra.run.dir={tmp_path / 'file' / 'run'}"))
    message = only_line(command(f"hydra.run.dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'file' / 'cache'}"))
    assert "cannot write the cache (Not a directory): set data.cache_dir" in message
    assert (tmp_path / "file").read_text() == "kept"


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
        f"the one before it is intact: make room, then go on by resume={run}"
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
    failed = start("model=huge")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: In 'config': Could not find 'model/huge'")
    assert failed.stderr.count("\n") == 1
