"""data.level=segment: each bead is an example; those with an empty side are left out and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.cutting import Cutting, has_empty_side, kept_segments, make_plan
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.encoded import encode_documents
from scaleformer.data.report import report_split
from scaleformer.data.sampler import Recipe
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.text.documents import Document
from scaleformer.vocabulary import SEP
from tests.data.mixtures import epochs_of, mixed, of_two_processes
from tests.data.toy import module

SEGMENT = Cutting(40, level="segment")
# two words, two segments for one, no source, no target, blank on one side, blanks on both segments of a bead, two words
BEADS = ((1, 1), (2, 1), (0, 1), (1, 0), (1, 1), (2, 1), (5, 0), (1, 1))
EMPTY = (False, False, True, True, True, True, True, False)
DOCUMENT = Document(
    "d",
    ("one", "two", "three", "four", "five", "", "", "a", "b", "c", "d", "e", "end"),
    ("uno", "dos", "tres", "", "seis", "fin"),
    beads=BEADS,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([*DOCUMENT.source, *DOCUMENT.target] * 3, 290)


def test_each_bead_with_words_on_both_sides_is_an_example(tokenizer: Tokenizer) -> None:
    corpus = encode_documents([DOCUMENT, Document("p", ("one", "two"), ("uno", "dos"))], tokenizer, tokenizer)
    assert has_empty_side(corpus).tolist() == [*EMPTY, False, False]
    plan = make_plan(corpus, SEGMENT, np.random.default_rng(0))
    assert [plan.segments(n).tolist() for n in range(len(plan))] == [[0], [1], [7], [8], [9]]
    assert plan.source_lengths.tolist() == [corpus.source_lengths[i] + 1 for i in (0, 1, 7, 8, 9)]
    report = report_split(corpus, Recipe(SEGMENT, 200, 0), shuffle=False)
    assert (report.segments, report.examples, report.dropped) == (10, 5, {"an empty side": 5})
    assert report_split(corpus, Recipe(Cutting(40), 200, 0), shuffle=False).dropped == {}


def test_the_factor_of_lengths_leaves_out_more_and_both_are_counted(tokenizer: Tokenizer) -> None:
    document = Document("d", ("one", "one", ""), ("uno", " ".join(["dos"] * 30), "tres"))
    corpus = encode_documents([document], tokenizer, tokenizer)
    assert kept_segments(corpus, 3.0, "segment").tolist() == [0]
    report = report_split(corpus, Recipe(Cutting(200, max_ratio=3.0, level="segment"), 400, 0))
    assert report.dropped == {"length ratio": 1, "an empty side": 1}


@pytest.mark.parametrize("options", [{}, {"streaming": True, "window": 50}], ids=["kept", "streamed"])
def test_examples_of_the_data_module_are_single_segments(cache: Path, options: dict[str, object]) -> None:
    data = module(cache, level="segment", multi_resolution=True, **options)
    segments = sum(len(document.source) for document in data.documents("train"))
    names = [name for batch in epochs_of(data)[0] for name in batch]
    assert len(names) == len(set(names)) == segments
    for batch in [*data.train_dataloader(), *data.val_dataloader()]:
        assert batch.source.eq(SEP).sum(1).eq(1).all()
    report = data.trained_report or data.report
    assert {split.examples for name, split in report.splits.items() if name.startswith("train")} == {segments}


def test_several_corpora_and_two_processes(cache: Path, folders: dict[str, str]) -> None:
    def make() -> DocumentDataModule:
        return mixed(cache, folders, level="segment")

    data = make()
    assert {name: split.examples for name, split in data.report.splits.items()} == {
        name: split.segments for name, split in data.report.splits.items()
    }
    for batch in data.train_dataloader():
        assert batch.source.eq(SEP).sum(1).eq(1).all()
        break
    first, second = of_two_processes(make)
    names = {name for own in (first, second) for batch in own[0] for name in batch if name.startswith("long")}
    assert len(names) == data.report.splits["long: train"].segments  # the corpus was read whole, then started again


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"data\.level is 'word': it must be one of document, segment$"):
        DataConfig(level="word")
    with pytest.raises(ValueError, match=r"data\.join_segments is \[1, 8\]: .* add data\.join_segments=null$"):
        DataConfig(level="segment", join_segments=(1, 8))
