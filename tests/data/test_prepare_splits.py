"""Conversion of what is prepared already, its splits, and the folder that it goes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.quality.splitting import assign_groups
from scaleformer.data.sources import assign_splits, segmentation, split_sources
from scaleformer.system.errors import DataError
from tests.data.test_prepare import SAMPLES, written


def test_what_is_known_of_a_corpus_is_kept_when_it_is_prepared_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    languages = {"source_language": "en", "target_language": "es"}
    folders = {"source": str(SAMPLES / "raw" / "en"), "target": str(SAMPLES / "raw" / "es")}
    once = prepare(PrepareConfig("raw", None, str(first), **languages, **folders, valid=0, test=0))
    again = prepare(PrepareConfig("jsonl", str(first), str(second)))
    for folder in (first, second):
        config = DataConfig("jsonl", path=str(folder))
        assert segmentation(config) == {"grain": "sentence", **languages}
    assert once.segments == again.segments == {"train": sum(len(d.shapes) for d in written(first)["train"])}
    for given in ({"valid": 0.2}, {"seed": 3}, {"groups": "^d"}):
        with pytest.raises(ValueError, match=f"{next(iter(given))}: the splits of the folder .* stay as they are"):
            PrepareConfig("jsonl", str(first), str(second), **given)


def test_the_output_may_be_behind_a_link_and_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("there")
    monkeypatch.chdir(tmp_path / "here")
    prepare(PrepareConfig("jsonl", str(SAMPLES / "one_file.jsonl.gz"), "../link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "report.json").is_file()
    with pytest.raises(DataError, match=r"^\.: is the folder that you are in: choose another output$"):
        prepare(PrepareConfig("jsonl", str(SAMPLES / "one_file.jsonl.gz"), "."))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_wrong_pattern_of_groups_is_found_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"groups is '\(': not a regular expression: missing \)"):
        PrepareConfig("jsonl", "nowhere.jsonl", str(tmp_path / "out"), groups="(")


def test_blank_pairs_are_not_equal_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [{"id": "a", "source": ["one", "two", "", " ", ""], "target": ["uno", "dos", "", " ", ""]}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepare(PrepareConfig("jsonl", str(tmp_path / "in.jsonl"), str(tmp_path / "out"), valid=0, test=0))
    assert "the same in source and target" not in caplog.text


@pytest.mark.parametrize(("valid", "test", "count"), [(0.5, 0.5, 3), (0.7, 0.3, 20), (0.25, 0.75, 2)])
def test_shares_of_all_documents(valid: float, test: float, count: int) -> None:
    splits = assign_splits(count, valid, test)
    assert "train" not in splits
    assert abs(splits.count("valid") - valid * count) <= 0.5
    groups = assign_groups(range(count), [1] * count, valid, test, 1)
    assert {*groups} == {"valid", "test"}


def test_files_of_no_split_are_named(tmp_path: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl", "train2.jsonl.gz", "left_out.jsonl"):
        (tmp_path / name).write_text("")
    with pytest.warns(UserWarning, match=r"of no split and not read: dev\.jsonl, train2\.jsonl\.gz$"):
        split_sources(DataConfig("jsonl", path=str(tmp_path)))
