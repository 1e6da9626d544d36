"""The report's numbers, by hand."""

from __future__ import annotations

import json

import numpy as np
from rich.console import Console

from scaleformer.data.cutting import Cutting
from scaleformer.data.report import DataReport, report_split
from scaleformer.data.sampler import Recipe
from scaleformer.vocabulary import UNK
from tests.data.toy import encoded

# Four documents: cut in two; whole; one over-long segment; one empty source segment.
CORPUS = encoded([[(4, 4), (5, 4), (3, 3)], [(2, 2)], [(30, 20)], [(1, 2)]])


def test_counts() -> None:
    report = report_split(CORPUS, Recipe(Cutting(10), 40, 0), shuffle=False)
    assert (report.documents, report.segments) == (4, 6)
    assert (report.source_tokens, report.target_tokens) == (45, 35)
    # Examples: (10, 9) (4, 4) (3, 3) (31, 21) (2, 3), in tokens with `</s>`.
    assert (report.examples, report.cut_documents, report.empty_segments) == (5, 1, 1)
    assert (report.overlong_segments, report.longest_segment, report.over_budget_examples) == (1, 31, 1)
    assert report.dropped == {}
    # Batches by length: (2,3) (3,3) (4,4) of 3 x 8 positions, (10,9), (31,21); tokens 5 + 6 + 8 + 19 + 52.
    assert report.batches == 3
    assert np.isclose(report.padding, 1 - 90 / (24 + 19 + 52))


def test_dropped_segments() -> None:
    report = report_split(CORPUS, Recipe(Cutting(10, max_ratio=1.6), 40, 0))
    assert report.dropped == {"length ratio": 1}
    assert report.segments == 6


def test_joined_documents_count_as_cut_only_when_they_are() -> None:
    corpus = encoded([[(2, 2)]] * 10)
    assert report_split(corpus, Recipe(Cutting(50, join_segments=(2, 4)), 100, 0)).cut_documents == 0


def test_waiting_processes() -> None:
    # Batches of (2,3), (3,3) and (4,4); (10,9); (31,21): 24, 19 and 52 positions. Two processes take the first two in
    # one step. The third one cannot be halved, so the other process waits for all of it.
    report = report_split(CORPUS, Recipe(Cutting(10), 40, 0, world=2), shuffle=False)
    assert report.batches == 4
    assert np.isclose(report.idle, 1 - (24 + 19 + 52) / (2 * 24 + 2 * 52))
    assert report_split(CORPUS, Recipe(Cutting(10), 40, 0), shuffle=False).idle == 0


def test_lost_documents_and_characters() -> None:
    corpus = encoded([[(1, 9)], [(2, 2), (3, 3)]])
    corpus.source[1] = UNK
    report = report_split(corpus, Recipe(Cutting(10, max_ratio=2.0), 40, 0))
    assert (report.dropped, report.dropped_documents, report.unknown_tokens) == ({"length ratio": 1}, 1, 1)


def test_table_and_json() -> None:
    report = DataReport(10, 40)
    report.splits["train"] = report_split(CORPUS, Recipe(Cutting(10, max_ratio=1.6), 40, 0))
    report.splits["valid"] = report_split(CORPUS, Recipe(Cutting(10), 40, 0), shuffle=False)
    assert json.loads(json.dumps(report.to_dict()))["splits"]["train"]["dropped"] == {"length ratio": 1}
    console = Console(width=80)
    with console.capture() as captured:
        console.print(report.table())
    text = captured.get()
    for words in ("overlong segments", "dropped segments: length ratio", "padding", "train", "valid"):
        assert words in text
