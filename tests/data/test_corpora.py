"""Splits: found, loaded, streamed, cached by content."""

from __future__ import annotations

import gzip
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.corpora import DocumentStream, load_split
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.sources import SPLITS, SplitSource, assign_splits, split_sources
from scaleformer.data.synthetic.corpus import SyntheticConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def jsonl(path: Path, documents: list[Document]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(document.to_json() + "\n" for document in documents), encoding="utf-8")
    return path


def some(count: int, prefix: str = "d") -> list[Document]:
    return [Document(f"{prefix}{i}", (f"a{i}", "b"), (f"x{i}", "y")) for i in range(count)]


@pytest.mark.parametrize(
    ("format", "folder", "options"),
    [
        pytest.param("jsonl", "jsonl", {}, id="jsonl"),
        pytest.param("text", "text", {"source_suffix": "en", "target_suffix": "es"}, id="text"),
        pytest.param(
            "text", "text_ids", {"source_suffix": "en", "target_suffix": "es", "boundaries": "ids"}, id="text with ids"
        ),
    ],
)
def test_folders(tmp_path: Path, format: str, folder: str, options: dict[str, str]) -> None:
    sources = split_sources(DataConfig(format=format, path=str(SAMPLES / folder), **options))  # type: ignore[arg-type]
    assert list(sources) == list(SPLITS)
    for split, source in sources.items():
        wanted = [(d.source, d.target) for d in read_jsonl(SAMPLES / "jsonl" / f"{split}.jsonl")]
        corpus = load_split(source, tmp_path)
        assert [(d.source, d.target) for d in corpus] == wanted
        assert [(d.source, d.target) for d in DocumentStream(source)] == wanted
        assert (corpus[0], corpus[-1], corpus[:2]) == (next(iter(corpus)), list(corpus)[-1], list(corpus)[:2])
        with pytest.raises(IndexError):
            corpus[len(corpus)]


def test_one_file_is_split(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", some(40))
    sources = split_sources(DataConfig(format="jsonl", path=str(path), holdout=(0.1, 0.2)))
    parts = {split: [d.id for d in load_split(sources[split], tmp_path)] for split in SPLITS}
    assert [len(parts[split]) for split in SPLITS] == [28, 4, 8]
    assert sorted(id for ids in parts.values() for id in ids) == sorted(d.id for d in some(40))
    assert [d.id for d in load_split(sources["all"], tmp_path)] == [d.id for d in some(40)]


@pytest.mark.parametrize("content", [None, b"", b"\xff{"], ids=["gone", "empty", "wrong"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, content: bytes | None) -> None:
    source = split_sources(DataConfig(format="jsonl", path=str(jsonl(tmp_path / "all.jsonl", some(5)))))["all"]
    whole = list(load_split(source, tmp_path / "cache"))
    (path,) = (tmp_path / "cache" / "corpora").rglob("*.arrow")
    path.unlink() if content is None else path.write_bytes(content)
    assert list(load_split(source, tmp_path / "cache")) == whole


def test_one_file_too_small_to_split(tmp_path: Path) -> None:
    sources = split_sources(DataConfig(format="jsonl", path=str(jsonl(tmp_path / "a.jsonl", some(2)))))
    with pytest.raises(DataError, match=r"a\.jsonl: 2 documents are too few .* \(data\.holdout\)"):
        load_split(sources["train"], tmp_path)


def test_an_error_of_the_reader_stays_and_nothing_is_kept(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "train.jsonl", some(3))
    with path.open("a") as file:
        file.write("{\n")
    source = split_sources(DataConfig(format="jsonl", path=str(tmp_path)))["train"]
    for read in (lambda: load_split(source, tmp_path / "cache"), lambda: list(DocumentStream(source))):
        with pytest.raises(DataError, match=rf"^{path}:4: malformed JSON"):
            read()
    jsonl(path, some(4))
    assert len(load_split(source, tmp_path / "cache")) == 4


def test_the_cache_depends_on_content(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "train.jsonl", some(3))
    source = split_sources(DataConfig(format="jsonl", path=str(tmp_path)))["train"]
    before = source.fingerprint()
    assert [d.id for d in load_split(source, tmp_path / "cache")] == ["d0", "d1", "d2"]
    jsonl(path, some(3, "e"))
    assert [d.id for d in load_split(source, tmp_path / "cache")] == ["e0", "e1", "e2"]
    assert source.fingerprint() != before
    jsonl(path, some(3))
    assert source.fingerprint() == before
    moved = replace(source, files=(str(jsonl(tmp_path / "elsewhere.jsonl", some(3))),))
    assert moved.fingerprint() == before


def test_the_synthetic_fingerprint_covers_its_documents() -> None:
    config = SyntheticConfig(train=3)
    one, again, other = (
        SplitSource("train", "synthetic", synthetic=c).fingerprint()
        for c in (config, replace(config), replace(config, seed=2))
    )
    assert one == again != other


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        pytest.param([], {"path": "none"}, "none: no such file or folder", id="no path"),
        pytest.param([], {}, "none of train.jsonl, valid.jsonl, test.jsonl .*the folder holds nothing", id="no splits"),
        pytest.param(["dev.jsonl"], {}, "the folder holds dev.jsonl", id="other names"),
        pytest.param(["train.jsonl", "train.jsonl.gz"], {}, "both train.jsonl and train.jsonl.gz", id="ambiguous"),
        pytest.param(["train.source"], {"format": "text"}, "train.target is missing: the", id="one side"),
        pytest.param(["train.target"], {"format": "text"}, "train.source is missing: the", id="other side"),
        pytest.param(
            ["train.source", "train.target"], {"format": "text", "boundaries": "ids"}, "train.ids is missing", id="ids"
        ),
        pytest.param(["a.en"], {"format": "text"}, "no train.source with train.target", id="no pair"),
    ],
)
def test_missing_files_are_named(tmp_path: Path, files: list[str], options: dict[str, str], message: str) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    path = str(tmp_path / options.pop("path", "."))
    with pytest.raises(DataError, match=message):
        split_sources(DataConfig(**{"format": "jsonl", "path": path, **options}))  # type: ignore[arg-type]


