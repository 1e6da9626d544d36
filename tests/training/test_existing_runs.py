"""What is refused, in one line, where a run stands already: nothing of it changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from scaleformer.training import run as training
from scaleformer.training.resume import OVERRIDES
from tests.trainings import FAST, SMALL, Command, configure, only_line, snapshot, weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run of one step, as the command leaves it."""
    run = tmp_path_factory.mktemp("finished") / "run"
    training.run(configure(run, cache, *FAST, "trainer.max_steps=1"))
    (run / OVERRIDES).parent.mkdir()
    (run / OVERRIDES).write_text(yaml.safe_dump([*SMALL, *FAST, f"data.cache_dir={cache}"]), encoding="utf-8")
    return run


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.width=32", "model.width=32, but the run has model.width=16"),
        ("optimizer.name=adam", "optimizer.name=adam, but the run has optimizer.name=adamw"),
        ("decoding.beam_size=0", "decoding.beam_size is 0: it must be an int of at least 1"),
        ("data.path=nowhere", "nowhere: no such file or folder"),
        ("nothing=1", "nothing: no such setting; there are seed, threads"),
        ("trainer.precision=half", "trainer: Precision 'half' is invalid"),
    ],
    ids=lambda value: value if "=" in value and " " not in value else "",
)
def test_an_impossible_resume_leaves_the_run_unchanged(
    finished: Path, command: Command, override: str, message: str
) -> None:
    before = snapshot(finished)
    more = ["data=jsonl"] if override.startswith("data.path") else []
    assert message in only_line(command(f"resume={finished}", *more, override))
    assert snapshot(finished) == before


def test_a_new_run_does_not_overwrite_another(finished: Path, command: Command) -> None:
    before = snapshot(finished)
    for wrong in ((), ("model.heads=3",)):
        line = only_line(command(f"hydra.run.dir={finished}", *wrong))
        refusal = f"{finished} holds a run: continue it with resume={finished}, or set another hydra.run.dir"
        assert line == f"error: {refusal}"
        assert snapshot(finished) == before


def test_a_resumed_run_does_not_overwrite_another(
    finished: Path, command: Command, tmp_path: Path, monkeypatch
) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    before = snapshot(other)
    line = only_line(command(f"resume={finished}", f"hydra.run.dir={other}", "trainer.max_steps=2"))
    assert line == f"error: {other} holds a run: continue it with resume={other}, or set another hydra.run.dir"
    assert snapshot(other) == before
    (tmp_path / "link").symlink_to(other)
    code, out, err = command(f"resume={tmp_path / 'link'}", f"hydra.run.dir={other}", "trainer.max_steps=2")
    assert code == 0, err
    assert "trained to step 2" in out
    monkeypatch.chdir(tmp_path)
    config = configure(Path("other"), tmp_path, f"resume={other}/checkpoints/last.ckpt", *FAST, "trainer.max_steps=3")
    training.run(config)
    assert weights(other, "global_step") == 3


def test_a_refused_start_keeps_the_record_of_the_running_training(
    finished: Path, command: Command, tmp_path: Path, monkeypatch
) -> None:
    run = tmp_path / "run"
    code, _, err = command(f"hydra.run.dir={run}", "trainer.max_steps=1", "seed=3")
    assert code == 0, err
    shutil.rmtree(run / "checkpoints")  # as before the first checkpoint
    before = snapshot(run)
    monkeypatch.setattr("scaleformer.training.run_folder._lock", lambda file: False)
    line = only_line(command(f"hydra.run.dir={run}", "trainer.max_steps=1", "seed=4"))
    assert "another training is using this folder" in line
    assert snapshot(run) == before
    assert "seed=3" in yaml.safe_load((run / OVERRIDES).read_text(encoding="utf-8"))
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert config["run_dir"] == str(run)
    assert [path for path in run.rglob("*") if path.is_file() and not path.stat().st_size] == [run / ".lock"]


def test_a_truncated_checkpoint_is_reported(finished: Path, command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / OVERRIDES).parent.mkdir(parents=True)
    (run / OVERRIDES).write_bytes((finished / OVERRIDES).read_bytes())
    (run / "checkpoints").mkdir()
    content = (finished / "checkpoints" / "last.ckpt").read_bytes()
    (run / "checkpoints" / "last.ckpt").write_bytes(content[: len(content) // 2])
    assert "last.ckpt: not a readable checkpoint" in only_line(command(f"resume={run}"))
