"""What the texts of a bad evaluation tell about its cause."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.suspicions import suspicions

SOURCE = ("the red house stands near a river", "two old men walk in snow", "she bought 3 new books", "it rains")
TARGET = (
    "la casa roja está cerca del río",
    "dos viejos caminan por nieve",
    "ella compró 3 libros nuevos",
    "llueve hoy",
)
GOOD = ("la casa roja está junto del río", "dos hombres viejos andan por nieve", "ella compró 3 libros", "hoy llueve")


def found(source: Sequence[str], target: Sequence[str], hypothesis: Sequence[str]) -> list[str]:
    """Beginnings of what is suspected of two documents made of the segments."""
    halves = (slice(0, 2), slice(2, None))
    return [
        line.partition(" than")[0].partition(",")[0]
        for line in suspicions(
            [TranslatedDocument(str(n), source[h], target[h], hypothesis[h]) for n, h in enumerate(halves)]
        )
    ]


@pytest.mark.parametrize(
    ("source", "target", "hypothesis", "expected"),
    [
        pytest.param(SOURCE, TARGET, GOOD, [], id="nothing"),
        pytest.param(TARGET, SOURCE, GOOD, ["the translations have more words of the sources"], id="swapped"),
        pytest.param(SOURCE, TARGET, SOURCE, ["the translations have more words of the sources"], id="copied"),
        pytest.param(SOURCE, TARGET[::-1], GOOD,
                     ["the translations are more like the references of other segments"], id="order"),
        pytest.param(SOURCE, TARGET, ("la la", "la", "la la la", "la"),
                     ["the translations have 3 different sequences of three characters"], id="one word"),
        pytest.param(SOURCE, TARGET, ("lalala", "la", "lalalalala", "la"),
                     ["the translations have 2 different sequences of three characters"], id="one syllable"),
        pytest.param(SOURCE, TARGET, ("", "", "", ""),
                     ["the translations have 0 different sequences of three characters"], id="empty"),
        pytest.param(SOURCE, TARGET, ("la la uno", "por cual", "hola ser", "que va"), [], id="other words"),
        pytest.param(("une maison", "il pleut"), ("红色的房子", "今天下雨"), ("红色的红色", "房子"), [],
                     id="no spaces"),
    ],
)  # fmt: skip
def test_causes(source: Sequence[str], target: Sequence[str], hypothesis: Sequence[str], expected: list[str]) -> None:
    assert found(source, target, hypothesis) == expected


def test_other_counts_of_segments_and_a_single_one_are_taken() -> None:
    assert suspicions([TranslatedDocument("a", SOURCE, TARGET, GOOD[:1])]) == []
    assert suspicions([TranslatedDocument("a", ["hello you"], ["hola"], ["adiós"])]) == []
