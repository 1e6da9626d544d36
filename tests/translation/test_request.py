"""What a request says of its documents, and what it refuses. Most settings are tested through the translator."""

from __future__ import annotations

from typing import Any

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.text.terms import make_terms
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.request import Request

DOCUMENTS = [["a", "b"], ["c"]]


def test_segments_are_named_by_place_name_or_number() -> None:
    request = Request(DOCUMENTS, DecodingConfig())
    assert (request.name(1), request.place(1, 0)) == ("1", "document 1, segment 1")
    request = Request(DOCUMENTS, DecodingConfig(), ["x", "y"])
    assert (request.name(1), request.place(0, 1)) == ("y", "x, segment 2")
    request = Request(DOCUMENTS, DecodingConfig(), ["x", "y"], where=[["f:1", "f:3"], ["f:5"]])
    assert request.place(0, 1) == "f:3"


def test_terms_are_of_all_documents_or_of_each() -> None:
    terms = {"cat": "Katze"}
    assert Request(DOCUMENTS, DecodingConfig()).required == [(), ()]
    assert Request(DOCUMENTS, DecodingConfig(), terms=terms).required == [make_terms(terms)] * 2
    assert Request(DOCUMENTS, DecodingConfig(), terms=[{}, terms]).required == [(), make_terms(terms)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": ["x"]}, "names has 1 entries for 2 documents: wanted one for each"),
        ({"forced": [ForcedTexts()]}, "forced has 1 entries for 2 documents: wanted one for each"),
        ({"terms": ["ab", {}]}, r"terms is \['ab', \{\}\]: wanted as in \{'kernel': 'núcleo'\}, or a list of such"),
        ({"terms": [{}] * 3}, "terms has 3 entries for 2 documents: wanted one for each"),
        ({"forced": [ForcedTexts(), ForcedTexts({1: "x"})]}, r"document 1: fixed\[1\]: no such source segment"),
    ],
)
def test_what_does_not_belong_to_the_documents_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assert Request(DOCUMENTS, DecodingConfig(), **settings).required


def test_a_lone_surrogate_is_named() -> None:
    with pytest.raises(ValueError, match=r"segment 1 of document 0 has a lone surrogate \(\\ud800-\\udfff\)"):
        Request([["\u00e4\U0001f600", "a\ud800"]], DecodingConfig())
