"""The commands of docs/own-documents.md, one after the other, on a small manual of our own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.pages.manual import write_manual
from tests.formats.pages import structure

PAGE = Path(__file__).parents[1] / "docs" / "own-documents.md"
COMMANDS = re.findall(r"^    (scaleformer (\w+) .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
# of the smallest model, so that the road takes seconds
SMALL = {
    "prepare": ["valid=0.2", "test=0.2"],
    "train": [
        *("model=tiny", "model.width=16", "model.feedforward=16", "model.heads=2", "tokenizer.vocab_size=345"),
        *("trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.precision=32-true", "test.ter=false"),
        *("decoding=greedy", "decoding.max_length_ratio=0.5", "data.cache_dir=cache"),
    ],
    "evaluate": ["ter=false"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of them have run."""
    folder = tmp_path_factory.mktemp("own")
    write_manual(folder)
    for command, name in COMMANDS:
        call = [*shlex.split(command)[1:], *SMALL.get(name, [])]
        done = subprocess.run(
            [sys.executable, "-m", "scaleformer", *call],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    return folder


def test_the_page_shows_the_whole_road() -> None:
    assert [name for _, name in COMMANDS] == ["prepare", "train", "translate", "translate", "evaluate"]


def test_every_command_leaves_what_the_page_says(folder: Path) -> None:
    for name in ("corpus/train.jsonl.gz", "corpus/report.json", "corpus/alignment.html"):
        assert (folder / name).is_file()
    assert (folder / "runs/manual/results/bleu-test.json").is_file()
    source = (folder / "new/en/upgrade.md").read_text()
    for name in ("new/es/upgrade.md", "upgrade.es.md"):
        found = (folder / name).read_text()
        assert structure(found) == structure(source)
        assert found != source
