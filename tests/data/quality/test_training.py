"""What training warns of, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.quality.training import corpus_warnings
from scaleformer.data.sources import SplitSource, segmentation, split_sources
from tests.runs import write_corpus

ENGLISH = "The gate of the garden is closed in winter, and nobody may open it before the first day of April {}."
SPANISH = "La puerta del jardín está cerrada en invierno, y nadie puede abrirla antes del primer día de abril {}."
GERMAN = "Das Tor des Gartens ist im Winter geschlossen, und niemand darf es vor dem ersten April öffnen {}."


def document(name: str, numbers: range, target: str = SPANISH) -> dict[str, Any]:
    texts = ([text.format(number) for number in numbers] for text in (ENGLISH, target))
    return dict(zip(("id", "source", "target"), (name, *texts), strict=True))


def warned(folder: Path, train: list[dict[str, Any]], **others: list[dict[str, Any]]) -> tuple[Any, list[str]]:
    for split, documents in {"train": train, **others}.items():
        write_corpus(folder, split, documents)
    return corpus_warnings({"": corpus(folder)})


def corpus(folder: Path, **settings: Any) -> tuple[DataConfig, dict[str, SplitSource]]:
    config = DataConfig(**{"format": "jsonl", **settings}, path=str(folder))
    return config, split_sources(config)


def test_segments_of_other_splits_that_stand_in_training(tmp_path: Path) -> None:
    train = [document("a", range(4)), document("b", range(4, 8)), document("c", range(8, 12))]
    leaks, lines = warned(tmp_path, train, valid=[document("v", range(10, 14))], test=[document("t", range(20, 22))])
    assert leaks == {"valid": {"segments": 2, "share": 0.5}, "test": {"segments": 0, "share": 0.0}}
    assert lines == [
        "valid: 2 of 4 segments (50.0%) stand in the training split: scaleformer inspect shows them",
    ]


def test_a_document_that_is_half_the_corpus(tmp_path: Path) -> None:
    _, lines = warned(tmp_path, [document("a", range(6)), document("b", range(3)), document("c", range(3))])
    assert lines == [f"{tmp_path / 'train.jsonl'}: one of 3 documents has 50% of the segments"]


def test_targets_that_are_equal_to_their_source(tmp_path: Path) -> None:
    train = [document("a", range(5)), document("b", range(5)), document("c", range(3), ENGLISH)]
    (line,) = warned(tmp_path, train)[1]
    assert line.endswith("23% of the targets are equal to their source: are they translated?")


def test_a_test_split_in_another_language(tmp_path: Path) -> None:
    train = [document("a", range(5)), document("b", range(5)), document("c", range(5))]
    (line,) = warned(tmp_path, train, test=[document("t", range(20, 25), GERMAN)])[1]
    assert line == f"{tmp_path / 'test.jsonl'}: its targets look like de, those of training are es"


def test_what_stands_in_the_training_split_of_another_corpus(tmp_path: Path) -> None:
    for folder, numbers in (("a", range(10)), ("b", range(20, 30))):
        (tmp_path / folder).mkdir()
        train = [document(str(n), range(n, n + 3)) for n in numbers[::3]]
        warned(tmp_path / folder, train, valid=[document("v", range(10, 14))])
    leaks, lines = corpus_warnings({name: corpus(tmp_path / name) for name in "ab"})
    assert leaks == {f"{name}: valid": {"segments": 2, "share": 0.5} for name in "ab"}  # 10 and 11, of a
    assert lines == [
        f"{name}: valid: 2 of 4 segments (50.0%) stand in the training split: scaleformer inspect shows them"
        for name in "ab"
    ]


@pytest.mark.parametrize("suffixes", [("source", "target"), ("src", "tgt"), ("eng", "spa"), ("en", "es")])
def test_suffixes_are_not_taken_for_another_language(tmp_path: Path, suffixes: tuple[str, str]) -> None:
    for split, numbers in (("train", range(20)), ("test", range(20, 30))):
        for suffix, text in zip(suffixes, (ENGLISH, SPANISH), strict=True):
            (tmp_path / f"{split}.{suffix}").write_text("".join(f"{text.format(n)}\n" for n in numbers))
    settings = {"format": "text", "source_suffix": suffixes[0], "target_suffix": suffixes[1], "boundaries": "lines"}
    assert corpus_warnings({"": corpus(tmp_path, **settings)})[1] == []
    known = segmentation(corpus(tmp_path, **settings)[0])
    languages = (None, None) if suffixes[0][0] == "s" else suffixes
    assert (known["source_language"], known["target_language"]) == languages