def test_text_needs_a_folder_and_every_format_a_path(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", some(1))
    with pytest.raises(DataError, match=r"needs a folder with train\.source"):
        split_sources(DataConfig(format="text", path=str(path)))
    with pytest.raises(DataError, match=r"data\.format=jsonl needs data\.path"):
        split_sources(DataConfig(format="jsonl"))


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for format in ("jsonl", "text"):
        with pytest.raises(DataError, match=r"pipe: can be read only once, but training reads it several times"):
            split_sources(DataConfig(format=format, path=str(tmp_path / "pipe")))


def test_text_without_a_blank_line_gives_a_warning(tmp_path: Path) -> None:
    for name in ("train.source", "train.target"):
        (tmp_path / name).write_text("one two three\n" * 60)
    config = DataConfig(format="text", path=str(tmp_path), cache_dir=str(tmp_path / "cache"))
    said = r"train\.target: all 60 lines are one document, because .*: set data\.boundaries=lines"
    for _ in range(2):  # from the files, then from the cache
        with pytest.warns(UserWarning, match=said):
            load_split(split_sources(config)["train"], config.cache_dir)
    data = DocumentDataModule(config, TokenizerConfig(vocab_size=282))
    with pytest.warns(UserWarning, match=said):
        assert data.report.splits["train"].documents == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_split(split_sources(replace(config, boundaries="lines"))["train"], config.cache_dir)


def test_empty_corpus(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "train.jsonl", [])
    source = split_sources(DataConfig(format="jsonl", path=str(tmp_path)))["train"]
    for read in (lambda: load_split(source, tmp_path / "cache"), lambda: list(DocumentStream(source))):
        with pytest.raises(DataError, match=rf"^{path}: no documents in the train split"):
            read()


def test_an_unwritable_cache(tmp_path: Path) -> None:
    source = split_sources(DataConfig(format="jsonl", path=str(jsonl(tmp_path / "train.jsonl", some(3)).parent)))
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"cannot write the cache .*data\.cache_dir"):
        load_split(source["train"], tmp_path / "cache")


SHARDS = ["train-00000.jsonl", "train-00001.jsonl.gz", "train-00002.jsonl"]


def shards(folder: Path, names: list[str] = SHARDS) -> SplitSource:
    for number, name in enumerate(names):
        path = jsonl(folder / name.removesuffix(".gz"), some(4, f"{number}/"))
        if name.endswith(".gz"):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return split_sources(DataConfig(format="jsonl", path=str(folder)))["train"]


@pytest.mark.parametrize("names", [SHARDS, [f"train/{i}.jsonl" for i in range(3)]], ids=["beside", "folder"])
def test_shards_are_one_split_in_order(tmp_path: Path, names: list[str]) -> None:
    source = shards(tmp_path, names)
    wanted = [document for number in range(3) for document in some(4, f"{number}/")]
    assert list(source.read()) == wanted
    assert list(load_split(source, tmp_path / "cache")) == wanted


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_processes_share_the_documents(tmp_path: Path, world: int) -> None:
    source = shards(tmp_path)
    parts = [[d.id for d in DocumentStream(source, rank, world)] for rank in range(world)]
    assert sorted(id for part in parts for id in part) == [d.id for d in source.read()]
    if world == 3:  # one shard each: no process reads another's
        assert [{id[0] for id in part} for part in parts] == [{"0"}, {"1"}, {"2"}]


def test_conflicting_shards(tmp_path: Path) -> None:
    shards(tmp_path)
    jsonl(tmp_path / "train.jsonl", some(1))
    with pytest.raises(DataError, match=r"both train\.jsonl and train-\*\.jsonl exist: keep one"):
        split_sources(DataConfig(format="jsonl", path=str(tmp_path)))
    (tmp_path / "train.jsonl").unlink()
    jsonl(tmp_path / "train-00001.jsonl", some(1))
    with pytest.raises(DataError, match=r"both .*train-00001\.jsonl and its \.gz exist"):
        split_sources(DataConfig(format="jsonl", path=str(tmp_path)))


def test_an_impossible_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="File name too long"):
        split_sources(DataConfig(format="jsonl", path=str(tmp_path / ("x" * 300))))


def test_assign_splits() -> None:
    splits = assign_splits(1000, 0.05, 0.1)
    assert [splits.count(name) for name in ("train", "valid", "test")] == [850, 50, 100]
    assert splits == assign_splits(1000, 0.05, 0.1)
    assert splits != assign_splits(1000, 0.05, 0.1, seed=2)
    assert sorted(assign_splits(3, 0.01, 0.01)) == ["test", "train", "valid"]
    assert assign_splits(2, 0.0, 0.0) == ["train", "train"]
    with pytest.raises(DataError, match="2 documents are too few to set valid and test aside"):
        assign_splits(2, 0.05, 0.05)
