"""Which documents and segments the filters take: by hand, alone and in order, and the same for any processes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.prepare_report import PrepareReport
from scaleformer.data.quality.checks import BITS, UNSURE_BIT
from scaleformer.data.quality.config import FilterConfig
from scaleformer.data.quality.decisions import decide, leaking_documents, related_documents, repeated_runs
from scaleformer.data.quality.splitting import assign_groups, group_documents, proposal
from scaleformer.data.quality.survey import Split, survey
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, from_parts


def document(name: str, *segments: str, target: str = "t ") -> Document:
    return Document(name, segments, tuple(target + segment for segment in segments))


LETTERS = [document("a", *"pqrstu"), document("b", "x", *"qrst", "y"), document("c", *"pqrstu"), document("d", "z")]


def surveyed(documents: list[Split], **filters: Any) -> Any:
    return survey(lambda: documents, FilterConfig(**filters).active(), (None, None))


def test_runs_and_documents_that_stand_before() -> None:
    found = surveyed([("train", d) for d in LETTERS], duplicates=3)
    assert np.flatnonzero(repeated_runs(found, 3)).tolist() == [7, 8, 9, 10, *range(12, 18)]
    assert not repeated_runs(found, 5)[:12].any()
    config = FilterConfig(duplicates=3)
    decisions = decide(found, config, config.active())
    assert decisions.whole.tolist() == [-1, 0, 0, -1]  # b loses four of six segments, c is a
    taken = {"segments": 12, "documents": 2}
    assert decisions.filters == {"duplicates": {"alone": taken, "in_order": taken}}
    config = FilterConfig(duplicates=3, documents=0.7)
    decisions = decide(found, config, config.active())
    assert (decisions.whole.tolist(), decisions.gaps) == ([-1, -1, 0, -1], 1)


def test_alone_and_in_order() -> None:
    same = "Same words on both sides"
    documents = [Document("a", (same, "one", "two"), (same, "uno", "dos")), Document("b", (same,), (same,))]
    config = FilterConfig(duplicates=2, copies=True)
    found = surveyed([("", d) for d in [*documents, documents[0]]], duplicates=2, copies=True)
    decisions = decide(found, config, config.active())
    counted = {"duplicates": decisions.filters["duplicates"]["in_order"], **decisions.filters["copies"]}
    assert list(counted.values()) == [{"segments": n, "documents": 1} for n in (3, 3, 2)]


def test_training_documents_that_stand_in_another_split() -> None:
    documents = [("train", document("a", "one two", "three")), ("train", document("b", "four five six", "one two"))]
    documents += [("test", document("c", "one  two", "seven"))]
    found = surveyed(documents, leakage=0.5)
    assert leaking_documents(found, 0.5).tolist() == [True, False, False]  # two of three words, two of five
    assert leaking_documents(found, 0.3).tolist() == [True, True, False]
    assert related_documents(found, 0.5).tolist() == [[0, 1], [0, 2], [1, 2]]  # of either document


def test_nearly_equal_segments_leak() -> None:
    documents = [("train", document("a", "one two three four five six"))]
    documents += [("test", document("b", "one two three x five six"))]
    assert surveyed(documents, leakage=0.5)["near"].tolist() == [1, 0]
    documents[1] = ("test", document("b", "one two y x five six"))
    assert surveyed(documents, leakage=0.5)["near"].tolist() == [0, 0]
    documents[1] = ("test", document("b", "one two three x five six", "one two three four y six"))  # one near both
    assert len(surveyed(documents, leakage=0.5).near_held_out) == 2


def command(*lines: str) -> str:
    return shlex.join([sys.executable, "-c", "\n".join(("import sys", *lines))])


LENGTHS = command("for line in sys.stdin: print(len(line.rstrip('\\n').split('\\t')[1]) / 10)")


def test_what_another_program_gives_less(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = ("a  1", "b", "", "c\n2"), ("long\tenough", "short", "long enough", "123456789.")
    found = Document("d", *texts)
    config = FilterConfig(scorer=LENGTHS, score=1.0)
    for shape in (found, from_parts("d", [*found.parts(), (("no partner",), ())])):
        seen = surveyed([("train", shape), ("test", shape)], scorer=LENGTHS, score=1.0)
        decisions = decide(seen, config, config.active())
        low = [n % (len(seen["faults"]) // 2) == 1 for n in range(len(seen["faults"]))]
        assert (seen["faults"] > 0).tolist() == low
        assert np.flatnonzero(decisions.reasons >= 0).tolist() == [1]  # of train alone
    assert decisions.filters == {"score": {way: {"segments": 1, "documents": 0} for way in ("alone", "in_order")}}
    nan = command("for line in sys.stdin: print('nan')")
    assert (surveyed([("", found)], scorer=nan)["faults"] > 0).all()
    for scorer, message in (
        ("no-such-program -x", "'no-such-program -x': cannot be run: No such file"),
        ("'", "cannot be run: No closing quotation"),
        (command("sys.exit('no model')"), "ended with exit code 1"),
        (command("print('score')"), "a number on each line: could not convert string to float: 'score"),
        (command("print(1)"), "wrote 1 lines for 4 segments"),
    ):
        with pytest.raises(DataError, match=re.escape(message)):
            surveyed([("", found)], scorer=scorer)
    assert "no model" in capfd.readouterr().err
    for wrong in ({"scorer": " "}, {"score": 0.9}):
        with pytest.raises(ValueError, match=r"filters.score needs filters.scorer"):
            FilterConfig(**wrong)


def test_any_number_of_processes_finds_the_same() -> None:
    documents = [("train", document(f"d{n}", *(f"word {n} {m} of a text" for m in range(400)))) for n in range(8)]
    documents += [("test", document("t", "word 3 5 of a text"))]
    filters = FilterConfig(usual=True).active()
    one, two = (survey(lambda: documents, filters, ("en", "es"), True, n) for n in (1, 2))
    for name in one.columns:
        assert one[name].tolist() == two[name].tolist()
    assert (one.stretches, one.digests, one.names, one.languages) == (
        two.stretches,
        two.digests,
        two.names,
        two.languages,
    )
    assert one["near"].any()


def test_groups_by_name_and_by_relation() -> None:
    names = ["x/1", "y/1", "x/2", "z", "y/2"]
    assert group_documents(names, "^(.)/", []) == [0, 1, 0, 3, 1]
    assert group_documents(names, None, [(1, 3), (3, 4)]) == [0, 1, 2, 1, 1]
    assert group_documents(names, "^x", [(2, 3)]) == [0, 1, 0, 0, 4]


@pytest.mark.parametrize("seed", range(5))
def test_splits_hold_whole_groups_of_every_size(seed: int) -> None:
    groups = [n // 4 for n in range(400)]
    sizes = [1 + n // 40 for n in range(400)]
    splits = assign_groups(groups, sizes, 0.1, 0.2, seed)
    assert all(len({splits[n] for n in range(400) if groups[n] == group}) == 1 for group in range(100))
    assert [splits.count(name) for name in ("valid", "test")] == pytest.approx([40, 80], abs=4)
    for name in ("valid", "test"):
        own = [size for size, split in zip(sizes, splits, strict=True) if split == name]
        assert abs(np.mean(own) - np.mean(sizes)) < 0.6
    assert splits == assign_groups(groups, sizes, 0.1, 0.2, seed)


def test_too_few_groups_are_an_error() -> None:
    with pytest.raises(DataError, match="2 groups of documents are too few to set valid and test aside"):
        assign_groups([0, 0, 1], [1, 1, 1], 0.1, 0.1, 1)


def test_sizes_for_small_corpora() -> None:
    assert proposal("test", 0.05, 5, 400).endswith("test=0.13 would give it about 1,040")
    assert proposal("test", 0.05, 5, 10).endswith("test=0.2 would give it about 40")
    assert not proposal("test", 0.05, 5, 1000) + proposal("test", 0.2, 5, 10) + proposal("test", 0.0, 0, 0)


def corpus(folder: Path) -> Path:
    folder.mkdir()
    train = [*LETTERS, document("leak", "a test sentence of its own", "z"), document("copy", "same words", target="")]
    for split, documents in {"train": train, "test": [document("e", "a test sentence of its own")]}.items():
        lines = "".join(d.to_json() + "\n" for d in documents)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def test_a_folder_keeps_its_splits(tmp_path: Path) -> None:
    filters = FilterConfig(duplicates=3, leakage=0.5, documents=0.7)
    config = PrepareConfig("jsonl", str(corpus(tmp_path / "in")), str(tmp_path / "out"), filters=filters)
    report = prepare(config)
    kept = {path.name[:-9]: [d.id for d in read_jsonl(path)] for path in sorted((tmp_path / "out").glob("*.gz"))}
    assert kept == {"test": ["e"], "train": ["a", "b", "d", "copy"]}
    assert report.dropped_documents == {"duplicates": 1, "leakage": 1}
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["filters"]["leakage"] == {way: {"segments": 2, "documents": 1} for way in ("alone", "in_order")}
    assert written["gaps"] == 1
    left_out = [json.loads(line) for line in (tmp_path / "out" / "left_out.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in left_out] == ["duplicates"] * 10 + ["leakage"] * 2
    assert "a test sentence of its own" in (tmp_path / "out" / "report.html").read_text()


def test_filtered_segments_may_stay_without_a_partner(tmp_path: Path) -> None:
    filters = FilterConfig(duplicates=3, documents=0.7, segments="unaligned")
    config = PrepareConfig("jsonl", str(corpus(tmp_path / "in")), str(tmp_path / "out"), filters=filters)
    prepare(config)
    b = next(d for d in read_jsonl(tmp_path / "out" / "train.jsonl.gz") if d.id == "b")
    assert b.source == tuple("xqrsty")
    assert b.beads == ((1, 1), *((1, 0), (0, 1)) * 4, (1, 1))


def test_related_documents_stand_in_one_split(tmp_path: Path) -> None:
    documents = [
        document(f"{n}{side}", f"sentence {n} of a text {n}", f"{side} {n}") for n in range(30) for side in "ab"
    ]
    (tmp_path / "in.jsonl").write_text("".join(d.to_json() + "\n" for d in documents), encoding="utf-8")
    filters = FilterConfig(leakage=0.2)
    config = PrepareConfig(
        "jsonl", str(tmp_path / "in.jsonl"), str(tmp_path / "out"), filters=filters, valid=0.1, test=0.2
    )
    prepare(config)
    kept = {path.name[:-9]: [d.id for d in read_jsonl(path)] for path in (tmp_path / "out").glob("*.gz")}
    assert {split: len(names) for split, names in kept.items()} == {"train": 42, "valid": 6, "test": 12}
    for names in kept.values():
        assert {name[:-1] for name in names if name[-1] == "a"} == {name[:-1] for name in names if name[-1] == "b"}


def test_doubts_of_the_language_count_beside_those_of_the_alignment_alone() -> None:
    found = surveyed([("", document("a", "one", "two", "three"))], language=True)
    found.columns["faults"] = np.array([UNSURE_BIT, BITS["language"], 0])
    for filters, wanted in (({"language": True}, [1]), ({"language": True, "alignment": 0.5}, [0, 1])):
        config = FilterConfig(**filters, documents=1)
        decisions = decide(found, config, config.active())
        assert np.flatnonzero(decisions.reasons == decisions.names.index("language")).tolist() == wanted


def test_what_is_left_out_is_counted_in_segments() -> None:
    report = PrepareReport(dropped_segments=Counter(duplicates=350), dropped_documents=Counter(duplicates=1, short=2))
    assert report.reasons() == "350 duplicates, 2 short"
