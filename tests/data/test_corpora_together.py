"""Several corpora: tags, formats, what they share, and mistakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from scaleformer.vocabulary import SEP
from tests.data.mixtures import epochs_of, mixed


def test_tags_precede_every_example(cache: Path, folders: dict[str, str]) -> None:
    data = mixed(cache, folders, {"tag": "<2es>"}, {"tag": "bible"}, max_tokens=40)
    tags = data.source_tokenizer.tags
    assert list(tags) == ["2es", "bible"]
    assert {name: part.tag for name, part in data.parts.items()} == {"long": tags["2es"], "short": tags["bible"]}
    plain = mixed(cache, folders, max_tokens=40)
    assert plain.source_tokenizer.tags == {}
    cut = 0
    loaders = [data.train_dataloader(), data.val_dataloader()]
    for batch in (batch for loader in loaders for batch in loader):
        for name, tokens, segments in zip(batch.ids, batch.source.tolist(), batch.source_segments, strict=True):
            assert tokens[0] == tags["2es" if name.startswith("long") else "bible"]
            assert not set(tokens[1:]) & set(tags.values())
            assert segments[: tokens.index(SEP) + 1].eq(0).all()
            cut += "[" in name and not name.split("[")[1].startswith("0")
        assert not set(batch.target_output.flatten().tolist()) & set(tags.values())
    assert cut > 0
    assert max(split.longest_source for split in data.report.splits.values()) == 40


def test_a_tag_of_a_single_corpus(cache: Path, folders: dict[str, str]) -> None:
    def make(**options: Any) -> DocumentDataModule:
        path = folders["short"]
        config = DataConfig(format="jsonl", path=path, cache_dir=str(cache), max_tokens=60, batch_tokens=600, **options)
        return DocumentDataModule(config, TokenizerConfig(vocab_size=400, joint=False))

    tagged, plain = make(tag="bt"), make()
    (tag,) = tagged.source_tokenizer.tags.values()
    assert tagged.target_tokenizer.hash == plain.target_tokenizer.hash
    assert tagged.source_tokenizer.hash != plain.source_tokenizer.hash
    for batch in [*tagged.train_dataloader(), *tagged.val_dataloader()]:
        assert batch.source[:, 0].eq(tag).all()
    streamed = make(tag="bt", streaming=True)
    assert all(batch.source[:, 0].eq(tag).all() for batch in streamed.train_dataloader())
    known = DocumentDataModule(make(tag="other").config, tokenizers=tagged.tokenizers)
    with pytest.raises(ValueError, match=r"data\.tag=other: .* has no such piece: its tags are bt$"):
        known.prepare_data()
    known = DocumentDataModule(make(tag="other").config, tokenizers=plain.tokenizers)
    with pytest.raises(ValueError, match=r"data\.tag=other: .* has no such piece: it has no tags$"):
        known.prepare_data()


def test_tokenizers_and_documents_of_all(cache: Path, folders: dict[str, str]) -> None:
    data = mixed(cache, folders)
    names = [document.id for document in data.documents("test")]
    assert [name.split("/")[0] for name in names] == ["long"] * 4 + ["short"] * 3
    assert list(data.report.splits) == ["long: train", "long: valid", "short: train", "short: valid"]
    batches = list(data.val_dataloader())
    assert len(batches) == len(data.val_dataloader())
    assert all(name.startswith(batch.corpus) for batch in batches for name in batch.ids)
    assert {batch.corpus for batch in batches} == {"long", "short"}
    assert set(data.fingerprint()) == {"train", "valid", "test"}


def test_any_formats_together(cache: Path, folders: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one two\n\nthree four\n")
    (tmp_path / "train.es").write_text("uno dos\n\ntres cuatro\n")
    text = {"format": "text", "path": str(tmp_path), "source_suffix": "en", "target_suffix": "es"}
    synthetic = {"format": "synthetic", "path": None, "synthetic": {"train": 20, "valid": 1, "test": 1}}
    data = mixed(cache, folders, text, synthetic)
    (epoch,) = epochs_of(data)
    counts = Counter("text" if name.split("-")[0].startswith("train.") else "rest" for b in epoch for name in b)
    assert set(data.parts) == {"long", "short"}
    assert counts["text"] == pytest.approx(3 * counts["rest"], abs=3)  # the weights are 3 to 1


def test_mistakes_give_one_line(cache: Path, folders: dict[str, str], tmp_path: Path) -> None:
    def refused(kind: type[Exception], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match) as error:
            mixed(cache, folders, **options).train_dataloader()
        assert "\n" not in str(error.value)

    for weight in (0, -1.5):
        refused(ValueError, rf"\.long\.weight is {weight}: it must be a float above 0", long={"weight": weight})
    refused(ValueError, r"data\.corpora\.short\.weight is missing: long has a weight", short={"weight": None})
    refused(ValueError, r"data\.corpora\.long\.wieght: no such setting \(did you mean", long={"wieght": 1})
    refused(ValueError, r"data\.corpora\.long\.max_tokens: no such setting", long={"max_tokens": 1})
    refused(ValueError, r"data\.corpora\.long\.path is 3: it must be a str", long={"path": 3})
    refused(ValueError, r"data\.corpora\.long\.format is 'x': it must be one of", long={"format": "x"})
    refused(ValueError, r"long: data\.tag is 'sep': <sep> is a reserved piece", long={"tag": "sep"})
    refused(ValueError, r"long: data\.tag is '0x41': <0x41> is a reserved piece", long={"tag": "0x41"})
    refused(ValueError, r"long: data\.tag is 'a b': it must be a letter or digit", long={"tag": "a b"})
    refused(ValueError, r"data\.path is 'x': set it for each corpus of data\.corpora", path="x")
    refused(ValueError, r"data\.tag is 'x': set it for each corpus of data\.corpora", tag="x")
    refused(ValueError, r"data\.temperature is 2\.0: it is for corpora without weights", temperature=2.0)
    with pytest.raises(ValueError, match=r"data\.temperature is 2\.0: it weighs data\.corpora"):
        DataConfig(format="jsonl", path="x", temperature=2.0)
    refused(ValueError, r"data\.temperature is 0\.0: it must be a float above 0", temperature=0.0)
    streamed = {"long": {"weight": None, "streaming": True}, "short": {"weight": None}}
    refused(ValueError, r"data\.corpora\.long\.weight is missing: a streamed corpus", **streamed)
    for name in ("Long", "a b", "", "../x"):
        entries = {"long": {"path": "a"}, name: {"path": "b"}}
        with pytest.raises(ValueError, match=r"data\.corpora: .*(differ only in case|is no name)"):
            DataConfig(format="jsonl", corpora=entries)
    (tmp_path / "test.jsonl").write_text(Document("a", ("x",), ("y",)).to_json() + "\n")
    refused(DataError, r"^data\.corpora\.short: .*: no 'train' split; present: test", short={"path": str(tmp_path)})
    refused(DataError, r"^data\.corpora\.short: .*none: no such file or folder", short={"path": str(tmp_path / "none")})
    with pytest.raises(ValueError, match=r"data\.corpora\.a is 'x': it must be a group of settings"):
        DataConfig(format="jsonl", corpora={"a": "x"})
