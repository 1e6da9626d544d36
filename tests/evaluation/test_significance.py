"""Paired tests against sacrebleu's own command, and on clear cases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.significance import ComparedSystem, SystemComparison, compare_systems, comparison_table

WORDS = ["the", "cat", "dog", "house", "sees", "runs", "red", "old", "on", "mat", "near", "lake", "green", "very"]
RANDOM = random.Random(1)
REFERENCES = [" ".join(RANDOM.choices(WORDS, k=RANDOM.randint(6, 14))) for _ in range(60)]


def row_of(comparison: SystemComparison, system: str, metric: str) -> ComparedSystem:
    return next(row for row in comparison.rows if (row.system, row.metric) == (system, metric))


def spoiled(share: float, seed: int) -> list[str]:
    """The references with a share of their words replaced."""
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else w for w in line.split()) for line in REFERENCES]


SYSTEMS = {"ours": spoiled(0.2, 1), "like it": spoiled(0.2, 2), "worse": spoiled(0.6, 3)}


@pytest.fixture(scope="module")
def comparison():
    return compare_systems(SYSTEMS, REFERENCES, bootstrap_samples=200, randomization_trials=200)


def test_worse_systems_differ_and_similar_ones_do_not(comparison):
    for metric in ("BLEU", "chrF++"):
        assert row_of(comparison, "worse", metric).significant()
        assert row_of(comparison, "worse", metric).difference < -10
        assert not row_of(comparison, "like it", metric).significant()
        first = row_of(comparison, "ours", metric)
        assert (first.difference, first.bootstrap_p, first.randomization_p) == (0, None, None)
        assert first.mean == pytest.approx(first.score, abs=1)
        assert 0 < first.interval < 10


@pytest.mark.parametrize(("test", "metric"), [("bs", "BLEU"), ("ar", "BLEU"), ("ar", "chrF++")])
def test_equal_to_the_command_of_sacrebleu(comparison, tmp_path: Path, test: str, metric: str):
    for name, lines in {**SYSTEMS, "references": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *SYSTEMS, "-f", "json"]
    command += ["-m", "bleu"] if metric == "BLEU" else ["-m", "chrf", "--chrf-word-order", "2"]
    command += [f"--paired-{test}", f"--paired-{test}-n", "200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for record, name in zip(json.loads(done.stdout), SYSTEMS, strict=True):
        theirs = record["BLEU" if metric == "BLEU" else "chrF2++"]
        row = row_of(comparison, name, metric)
        assert row.score == pytest.approx(theirs["score"], abs=1e-9)
        if test == "bs":
            assert (row.mean, row.interval) == pytest.approx((theirs["mean"], theirs["ci"]), abs=1e-9)
        if name != "ours":
            ours = row.bootstrap_p if test == "bs" else row.randomization_p
            assert ours == pytest.approx(theirs["p_value"], abs=1e-12)


def test_the_same_lines_are_not_tested():
    same = {"a": SYSTEMS["ours"], "b": SYSTEMS["ours"]}
    found = compare_systems(same, REFERENCES, bootstrap_samples=20, randomization_trials=20)
    assert [row.bootstrap_p for row in found.rows] == [None] * 4
    assert not row_of(found, "b", "BLEU").significant()


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_few_lines_cannot_be_significant(count):
    """For n differing lines, exchanging all or none gives the observed difference: 2 of 2^n."""
    same = REFERENCES[count:20]  # equal lines carry no information
    lines = {"right": REFERENCES[:count] + same, "wrong": ["x y z w"] * count + same}
    found = compare_systems(lines, REFERENCES[:20], bootstrap_samples=100, randomization_trials=2000)
    row = row_of(found, "wrong", "BLEU")
    assert row.randomization_p >= 2 / 2**count
    assert row.significant() == (count == 6)


def test_conventions_and_signatures():
    lines = {"a": ["A B C D", "e f g h"], "b": ["a b c d", "e f g x"]}
    found = compare_systems(
        lines, ["a b c d", "e f g h"], Metrics(lowercase=True), bootstrap_samples=20, randomization_trials=20
    )
    assert row_of(found, "a", "BLEU").score == pytest.approx(100)
    assert "case:lc" in found.signatures["BLEU"]["bootstrap"]
    assert "bs:20" in found.signatures["BLEU"]["bootstrap"]
    assert "ar:20" in found.signatures["chrF++"]["randomization"]
    json.dumps(asdict(found), allow_nan=False)


def test_the_tokenizer_is_that_of_both_metrics():
    lines = {"a": ["我喜欢你们的书"], "b": ["我喜欢他们的书"]}
    found = compare_systems(lines, lines["a"], Metrics("zh"), bootstrap_samples=20, randomization_trials=20)
    assert 0 < row_of(found, "b", "BLEU").score < 100
    assert all("tok:zh" in text for signatures in found.signatures.values() for text in signatures.values())


def test_the_table_marks_what_is_significant(comparison):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(comparison))
    rows = {line.split(" BLEU ")[0].strip(): line for line in console.export_text().splitlines() if " BLEU " in line}
    assert "*" in rows["worse"]
    assert "*" not in rows["like it"]


def test_brackets_in_names_are_shown_as_they_are(comparison):
    rows = tuple(replace(row, system=f"[bold]{row.system}[/x]") for row in comparison.rows)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(replace(comparison, rows=rows), "against [/x]"))
    text = console.export_text()
    assert text.startswith("against [/x]")
    assert text.count(" [bold]worse[/x] ") == 2


def test_zero_samples_are_refused():
    for name in ("bootstrap_samples", "randomization_trials"):
        with pytest.raises(ValueError, match=f"{name} is 0: it must be at least 1"):
            compare_systems(SYSTEMS, REFERENCES, **{name: 0})


@pytest.mark.parametrize(
    ("systems", "references", "message"),
    [
        ({"a": ["x"]}, ["x"], "1 systems to compare: wanted at least 2"),
        ({"a": ["x"], "b": []}, ["x"], "system 'b' has 0 lines, but there are 1 references"),
        ({"a": [], "b": []}, [], "no references"),
        ({"a": ["x"], "b": ["y"]}, [" "], "the references are empty"),
    ],
    ids=["alone", "lines", "none", "empty"],
)
def test_systems_that_cannot_be_compared_are_refused(systems, references, message):
    with pytest.raises(ValueError, match=message):
        compare_systems(systems, references)


def test_a_tie_is_not_a_difference():
    """Different lines with exactly the same score: sacrebleu alone would report the smallest p-value."""
    upper = {"ours": SYSTEMS["ours"], "theirs": [line.title() for line in SYSTEMS["ours"]]}
    tied = compare_systems(upper, REFERENCES, Metrics(lowercase=True), bootstrap_samples=50, randomization_trials=50)
    for metric in ("BLEU", "chrF++"):
        row = row_of(tied, "theirs", metric)
        assert (row.difference, row.bootstrap_p, row.randomization_p, row.significant()) == (0, 1, 1, False)


def test_a_wrong_seed_is_refused(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(ValueError, match="SACREBLEU_SEED is abc: it must be an int"):
        compare_systems(SYSTEMS, REFERENCES)
