"""What the program refuses, in one line, before it writes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scaleformer.system.errors import one_line_errors
from scaleformer.training import run as training
from tests.runs import DOCUMENTS, write_corpus
from tests.trainings import FAST, Command, configure, only_line

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


@pytest.fixture
def refusal(capsys, tmp_path: Path, cache: Path) -> Callable[..., str]:
    """The error line of a training in `tmp_path`/run, called from Python."""

    def run(*overrides: str) -> str:
        with pytest.raises(SystemExit) as ended, one_line_errors():
            training.run(configure(tmp_path / "run", cache, *FAST, *overrides))
        return only_line((int(str(ended.value.code)), *capsys.readouterr()))

    return run


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.attention.positions=learned", "model.attention.max_positions=20"],
            r"train: a source has .* at most 20",
        ),
        (
            ["model/attention@model.sites.cross=linformer", "model.sites.cross.max_length=30"],
            r"a source has .* at most 30",
        ),
        (
            ["model.attention.positions=learned", "model.attention.max_positions=64", "data.max_tokens=60"],
            r"final evaluation: a source has .* tokens, .* takes at most 64: .*max_length, or set test\.enabled=false",
        ),
    ],
    ids=["positions", "keys", "whole documents"],
)
def test_texts_too_long_for_the_model_end_in_one_line(
    tmp_path: Path, refusal: Callable[..., str], overrides: list[str], message: str
) -> None:
    assert re.search(message, refusal("model/attention=softmax", "test.enabled=true", *overrides))
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    "wrong", [["seed=one"], ["data.overlong=error", "data.max_tokens=10"], ["model/attention=linformer"]], ids=str
)
def test_a_failed_start_leaves_no_folder(command: Command, tmp_path: Path, monkeypatch, wrong: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    options = [*wrong, "+model.attention.max_length=30"] if "linformer" in wrong[0] else wrong
    for place in ((), ("hydra.run.dir=mine",), ("hydra.run.dir=mine/new/run",), (f"hydra.run.dir={tmp_path}/a/b",)):
        only_line(command(*options, *place))
        assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.parametrize("limit", ["trainer.max_time=00:00:00:00", "+trainer.max_epochs=0"])
def test_a_training_without_a_step_is_refused(refusal: Callable[..., str], limit: str) -> None:
    line = refusal(limit)
    assert "was reached before the first step: raise it" in line
    assert limit.strip("+") in line


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("nothing=1", "nothing: no such setting; there are seed, threads"),
        ("trainer.nothing=1", "trainer.nothing: no such setting; there are accelerator"),
        ("model=huge", "Could not find 'model/huge' Available options in 'model': base small tiny"),
        ("run_dir=x", "run_dir=x: this is filled in: set the folder of a run with hydra.run.dir=x"),
        ("callbacks.validation_bleu.decoding.beam_size=2", "is 2: the strategy is greedy, which has no beam: set"),
        ("seed", "seed: a setting is written KEY=VALUE"),
        ("seed=one", "seed is 'one': it must be an int"),
        ("resume=nowhere", "resume=nowhere: no run to resume (nowhere/.hydra/overrides.yaml is missing)"),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_a_bad_command_line_ends_in_one_line(command: Command, tmp_path: Path, argument: str, message: str) -> None:
    assert message in only_line(command(f"hydra.run.dir={tmp_path / 'run'}", argument))
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+trainer.nothing=1"], "trainer: Trainer.__init__() got an unexpected keyword argument 'nothing'"),
        (["trainer.precision=half"], "trainer: Precision 'half' is invalid"),
        (["trainer.strategy=best"], "trainer: You selected an invalid strategy name: `strategy='best'`"),
        (["trainer.accelerator=abacus"], "trainer: You selected an invalid accelerator name"),
        (["trainer.devices=0"], "trainer: `Trainer(devices=0)` value is not a valid input"),
        (
            ["trainer.strategy=ddp_spawn", "trainer.devices=2"],
            "trainer.strategy is ddp_spawn, which copies this process: ",
        ),
        (["trainer.strategy=fsdp_cpu_offload"], "trainer: The strategy `fsdp` requires a GPU accelerator"),
        (["+trainer.overfit_batches=1"], "trainer.overfit_batches=1: epochs follow one another"),
        (["+trainer.reload_dataloaders_every_n_epochs=1"], "trainer.reload_dataloaders_every_n_epochs=1: epochs"),
        (["trainer.precision=64"], "trainer.precision is 64: it must be 32-true"),
        (["trainer.precision=bf16-true"], "trainer.precision is bf16-true: it must be 32-true"),
        (
            ["trainer.devices=2", "trainer.strategy=ddp", "trainer.val_check_interval=00:01:00:00"],
            "it must be a number of batches, since the clocks of 2 processes differ, and some would wait for",
        ),
        (
            ["trainer.strategy=fsdp", "callbacks.validation_bleu.examples=4"],
            "cannot translate in validations, as no process has all weights: set callbacks.validation_bleu.examples=0",
        ),
        (["trainer.strategy=fsdp", "callbacks.ema.decay=0.9"], "not average weights: set callbacks.ema.decay=null"),
        (["trainer.max_time=soon"], "trainer.max_time is 'soon': it must be DD:HH:MM:SS"),
        (["data=jsonl", "data.path=nowhere"], "nowhere: no such file or folder (data.path)"),
        (["data.max_tokens=10", "data.overlong=error"], "tokens are more than data.max_tokens=10: raise max_tokens"),
        (["tokenizer.vocab_size=90000"], "tokenizer.vocab_size=90000 is larger than the training text allows: set"),
        (["test.enabled=true", "test.split=dev"], "no 'dev' split; present: train, valid, test"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_settings_end_in_one_line(
    refusal: Callable[..., str], tmp_path: Path, overrides: list[str], message: str
) -> None:
    assert message in refusal(*overrides)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "HINT: Use `--ntasks-per-node=4` instead"),
        ({"SLURM_NTASKS_PER_NODE": "4"}, "the environment has no 'SLURM_NODEID': start with srun or torchrun"),
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
def test_a_mismatch_of_processes_is_reported(
    refusal: Callable[..., str], monkeypatch, variables: dict[str, str], message: str
) -> None:
    job = {} if "RANK" in variables else {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train"}
    for name, value in (job | variables).items():
        monkeypatch.setenv(name, value)
    assert message in refusal("trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu")


def test_missing_splits_are_reported_before_the_start(refusal: Callable[..., str], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", "train", DOCUMENTS * 20)
    options = ("data=jsonl", f"data.path={corpus}", "tokenizer.vocab_size=302")
    message = refusal(*options, "test.enabled=true")
    assert "no 'test' split; present: train (the final evaluation needs it: set test.split" in message
    assert "patience needs a valid split" in refusal(*options, "callbacks.early_stopping.patience=1")
    (corpus / "test.jsonl").write_text("{", encoding="utf-8")
    message = refusal(*options, "test.enabled=true")
    assert "test.jsonl:1: malformed JSON" in message
    assert "test.split" not in message  # the split exists
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_unused_splits_of_the_hub_may_be_missing(command: Command, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    corpus = write_corpus(tmp_path / "corpus", "train", DOCUMENTS * 20) / "train.jsonl"
    run = tmp_path / "run"
    options = ("data=hub", "data.hub.name=json", f"data.hub.data_files={{train:{corpus}}}", "tokenizer.vocab_size=302")

    def start(*more: str) -> tuple[int, str]:
        code, _, err = command(*options, f"hydra.run.dir={run}", "trainer.max_steps=1", *more)
        return code, err.splitlines()[-1]  # after progress bars of `datasets`

    code, line = start()
    assert code == 1
    assert line.endswith('data.hub.valid="" for none)')
    code, line = start("data.hub.valid=", "test.enabled=true")
    assert code == 1
    assert line.endswith("or test.enabled=false to skip it)")
    assert not (run / "config.yaml").exists()
    assert start("data.hub.valid=")[0] == 0
    (start_of_it,) = json.loads((run / "environment.json").read_text(encoding="utf-8"))["starts"]
    assert list(start_of_it["data"]) == ["train"]


def test_an_unwritable_run_folder(command: Command, refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    assert "file/run: Not a directory" in only_line(command(f"hydra.run.dir={tmp_path / 'file' / 'run'}"))
    message = refusal(f"data.cache_dir={tmp_path / 'file' / 'cache'}")
    assert "cannot write the cache (Not a directory): set data.cache_dir" in message
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (["", " "], "the references are empty: there is nothing to score against in 'test'"),
        ([], "document '(two/)?x' has no reference to score against in 'test'"),
    ],
)
def test_references_without_text_are_refused_before_training(
    tmp_path: Path, refusal: Callable[..., str], target: list[str], what: str
) -> None:
    beads = {} if target else {"beads": [[2, 0]]}
    corpus = write_corpus(tmp_path / "corpus", "train", DOCUMENTS * 20)
    write_corpus(corpus, "test", [{"id": "x", "source": ["a", "b"], "target": target, **beads}])
    good = write_corpus(tmp_path / "good", "train", DOCUMENTS * 20)
    write_corpus(good, "test", DOCUMENTS)
    both = f"data.corpora={{one: {{path: {good}}}, two: {{path: {corpus}}}}}"
    for data in (f"data.path={corpus}", both):
        message = refusal("data=jsonl", data, "tokenizer.vocab_size=302", "test.enabled=true")
        assert re.search(f"{corpus}/test.jsonl: {what}", message)
        assert "set test.split=NAME, or test.enabled=false" in message
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_early_stopping_needs_a_validation(tmp_path: Path, cache: Path, refusal: Callable[..., str]) -> None:
    patience = "callbacks.early_stopping.patience=2"
    options = (patience, "trainer.max_steps=2", "trainer.accumulate_grad_batches=2", "trainer.val_check_interval=5")
    assert "patience needs a validation before batch 4, the last one: lower trainer.val_ch" in refusal(*options)
    limits = (patience, "trainer.max_steps=-1", "+trainer.max_epochs=1", "trainer.val_check_interval=500")
    with pytest.warns(UserWarning, match="early_stopping: training ended before its first validation"):
        training.run(configure(tmp_path / "run", cache, *FAST, *limits))
