"""Measurements are cached, and reused only if none of their inputs has changed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.length.documents import LengthSpec, TestText, choose_lengths
from scaleformer.evaluation.length.extrapolation import Cache, Protocol, System, default_window, measure_all
from scaleformer.evaluation.length.report import assemble
from scaleformer.evaluation.length.tables import extrapolation_tables, print_tables, remarks
from scaleformer.evaluation.length.views import Window
from scaleformer.evaluation.metrics import Metrics
from scaleformer.report.extrapolation import by_segments, plot_quality
from scaleformer.text.documents import Document
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run

GREEDY = DecodingConfig(strategy="greedy", max_length_ratio=0.2, max_length_offset=3)
OPTIONS = Protocol(GREEDY, window=Window("segments", 2, 1))
SPECS = [LengthSpec("segments", 1, 0.5), LengthSpec("segments", 2, 1.0), LengthSpec("document", None)]


@pytest.fixture(scope="module")
def system(tmp_path_factory) -> System:
    run = make_run(tmp_path_factory.mktemp("extrapolation") / "run", {"data": {"max_tokens": 10}})
    return System("toy", Translator.load(run, "cpu"))


def make_text(system: System) -> TestText:
    documents = [Document(d["id"], tuple(d["source"]), tuple(d["target"])) for d in DOCUMENTS]
    return TestText.of(documents, system.translator.source_tokenizer, system.translator.target_tokenizer)


@pytest.fixture
def bar():
    """Lists the pieces of work instead of showing a bar."""
    seen = []

    @contextmanager
    def show(title):
        seen.append(title)
        yield lambda share, tokens: None

    show.seen = seen
    return show


def test_a_second_call_uses_the_cache(system, bar, tmp_path):
    sets, _ = choose_lengths(make_text(system), SPECS, True)
    first = measure_all([system], sets, OPTIONS, Cache(tmp_path), bar)
    assert len(first) == 9
    assert bar.seen[:2] == ["toy, pass, segment: loss", "toy, pass, segment: translation"]
    # the window holds documents of one or two segments as a whole: nothing is measured twice
    assert not [title for title in bar.seen if "window, 2-segments" in title or "window, segment" in title]
    done = len(bar.seen)
    again = measure_all([system], sets, OPTIONS, Cache(tmp_path), bar)
    assert len(bar.seen) == done
    assert [m.to_dict() for m in again] == [m.to_dict() for m in first]


CHANGES = {
    "decoding": (lambda o, s: (replace(o, decoding=replace(GREEDY, max_length_offset=4)), s), ["translation"]),
    "loss batch": (lambda o, s: (replace(o, loss_tokens=50), s), ["loss"]),
    "checkpoint": (lambda o, s: (o, "other hash"), ["loss", "translation"]),
    "only loss": (lambda o, s: (replace(o, decode=False), s), []),
    "metrics": (lambda o, s: (replace(o, metrics=Metrics("none")), s), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_stale_measurements_are_repeated(name, system, bar, tmp_path, monkeypatch):
    sets, _ = choose_lengths(make_text(system), SPECS[:1], True)
    options = replace(OPTIONS, modes=("pass",))
    measure_all([system], sets, options, Cache(tmp_path), bar)
    bar.seen.clear()
    change, expected = CHANGES[name]
    options, sha256 = change(options, system.translator.sha256)
    monkeypatch.setitem(vars(system.translator), "sha256", sha256)
    measure_all([system], sets, options, Cache(tmp_path), bar)
    assert [title.split(": ")[1] for title in bar.seen] == expected


def test_other_text_and_damaged_files_are_not_used(system, bar, tmp_path):
    text = make_text(system)
    options = replace(OPTIONS, modes=("pass",), decode=False)
    for number, changed in enumerate([text, replace(text, target=("ein wort", *text.target[1:]))], 1):
        measure_all([system], choose_lengths(changed, SPECS[:1], True)[0], options, Cache(tmp_path), bar)
        assert len(bar.seen) == number
    for path in tmp_path.iterdir():
        path.write_text('{"key": ')
    measure_all([system], choose_lengths(text, SPECS[:1], True)[0], options, Cache(tmp_path), bar)
    assert len(bar.seen) == 3


def test_an_interrupted_call_keeps_finished_measurements(system, bar, tmp_path, monkeypatch):
    sets, _ = choose_lengths(make_text(system), SPECS, True)
    options = replace(OPTIONS, modes=("pass",))
    with monkeypatch.context() as patch:
        patch.setattr("scaleformer.evaluation.length.extrapolation.translate_views", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            measure_all([system], sets, options, Cache(tmp_path), bar)
    bar.seen.clear()
    measure_all([system], sets, options, Cache(tmp_path), bar)
    assert bar.seen[0] == "toy, pass, segment: translation"


def test_the_modes_match_the_translator(system, bar, tmp_path):
    sets, _ = choose_lengths(make_text(system), SPECS[2:], True)
    found = {m.mode: m for m in measure_all([system], sets, OPTIONS, Cache(tmp_path), bar)}
    sources = [d.source for d in sets[0].documents]
    for mode, name in (("pass", "document"), ("segments", "segment")):
        theirs = system.translator.translate_documents(system.translator.request(sources, GREEDY, mode=name))
        assert [d.hypothesis for d in found[mode].translated] == [list(t.segments) for t in theirs]
        assert found[mode].decode["unfinished"] == [
            d.id for d, t in zip(sets[0].documents, theirs, strict=True) if not t.finished
        ]
    assert all(len(d.hypothesis) == len(d.source) for d in found["segments"].translated)


def test_wrong_options():
    for change, message in (
        ({"loss": False, "decode": False}, "set one of them to true"),
        ({"window": None}, r"set window\.size and window\.unit"),
        ({"decoding": DecodingConfig(n_best=2)}, "it must be 1, since only the best translation is scored"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(OPTIONS, **change)
    assert default_window(("tokens", 512)) == Window("tokens", 512, 256)
    assert default_window(None) is None


def make_payload(system: System, bar, folder) -> dict:
    text = make_text(system)
    sets, left_out = choose_lengths(text, SPECS, True)
    other = System("other", system.translator)
    measurements = measure_all([system, other], sets, OPTIONS, Cache(folder / "cache"), bar)
    return {
        **assemble(measurements, sets, text, Metrics(), folder, 20, 20),
        "systems": [system.to_dict(), other.to_dict()],
        "settings": {
            "metrics": {"tokenize": "zh"},
            "decode": True,
            "modes": list(OPTIONS.modes),
            "decoding": {"strategy": "x"},
        },
        "corpus": {"split": "test", "documents": 3},
        "signatures": {},
        "left_out": left_out,
    }


def test_the_report(system, bar, tmp_path):
    payload = make_payload(system, bar, tmp_path)
    assert len(payload["results"]) == 18
    tests = payload["length_tests"]
    assert {(t["length"], t["against"]) for t in tests} == {("segment", "2-segments"), ("whole", "2-segments")}
    assert {t["documents"] for t in tests} == {3}
    comparisons = payload["comparisons"]
    assert {c["unit"] for c in comparisons} == {"document", "segment"}
    assert all(row["difference"] == 0 for c in comparisons for row in c["rows"])
    whole = next(r for r in payload["results"] if r["length"] == "whole")
    assert sum(row["documents"] for row in whole["by_size"]) == 3
    quality, rest = extrapolation_tables(payload)
    assert [c.header for c in quality.columns][:4] == ["length", "system", "mode", "docs"]
    # segment and 2-segments: pass and window are one measurement
    assert quality.row_count == rest.row_count == 2 * (2 + 2 + 3)
    tests[0] |= {"t": 3.0, "p": 0.01}  # all scores of the toy model are 0: there was nothing to test
    assert extrapolation_tables(payload)[2].row_count == 1
    assert any(line.startswith("cut at the length limit: toy, pass, whole: 3: north/one") for line in remarks(payload))


def test_brackets_in_names_of_systems_are_shown_verbatim(system, bar, tmp_path, capsys):
    payload = make_payload(system, bar, tmp_path)
    payload["corpus"]["split"] = "[/]test"
    for row in (*payload["systems"], *payload["results"], *payload["length_tests"]):
        row |= {key: f"[bold]{row[key]}[/x]" for key in ("name", "system") if key in row}
    payload["length_tests"][0] |= {"t": 3.0, "p": 0.01}
    print_tables(payload)
    out = capsys.readouterr().out
    assert out.startswith("[/]test: 3 documents")
    assert out.count(" [bold]toy[/x] ") == 2 * 7 + 2  # one tested system, and one remark
    assert out.count(" [bold]other[/x] ") == 2 * 7


def test_the_figure(system, bar, tmp_path):
    payload = make_payload(system, bar, tmp_path)
    path = plot_quality(payload, tmp_path / "plots" / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert by_segments(payload["lengths"])
    assert not by_segments([{"label": "segment", "unit": "segments"}, {"label": "9-tokens", "unit": "tokens"}])
    for row in payload["results"]:
        row["decode"] = None
    assert plot_quality(payload, tmp_path / "loss.png").is_file()
