"""Pieces of a translation joined to one."""

from __future__ import annotations

from scaleformer.translation.translations import DocumentHypothesis, Translation, join

PARTS = [
    Translation((DocumentHypothesis(("a", "", "b"), -1.0, -0.5, False, (1,), (2,), 2),), 3, 7),
    Translation((DocumentHypothesis(("c",), -2.0, -1.0, True),), 2, 5),
    Translation((DocumentHypothesis(("d", "e"), -3.0, -1.5, False, (), (0, 1), 1),), 2, 6),
]


def test_pieces_of_a_document_keep_their_places() -> None:
    best = DocumentHypothesis(("a", "", "b", "c", "d", "e"), -6.0, -3.0, False, (1,), (2, 5, 6), 3)
    assert join(PARTS, "document") == Translation((best,), 7, 18)


def test_by_segment_each_piece_is_one() -> None:
    [best] = join(PARTS, "segment").hypotheses
    assert best.segments == ("a  b", "c", "d e")
    assert best.cut == (0, 2)
