"""What files wish and what all of a call share, in one request."""

from __future__ import annotations

from dataclasses import replace

from scaleformer.translation.files.setup import FileDocument, Setup
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translation_memory import Masked, TranslationMemory
from tests.copier import GREEDY, make_copier

TERMS = {"cat": "Katze", "dog": "Hund"}


def test_a_document_has_its_own_wishes_before_those_of_all() -> None:
    setup = Setup(make_copier(), GREEDY, "segment", None, TranslationMemory([("a cat", "eine Katze")]), TERMS)
    own = FileDocument("1", ("a cat",), forced=ForcedTexts({0: "ein Kater"}), terms={"cat": "Kater"}, where=("f:1",))
    other = FileDocument("2", ("a cat", "x"), name="g: 2")
    request = setup.request([own, other])
    assert request.documents == [own.source, other.source]
    assert (request.names, request.mode, request.decoding) == (["1", "g: 2"], "segment", GREEDY)
    assert request.forced == [own.forced, ForcedTexts({0: "eine Katze"})]
    assert request.terms == [{"cat": "Kater", "dog": "Hund"}, TERMS]
    assert [request.place(0, 0), request.place(1, 1)] == ["f:1", "g: 2, segment 2"]
    assert replace(setup, terms={}).request([other]).required == [()]


def test_a_memory_compares_the_spans_behind_placeholders() -> None:
    setup = Setup(make_copier(), GREEDY, translation_memory=TranslationMemory([("run `x`", "rufe `x` auf")]))
    documents = [FileDocument("a", ("run ⟨1⟩",), masked=(Masked("run ⟨1⟩", (span,)),)) for span in ("`x`", "`y`")]
    assert setup.request(documents).forced == [ForcedTexts({0: "rufe ⟨1⟩ auf"}), ForcedTexts()]
