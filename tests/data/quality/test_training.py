"""What training warns of, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.quality.training import corpus_warnings
from scaleformer.data.sources import split_sources
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
    config = DataConfig("jsonl", path=str(folder))
    return corpus_warnings(config, split_sources(config))


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
