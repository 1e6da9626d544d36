"""The command line of a resumed run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from scaleformer.cli.line import quoted, unquoted
from scaleformer.cli.resume import resumed_arguments
from scaleformer.training.resume import OVERRIDES, record_overrides
from scaleformer.training.run_folder import write_status
from tests.runs import CONFIG, make_recorded_run, make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_recorded_run(tmp_path)


def test_without_resume_nothing_changes() -> None:
    for arguments in ([], ["seed=1", "resume=null"], ["experiment=smoke", "hydra.run.dir=x"]):
        assert resumed_arguments(arguments) == arguments


def test_the_run_gives_the_other_settings(run: Path) -> None:
    new = [f"resume={run}", "trainer.max_steps=9", "seed=4"]
    assert resumed_arguments(new) == [
        "experiment=smoke",
        *new,
        f"hydra.run.dir={quoted(str(run))}",
    ]


def test_another_folder_may_be_named(run: Path) -> None:
    arguments = resumed_arguments([f"resume={quoted(str(run))}", "hydra.run.dir=elsewhere"])
    assert [a for a in arguments if a.startswith("hydra.run.dir")] == ["hydra.run.dir=elsewhere"]


def test_overrides_do_not_grow(run: Path) -> None:
    for _ in range(3):
        arguments = resumed_arguments([f"resume={run}", "trainer.max_steps=9", "+new=1"])
        record_overrides(run, [a for a in arguments if not a.startswith("hydra.")])
    recorded = yaml.safe_load((run / OVERRIDES).read_text(encoding="utf-8"))
    assert recorded == ["experiment=smoke", "seed=3", f"resume={run}", "trainer.max_steps=9", "+new=1"]


@pytest.mark.parametrize("value", ["runs/a b", "it's", "a\\b", "a\\", "a\\'b", '"', "", "\u6587 (1) [x]{y}~"])
def test_quoting_and_unquoting(value: str) -> None:
    assert OverridesParser.create().parse_override(f"key={quoted(value)}").value() == value
    assert unquoted(quoted(value)) == value
    assert unquoted(value) == value


def test_double_quotes() -> None:
    assert unquoted('"it\'s \\"it\\""') == 'it\'s "it"'


def test_a_folder_without_a_run_is_reported(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ValueError, match=r"no run to resume \(.*overrides\.yaml is missing"):
        resumed_arguments([f"resume={tmp_path}"])
    with pytest.raises(ValueError, match=rf"not a checkpoint: resume={re.escape(str(run))}\)"):
        resumed_arguments([f"resume={run / 'checkpoints' / 'best.ckpt'}"])
    for content in ("a: [", "a: 1", "[1, 2]"):
        (run / OVERRIDES).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="no run to resume") as error:
            resumed_arguments([f"resume={run}"])
        assert "\n" not in str(error.value)
    record_overrides(run, [])
    (run / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(ValueError, match=r"no run to resume \(it ended before its first checkpoint: start it"):
        resumed_arguments([f"resume={run}"])


def settle(run: Path, age: int) -> Path:
    """A run as the train command leaves it, last written `age` seconds ago."""
    record_overrides(make_run(run, CONFIG), [f"seed={age}"])
    checkpoint = run / "checkpoints" / "best.ckpt"
    os.utime(checkpoint, (1e9 - age, 1e9 - age))
    return run


def test_auto_is_the_newest_unfinished_run_of_the_experiment(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resumed_arguments(["resume=auto", "seed=5"]) == ["seed=5"]  # no run there
    old, new, done = (settle(Path("runs/small") / name, age) for age, name in ((30, "a"), (20, "b"), (10, "c")))
    settle(Path("runs/default/d"), 0)
    write_status(done, "finished", 9)
    arguments = ["experiment=small", "resume=auto"]
    assert f"resume={quoted(str(new))}" in resumed_arguments(arguments)
    write_status(new, "interrupted", 9)
    assert "seed=20" in resumed_arguments(arguments)
    (new / "status.json").unlink()
    assert "seed=20" in resumed_arguments(arguments)  # not recorded as finished
    write_status(new, "finished", 9)
    assert f"resume={quoted(str(old))}" in resumed_arguments(arguments)
    monkeypatch.setattr("scaleformer.cli.resume.is_claimed", lambda run: True)
    assert resumed_arguments(arguments) == ["experiment=small"]


def test_auto_in_a_named_folder_is_the_run_there_or_a_new_one(run: Path, tmp_path: Path) -> None:
    place = f"hydra.run.dir={quoted(str(run))}"
    assert resumed_arguments(["resume=auto", place])[-2:] == [place, f"resume={quoted(str(run))}"]
    assert resumed_arguments(["resume=auto", "hydra.run.dir=new"]) == ["hydra.run.dir=new"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"hydra.run.dir={__file__}"], f"hydra.run.dir={__file__}: is a file: name a folder for the run"),
        (["resume="], "resume=: is empty: give the folder of a run, as in resume=RUN"),
        (["-m", "resume=auto", "seed=1,2"], "resume=auto: would be one run in all jobs of a sweep: give the folder"),
        (
            ["-m", "hydra.run.dir=a", "seed=1,2"],
            "hydra.run.dir: has no effect here: hydra.sweep.dir is that of a sweep",
        ),
        (["hydra.sweep.dir=a"], "hydra.sweep.dir: has no effect here: without -m, hydra.run.dir is that of the run"),
    ],
    ids=["file", "empty", "auto", "run.dir", "sweep.dir"],
)
def test_what_would_not_do_what_it_says_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        resumed_arguments(words)


def test_a_further_process_of_a_sweep_has_the_folder_of_the_first(monkeypatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    arguments = ["-m", "seed=1,2", "hydra.run.dir=runs/x"]
    assert resumed_arguments(arguments) == arguments


def test_several_processes_need_a_given_folder(run: Path, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"several processes .* set their folder with hydra\.run\.dir=RUN"):
        resumed_arguments(["experiment=smoke"])
    assert resumed_arguments(["hydra.run.dir=x"]) == ["hydra.run.dir=x"]
    assert resumed_arguments([f"resume={run}"])


def composed_of(choices: dict[str, str], name: str = "config", sources: Sequence[tuple[str, str, str]] = ()) -> Any:
    """Hydra's record of a start in /there: `sources` are (provider, schema, path)."""
    found = [dict(zip(("provider", "schema", "path"), source, strict=True)) for source in sources]
    runtime = {"cwd": "/there", "choices": choices, "config_sources": found}
    return {"hydra": {"runtime": runtime, "job": {"config_name": name}}}


