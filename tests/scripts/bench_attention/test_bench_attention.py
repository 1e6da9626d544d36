"""The attention benchmark: what it measures, prints and writes, whatever the times."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.bench_attention import __main__ as program
from scripts.bench_attention import cost as attention
from scripts.bench_attention.cost import beside_softmax, saved_bytes
from scripts.bench_attention.options import KERNEL, SOFTMAX, Options, parse
from scripts.pages.benchmarks import write_page
from tests.commands.calls import refusal

TINY = "--heads 2 --width 4 --horizon 2 --repeats 1 --seconds 0 --threads 1"


def read(arguments: str) -> Options:
    return parse(shlex.split(arguments), "program")


def test_short_calls_alternate_with_softmax_only() -> None:
    calls: list[str] = []
    names = [SOFTMAX, KERNEL, "other"]
    functions = {name: (lambda name=name: calls.append(name)) for name in names}
    options = read("--repeats 1 --seconds 0 --pair-limit 64")
    assert list(beside_softmax(functions, 64, options)) == names
    assert calls == 2 * [SOFTMAX, KERNEL] + 2 * [SOFTMAX, "other"]
    calls.clear()
    assert list(beside_softmax(functions, 65, options)) == names
    assert calls == 2 * names
    assert beside_softmax({KERNEL: functions[KERNEL]}, 64, options)[KERNEL][1] is None


def run(folder: Path, arguments: str) -> dict[str, Any]:
    program.main([*shlex.split(f"{TINY} {arguments}"), "--output", str(folder)])
    (written,) = folder.glob("*.json")
    result: dict[str, Any] = json.loads(written.read_text())
    assert {"command", "versions", "device", "seed", "settings", "rows"} <= result.keys()
    assert written.with_suffix(".png").stat().st_size > 10_000
    write_page(folder, folder / "page.md")
    return result


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path, "--lengths 8 40 --segments 3 --paper-limit 8 --cross-limit 8")
    assert result["settings"]["lengths"] == [8, 40]
    systems = [row["system"] for row in result["rows"] if row["length"] == 40 and row["passes"] == "forward"]
    recall = "segment-recall, 3 tokens each"
    assert systems == 2 * [SOFTMAX, "scaleformer", "all scores", recall]
    cross = [row["system"] for row in result["rows"] if (row["case"], row["passes"]) == ("cross", "forward")]
    assert cross == [SOFTMAX, "scaleformer", "all scores", recall]
    assert len(result["rows"]) == 2 * (2 * (5 + 4) + 4)
    for row in result["rows"]:
        assert row["memory"] > 0
        assert row["system"] != SOFTMAX or row["ratio"] == 1
        assert (row["saved"] is None) == (row["passes"] == "forward")
    # q, k, v and the output are saved, each with 4 numbers per token and head
    assert all(row["saved"] >= 4 * 4 * 4 for row in result["rows"] if row["saved"])
    out = capsys.readouterr().out
    assert "bidirectional, forward+backward" in out
    page = (tmp_path / "page.md").read_text()
    assert "![Attention alone](page-attention.png)" in page
    assert "![Attention alone](page-attention-memory.png)" in page


def test_long_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SLOPE_FROM", 16)
    result = run(tmp_path, "--part long --lengths 16 32 64 --segments 4 --softmax-limit 16")
    systems = {row["system"] for row in result["rows"] if row["length"] == 64}
    assert systems == {"scaleformer", "segment-recall, 4 tokens each"}
    assert set(result["slopes"]) == {
        f"{case}, {passes}, {system}"
        for case in ("causal", "bidirectional")
        for passes in attention.PASSES
        for system in systems
    }
    assert "KiB kept for backward" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("chosen", "measured"),
    [
        ("scaleformer", set()),
        ("segment-recall", {"segment-recall, 3 tokens each"}),
    ],
)
def test_chosen_mechanisms_only(tmp_path: Path, chosen: str, measured: set[str]) -> None:
    result = run(tmp_path, f"--part long --lengths 16 --segments 3 --no-memory --mechanisms {chosen}")
    assert {row["system"] for row in result["rows"]} == {SOFTMAX, "scaleformer"} | measured


def test_slopes() -> None:
    rows = [
        attention.AttentionCost("causal", "forward", n, "ours", n * 1e-3, None, n * n, None) for n in (4096, 8192, 2048)
    ]
    short = attention.AttentionCost("causal", "forward", 64, "ours", 100.0, None, 1, None)
    assert attention.slopes([short, *rows]) == {"causal, forward, ours": pytest.approx(1.0)}
    assert attention.slopes(rows, "memory") == {"causal, forward, ours": pytest.approx(2.0)}
    assert attention.slopes(rows[:2]) == {}


def test_only_terms_are_measured(tmp_path: Path) -> None:
    result = run(tmp_path, "--part terms --lengths 8 12 --no-memory")
    systems = ["scaleformer", "all scores", "the paper's algorithms"]
    assert [row["system"] for row in result["rows"] if row["length"] == 12] == 3 * 2 * systems
    assert all(row["ratio"] is None and row["memory"] is None for row in result["rows"])


@pytest.mark.parametrize("case", ["relative term", "kernel term", "kernel term, causal"])
def test_terms_agree_except_for_the_denominator(case: str) -> None:
    options = read("--heads 2 --width 4 --horizon 2 --segments")
    systems, (_, _, v, *_) = attention.make_systems(options, 9, case)
    ours, of_all, paper = (system() for system in systems.values())
    torch.testing.assert_close(paper, of_all)
    with torch.no_grad():
        v.copy_(torch.ones_like(v))  # then each sum is its own denominator
    torch.testing.assert_close(ours, of_all / systems["all scores"]())


def test_what_is_measured_stays_where_the_benchmark_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def stopped(options: Options, length: int, case: str) -> list[attention.AttentionCost]:
        calls.append(length)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return attention.measure_costs(options, length, case)

    monkeypatch.setattr(program, "measure_costs", stopped)
    with pytest.raises(KeyboardInterrupt):
        program.main([*shlex.split(f"{TINY} --cases causal --lengths 8 16"), "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "attention.json").read_text())["rows"]
    assert {row["length"] for row in rows} == {8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--colour red", "unrecognized arguments: --colour red (python -m scripts.bench_attention --help lists all"),
        ("part=long", "unrecognized arguments: part=long"),
        ("--lengths", "lengths is []: it must be a nonempty list of int of at least 1"),
        ("--part whole", "part is 'whole': it must be one of compare, terms, long"),
        (
            "--cases sideways",
            "cases is ['sideways']: it must be a nonempty list of one of causal, bidirectional",
        ),
        (
            "--mechanisms softmax",
            "mechanisms is ['softmax']: it must be a nonempty list of one of scaleformer",
        ),
        ("--cases", "cases is []: it must be a nonempty list of one of causal"),
        ("--repeats many", "argument --repeats: invalid int value: 'many'"),
        ("--threads 0", "threads is 0: it must be an int of at least 1 or null"),
        ("--segments 25 0", "segments is [25, 0]: it must be a list of int of at least 1"),
        ("--dtype wide", "dtype is 'wide': it must be the name of a torch type"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, lambda: program.main(shlex.split(arguments))).startswith(f"error: {message}")
    assert list(tmp_path.iterdir()) == []


def test_saved_bytes_counts_each_storage_once() -> None:
    x = torch.zeros(100, requires_grad=True)
    y = torch.zeros(100)
    assert saved_bytes(lambda: x * y) == 400  # y alone: it has no gradient itself
    assert saved_bytes(lambda: (x * x).exp()) == 800  # x, and the exponential
    assert saved_bytes(lambda: y * y) == 0
