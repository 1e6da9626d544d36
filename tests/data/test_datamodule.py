"""The data module: its batches, reports and validation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.data.toy import SYNTHETIC, module

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def pairs(data: DocumentDataModule, batches: Any) -> list[tuple[str, str]]:
    """All segment pairs of some batches, decoded."""
    found = []
    for batch in batches:
        for source, target in zip(batch.source.tolist(), batch.target_output.tolist(), strict=True):
            sides = data.source_tokenizer.decode_segments(source), data.target_tokenizer.decode_segments(target)
            found += list(zip(*sides, strict=True))
    return sorted(found)


def pairs_of(documents: Any) -> list[tuple[str, str]]:
    return sorted(pair for d in documents for pair in zip(d.source, d.target, strict=True))


@pytest.mark.parametrize("separate", [False, True], ids=["joint", "separate"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"multi_resolution": True},
        {"join_segments": (2, 4)},
        {"streaming": True, "window": 50},
    ],
    ids=["longest", "multi-resolution", "joined", "streamed"],
)
def test_every_segment_reaches_the_model(cache: Path, options: dict[str, Any], separate: bool) -> None:
    data = module(cache, {"joint": not separate, "vocab_size": 390}, **options)
    data.prepare_data()
    assert (data.source_tokenizer.hash == data.target_tokenizer.hash) != separate
    loader = data.train_dataloader()
    for _ in range(2):
        assert pairs(data, loader) == pairs_of(data.documents("train"))
    assert pairs(data, data.val_dataloader()) == pairs_of(data.documents("valid"))


def test_whole_documents_with_labels(cache: Path) -> None:
    data = module(cache, max_tokens=10)
    assert list(data.documents("test")) == list(generate(SYNTHETIC, "test"))
    assert any(document.labels for document in data.documents("test"))


def test_validation_is_always_the_same(cache: Path) -> None:
    data = module(cache, multi_resolution=True, max_ratio=1.5)
    first, second = ([batch.ids for batch in data.val_dataloader()] for _ in range(2))
    assert first == second
    assert pairs(data, data.val_dataloader()) == pairs_of(data.documents("valid"))


def test_report(cache: Path) -> None:
    report = module(cache, max_ratio=1.2).report
    assert list(report.splits) == ["train", "valid"]
    assert report.splits["train"].documents == 40
    assert report.splits["train"].dropped["length ratio"] > 0
    assert report.splits["valid"].dropped == {}


def test_report_of_streamed_training_covers_its_first_window(cache: Path) -> None:
    report = module(cache, streaming=True, window=50).report
    assert list(report.splits) == ["train (first window)", "valid"]
    assert 50 <= report.splits["train (first window)"].segments < 70


def test_streamed_training_reports_everything_in_the_end(cache: Path, tmp_path: Path) -> None:
    data = module(cache, streaming=True, window=50, max_ratio=1.2)
    assert data.trained_report is None
    loader = data.train_dataloader()
    next(iter(loader))
    assert data.trained_report is not None
    assert list(data.trained_report.splits) == ["train (first window)", "valid"]
    state = data.state_dict()
    again = module(cache, streaming=True, window=50, max_ratio=1.2)
    again.load_state_dict(state)
    for _ in range(2):
        assert list(again.train_dataloader())
    assert again.trained_report is not None
    ours, kept = again.trained_report.splits["train"], module(cache, max_ratio=1.2).report.splits["train"]
    for name in ("documents", "segments", "source_tokens", "cut_documents", "dropped", "dropped_documents"):
        assert getattr(ours, name) == getattr(kept, name), name


def test_streamed_training_on_changed_data_reports_only_the_new_data(cache: Path) -> None:
    data = module(cache, streaming=True, window=50)
    next(iter(data.train_dataloader()))
    changed = SyntheticConfig(train=30, valid=6, test=5, seed=2)
    again = module(cache, streaming=True, window=50, synthetic=changed)
    again.load_state_dict(data.state_dict())
    with pytest.warns(UserWarning, match="continuing with epoch 1"):
        assert list(again.train_dataloader())
    state = again.state_dict()
    assert again.trained_report is not None
    assert again.trained_report.splits["train"].documents == 30
    later = module(cache, streaming=True, window=50, synthetic=changed)
    later.load_state_dict(state)  # unchanged data keep the counts
    assert list(later.train_dataloader())
    assert later.trained_report == again.trained_report


def test_known_tokenizers_need_no_training_split(cache: Path, tmp_path: Path) -> None:
    known = module(cache).tokenizers
    path = tmp_path / "test.jsonl"
    path.write_text(Document("a", ("x",), ("y",)).to_json() + "\n")
    data = DocumentDataModule(
        DataConfig(format="jsonl", path=str(tmp_path), cache_dir=str(cache)), tokenizers=(known[0], known[1])
    )
    assert [d.id for d in data.documents("test")] == ["a"]
    assert data.encoded("test").segments == 1
    assert data.val_dataloader() == []
    data.load_state_dict({"epoch": 2, "window": 0, "done": 3, "signature": "other"})
    with pytest.raises(DataError, match=r"no 'train' split; present: test"):
        data.train_dataloader()


def test_one_file_has_the_split_all(cache: Path) -> None:
    data = DocumentDataModule(
        DataConfig(format="jsonl", path=str(SAMPLES / "one_file.jsonl.gz"), cache_dir=str(cache)),
        TokenizerConfig(vocab_size=342),
    )
    assert len(data.documents("all")) == 6
    assert sum(len(data.documents(split)) for split in ("train", "valid", "test")) == 6
    assert pairs(data, data.train_dataloader()) == pairs_of(data.documents("train"))


def test_fingerprint(cache: Path) -> None:
    choices: list[dict[str, Any]] = [{}, {}, {"synthetic": SyntheticConfig(seed=9)}]
    one, same, other = (module(cache, **options) for options in choices)
    assert set(one.fingerprint()) == {"train", "valid", "test"}
    assert one.fingerprint() == same.fingerprint()
    assert not set(one.fingerprint().values()) & set(other.fingerprint().values())
    assert one.fingerprint(["valid"]) == {"valid": one.fingerprint()["valid"]}


def test_tokenizer_from_part_of_the_text(cache: Path) -> None:
    few = module(cache, {"max_segments": 60, "vocab_size": 330})
    assert few.source_tokenizer.hash != module(cache, {"vocab_size": 330}).source_tokenizer.hash


def test_overlong_error_reaches_the_user(cache: Path) -> None:
    with pytest.raises(DataError, match=r"more than data\.max_tokens=8"):
        next(iter(module(cache, max_tokens=8, overlong="error").train_dataloader()))


class Process:
    """What the data module asks of its trainer, as one of two processes that agree in no time."""

    state = SimpleNamespace(fn=None)
    world_size = 2
    accumulate_grad_batches = 1

    def __init__(self, rank: int) -> None:
        self.global_rank = rank


@pytest.mark.parametrize("count", [1, 2, 6], ids=lambda count: f"{count} documents")
def test_validation_of_two_processes_counts_every_document_once(cache: Path, count: int) -> None:
    found, lengths = [], []
    for rank in range(2):
        data = module(cache, synthetic=SyntheticConfig(train=40, valid=count), max_tokens=400, batch_tokens=400)
        data.trainer = Process(rank)  # type: ignore[assignment]
        loader = data.val_dataloader()
        lengths.append(len(loader))
        batches = list(loader)
        assert len(batches) == lengths[-1]
        found += [name for batch in batches for name in batch.ids]
        for batch in batches:
            assert bool(batch.target_mask.any()) == bool(batch.ids)
    assert lengths[0] == lengths[1] >= 1
    assert len(found) == len(set(found))
    assert {name.split("[")[0] for name in found} == {d.id for d in data.documents("valid")}
    assert sorted(data.validation_ids()) == sorted(found)
