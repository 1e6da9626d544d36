"""Translations that resume after an interruption and equal uninterrupted ones."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Listener
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator
from tests.runs import make_run

CONFIG = DecodingConfig(strategy="greedy", max_length_ratio=0.2, max_length_offset=3, batch_tokens=1)
DOCUMENTS = [["the cat sees", "it runs"], [""], ["a dog"], ["a house", "a tree"], ["a longer one than the others"]]
IDS = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("resumable") / "run"), "cpu")


class Stop(Exception):
    pass


def interrupt(translator: Translator, path: Path, finished: int, **settings) -> None:
    """A call that fails after this many documents."""

    def progress(share: float, tokens: int) -> None:
        if path.read_bytes().count(b"\n") > finished:
            raise Stop

    with pytest.raises(Stop), call(translator, path, progress=progress, **settings):
        pass


@contextmanager
def call(translator: Translator, path: Path, progress=lambda share, tokens: None, **settings):
    request = translator.request(**{"documents": DOCUMENTS, "decoding": CONFIG, "names": IDS, **settings})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scaleformer.translation.resumable.translation_bar", lambda description: nullcontext(progress))
        with resumable_translations(translator, request, path) as found:
            yield found


@pytest.mark.parametrize("settings", [{}, {"mode": "segment"}, {"max_tokens": 20}])
@pytest.mark.parametrize("cut", [0, 5], ids=["whole", "last line cut short"])
def test_the_same_call_goes_on(translator, tmp_path, capsys, caplog, settings, cut):
    path = tmp_path / "out.part"
    expected = translator.translate_documents(translator.request(DOCUMENTS, CONFIG, **settings))
    interrupt(translator, path, 3, **settings)
    records = [json.loads(line) for line in path.read_text().splitlines()][1:]
    assert [tuple(r["hypotheses"][0]["segments"]) for r in records] == [t.segments for t in expected[: len(records)]]
    assert f"{len(records)} of 5 documents are kept in {path}" in caplog.text
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut])
    shares: list[float] = []
    with call(translator, path, progress=lambda share, tokens: shares.append(share), **settings) as found:
        assert found == expected
    assert f"resuming: {len(records) - (cut > 0)} of 5 documents" in capsys.readouterr().err
    assert shares[0] > 0.2  # saved documents count
    assert shares[-1] == 1
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"decoding": replace(CONFIG, max_length_offset=4)},
        {"documents": [["x"], *DOCUMENTS[1:]]},
        {"names": list("vwxyz")},
        {"fixed": [{0: "x"}, {}, {}, {}, {}]},
    ],
    ids=["decoding", "documents", "names", "fixed"],
)
def test_another_call_begins_anew(translator, tmp_path, caplog, capsys, change):
    path = tmp_path / "out.part"
    interrupt(translator, path, 2)
    request = translator.request(**{"documents": DOCUMENTS, "decoding": CONFIG, **change})
    with call(translator, path, **change) as found:
        assert found == translator.translate_documents(request)
    assert "starting over" in caplog.text
    assert capsys.readouterr().err.count("resuming") == 0


def test_what_fails_after_the_translation_does_not_lose_it(translator, tmp_path, monkeypatch):
    path = tmp_path / "out.part"
    with pytest.raises(OSError, match="full"), call(translator, path):
        raise OSError("full")
    monkeypatch.setattr(PieceTranslator, "translate", lambda *_: iter(()))
    with call(translator, path) as found:
        assert len(found) == 5


def test_nothing_finished_leaves_nothing(translator, tmp_path):
    path = tmp_path / "out.part"
    with pytest.raises(ValueError, match="tag='2x'"), call(translator, path, tag="2x"):
        pass
    assert not path.exists()


def test_two_at_once_are_one_too_many(translator, tmp_path):
    path = tmp_path / "out.part"
    refused = pytest.raises(ValueError, match=r"out\.part: another process")
    with call(translator, path), refused, call(translator, path):
        pass


def test_documents_finish_in_order_whatever_the_batches(translator):
    documents = [["word " * n] for n in (9, 1, 8, 2, 7, 3, 1, 1)]
    order: list[Translation] = []
    found = translator.translate_documents(
        translator.request(documents, replace(CONFIG, batch_tokens=60)), Listener(finished=order.append)
    )
    assert found == order
    assert [t.source_tokens for t in found] == [
        t.source_tokens for d in documents for t in translator.translate_documents(translator.request([d], CONFIG))
    ]


def test_another_precision_begins_anew(translator, tmp_path, caplog, monkeypatch):
    path = tmp_path / "out.part"
    interrupt(translator, path, 3)
    monkeypatch.setattr(Translator, "precision", "bf16")
    with call(translator, path) as found:
        assert len(found) == len(DOCUMENTS)
    assert "other settings: starting over" in caplog.text


def test_a_file_that_is_no_translation_stays(translator, tmp_path):
    (tmp_path / "out.part").write_text("a download\n")
    refused = pytest.raises(ValueError, match=r"out\.part: is no unfinished translation: move it away")
    with refused, call(translator, tmp_path / "out.part"):
        pass
    assert (tmp_path / "out.part").read_text() == "a download\n"
