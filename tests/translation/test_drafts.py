"""Documents from drafts through the translator: the same texts, whatever the drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scaleformer.decoding.drafts import Counts
from scaleformer.system.errors import DataError
from scaleformer.translation.forced import read_draft
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator
from tests.runs import make_run

DOCUMENTS = [["one two", "three", "", "four five six", "seven"], [""], ["eight nine", "ten"], ["eleven"]]
GREEDY: dict[str, Any] = {"strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder: Path = make_run(tmp_path_factory.mktemp("drafts") / "run")
    return Translator.load(folder, "cpu")


@pytest.mark.parametrize("settings", [{}, {"max_tokens": 12}, {"fixed": [{1: "drei"}, {}, {}, {}]}], ids=str)
@pytest.mark.parametrize(
    "draft",
    [
        "segments",
        [["eins zwei", "drei", "", "vier", "sieben", "too many"], ["x"], ["acht"], []],
        [["\U0001f600 \u4e00", "", "text", "<sep> </s>", " "], [], ["", ""], ["zwölf"]],
    ],
    ids=["segments", "other numbers", "strange"],
)
def test_drafts_change_nothing(translator: Translator, draft: Any, settings: dict[str, Any]) -> None:
    expected = translator.translate(DOCUMENTS, draft="none", **GREEDY, **settings)
    assert translator.translate(DOCUMENTS, draft=draft, **GREEDY, **settings) == expected


def test_beams_by_segment_do_not_depend_on_drafts_or_batches(translator: Translator) -> None:
    beam = {**GREEDY, "strategy": "beam", "beam_size": 3}
    expected = translator.translate(DOCUMENTS, **beam)
    assert translator.translate(DOCUMENTS, **beam, draft="segments", batch_tokens=1) == expected
    drafts = [["eins zwei", "drei", "", "vier", "sieben"], ["x"], ["acht"], []]
    assert translator.translate(DOCUMENTS, **beam, draft=drafts) == expected
    assert translator.translate(DOCUMENTS[-1:], **beam, draft="none") == expected[-1:]  # one segment
    assert translator.translate(DOCUMENTS, **beam, draft="none") != expected


def test_what_drafts_carried_is_told(translator: Translator) -> None:
    told: list[Counts] = []
    for draft in ("segments", "none"):
        request = translator.request(DOCUMENTS, draft=draft, **GREEDY)
        translator.translate_documents(request, Listener(drafted=told.append))
    [counts] = told
    assert 0 <= counts.kept <= counts.tokens
    assert counts.calls > 0


@pytest.mark.parametrize(("documents", "drafted"), [(1, True), (9, True), (10, False)])
def test_auto_drafts_few_documents(translator: Translator, documents: int, drafted: bool) -> None:
    told: list[Counts] = [Counts()]
    request = translator.request([["one two", "three"]] * documents, draft="auto", **GREEDY)
    translator.translate_documents(request, Listener(drafted=told.append))
    assert (told[-1].tokens > 0) == drafted


@pytest.mark.parametrize(("kept", "most"), [(0, 1), (40, 1), (70, 6), (90, 60)])
def test_auto_drafts_more_documents_where_more_of_the_drafts_stay(translator: Translator, kept: int, most: int) -> None:
    pieces = PieceTranslator(translator, translator.decoding, counts=Counts(tokens=100, kept=kept))
    assert [pieces._pays(documents) for documents in (1, most, most + 1)] == [True, True, False]


@pytest.mark.parametrize("draft", [[["a"], 5, [], []], [[3], [], [], []]], ids=str)
def test_drafts_of_another_type_are_refused(translator: Translator, draft: Any) -> None:
    with pytest.raises(ValueError, match=r"(draft 1|segment 0 of draft 0) is int: wanted a list of drafts"):
        translator.translate(DOCUMENTS, draft=draft, **GREEDY)


def test_drafts_of_json_lines() -> None:
    assert read_draft({"source": ["a"], "draft": ["b", ""]}, "file:1") == ("b", "")
    assert read_draft({"source": ["a draft"]}, "file:1") == ()
    with pytest.raises(DataError, match="file:3: 'draft' is 'b', wanted a list of texts, one for each segment"):
        read_draft({"source": ["a"], "draft": "b"}, "file:3")


def test_a_document_is_given_up_while_its_draft_is_written(translator: Translator, monkeypatch: Any) -> None:
    """At the first question, not when all its segments are translated."""
    steps: list[int] = []
    step = type(translator.model).step
    monkeypatch.setattr(type(translator.model), "step", lambda *given: steps.append(0) or step(*given))
    request = translator.request([["one two three " * 20] * 3], draft="segments", strategy="greedy", loop_ngram_size=0)
    [found] = translator.translate_documents(request, Listener(segments=lambda *_: False))
    assert len(steps) < 5
    assert not found.finished
