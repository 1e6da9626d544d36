"""Segments among those of other documents, and their translations back in place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scaleformer.data.readers.documents import Document
from scaleformer.evaluation.foreign_context import ForeignContext
from scaleformer.translation.translations import DocumentHypothesis, Translation

DOCUMENTS = [
    Document(id, tuple(f"{id}{n}" for n in range(count)), tuple("t" for _ in range(count)))
    for id, count in (("a", 5), ("b", 1), ("c", 30), ("d", 12))
]


def translated(segments: tuple[str, ...], finished: bool = True) -> Translation:
    upper = tuple(s.upper() for s in segments)
    return Translation((DocumentHypothesis(upper, -1.0, -1.0, finished),), len(segments), 7)


def test_every_segment_moves_and_comes_back():
    foreign = ForeignContext(DOCUMENTS, seed=3)
    assert [len(s) for s in foreign.sources] == [5, 1, 30, 12]
    assert Counter(s for d in foreign.sources for s in d) == Counter(s for d in DOCUMENTS for s in d.source)
    assert all(len({segment[0] for segment in foreign.sources[n]}) > 2 for n in (2, 3))
    back = foreign.restore([translated(s) for s in foreign.sources])
    assert [t.segments for t in back] == [tuple(s.upper() for s in d.source) for d in DOCUMENTS]
    assert all(t.finished for t in back)
    assert ForeignContext(DOCUMENTS, seed=3).sources == foreign.sources
    assert ForeignContext(DOCUMENTS, seed=4).sources != foreign.sources


def test_what_a_shuffled_document_lacks_is_empty_and_unfinished_where_it_belongs():
    foreign = ForeignContext(DOCUMENTS, seed=3)
    cut = [translated(s if n else s[:-1], finished=bool(n)) for n, s in enumerate(foreign.sources)]
    last = len(foreign.sources[0]) - 1
    [best] = cut[0].hypotheses
    cut[0] = replace(cut[0], hypotheses=(replace(best, cut=(last,)),))
    back = foreign.restore(cut)
    lost = foreign.sources[0][-1]
    assert [[m for m, s in enumerate(t.segments) if not s] for t in back] == [
        [int(lost[1:])] if d.id == lost[0] else [] for d in DOCUMENTS
    ]
    assert [t.cut for t in back] == [(int(lost[1:]),) if d.id == lost[0] else () for d in DOCUMENTS]
    touched = {segment[0] for segment in foreign.sources[0]}
    assert [t.finished for t in back] == [d.id not in touched for d in DOCUMENTS]


def test_one_document_has_no_others():
    with pytest.raises(ValueError, match="context=foreign: 1 document"):
        ForeignContext(DOCUMENTS[:1])