def test_a_run_made_from_a_config_resumes_from_its_own(run: Path) -> None:
    record = composed_of({"hydra/env": "default"})
    record_overrides(run, ["experiment=smoke"], record)
    flags = ["--config-path", str(run.resolve()), "--config-name", "config"]
    arguments = resumed_arguments([f"resume={run}"])
    assert arguments[:4] == flags
    assert resumed_arguments(arguments)[:5] == arguments[:5]  # as a process of another device sees them
    record["hydra"]["runtime"]["choices"]["experiment"] = "smoke"
    record_overrides(run, ["experiment=smoke"], record)
    assert resumed_arguments([f"resume={run}"])[0] == "experiment=smoke"


def test_a_resume_uses_the_search_path_of_the_run(run: Path) -> None:
    path = "hydra.searchpath in command-line"
    sources = [("main", "file", "/conf"), ("command-line", "file", "/there/mine"), (path, "file", "ours")]
    record = composed_of({"experiment": "ours"}, "other", [*sources, (path, "file", "/absolute"), (path, "pkg", "a.b")])
    record_overrides(run, ["experiment=ours"], record)
    searchpath = "hydra.searchpath=['file:///there/ours','file:///absolute','pkg://a.b']"
    flags = ["--config-name", "other", "--config-dir", "/there/mine"]
    assert resumed_arguments([f"resume={run}"])[:6] == [*flags, searchpath, "experiment=ours"]
    given = ["--config-dir", "here", "-cn=third", f"resume={run}", "hydra.searchpath=[x]"]
    assert resumed_arguments(given)[:5] == [*given[:3], "experiment=ours", given[3]]
    assert resumed_arguments(["-cd", "here", f"resume={run}"])[:4] == ["-cd", "here", "--config-name", "other"]
