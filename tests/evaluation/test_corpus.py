"""The corpus of a command: its own, else that of the run."""

from __future__ import annotations

import pytest

from scaleformer.evaluation.corpus import choose_corpus
from tests.runs import write_corpus


def test_the_command_line_comes_first(tmp_path):
    run = {"data": {"format": "jsonl", "path": str(write_corpus(tmp_path / "run"))}}
    other = {"format": "jsonl", "path": str(write_corpus(tmp_path / "other", "valid"))}
    assert choose_corpus(run, None, "test").where == str(tmp_path / "run" / "test.jsonl")
    assert choose_corpus(run, other, "valid").where == str(tmp_path / "other" / "valid.jsonl")
    assert choose_corpus({}, other, "valid").where == str(tmp_path / "other" / "valid.jsonl")


def test_what_is_wrong(tmp_path):
    other = {"format": "jsonl", "path": str(write_corpus(tmp_path / "other", "valid"))}
    with pytest.raises(ValueError, match="names no corpus: say which with data=jsonl"):
        choose_corpus({}, None, "test")
    with pytest.raises(ValueError, match="no 'test' split; present: valid"):
        choose_corpus({}, other, "test")
    with pytest.raises(ValueError, match=r"data\.pat: no such setting"):
        choose_corpus({}, {"pat": "x"}, "test")
