"""The comparison of attentions: what is repeated, what is refused, and the text of the report."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from scaleformer.system.errors import one_line_errors
from scripts.mechanisms import stages
from scripts.mechanisms.__main__ import main, parse
from scripts.mechanisms.report import cost_table, quality_table, slope_table
from scripts.quality.programs import Failed
from tests.commands.calls import refusal
from tests.runs import make_run


def narrow(text: str) -> str:
    """Tables without the spaces that align their columns."""
    return re.sub(" +", " ", text)


def points(first: float) -> list[dict]:
    return [{"times": times, "loss": first + times, "bleu": 10.0 * times} for times in (1, 2, 4, 8)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The stages, without their work."""
    made: list[tuple[str, str]] = []

    def stage(name: str, result: dict) -> None:
        def work(mechanism: str, folder: Path, options: stages.Options) -> dict:
            made.append((name, mechanism))
            if (name, mechanism) == ("train", "alibi"):
                raise Failed("does not work")
            return result

        monkeypatch.setattr(stages, name, work)

    learnt = {"steps": 1200, "seconds": 3.0, "accuracy": 0.991, "decoded": 1.0}
    stage("tasks", {"copy": learnt, "translation": {**learnt, "accuracy": 0.5, "decoded": 0.25}})
    stage("train", {"loss": 1.25})
    stage("measure_lengths", {"parameters": 1000, "points": points(0.5)})
    stage("speed", {"points": [{"length": 512, "tokens_per_second": 100.0, "memory": 2**20}]})
    stage("slopes", {"points": [{"site": "encoder", "length": n, "seconds": n / 1000} for n in (2048, 8192)]})
    return made


def test_finished_stages_are_not_repeated(tmp_path: Path, calls: list, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    places = ["--output", str(tmp_path / "out"), "--report", str(tmp_path / "docs" / "page.md")]
    main(["--mechanisms", "softmax", "alibi", "--steps", "3", *places])
    names = ["tasks", "train", "measure_lengths", "speed", "slopes"]
    # a failed training is not evaluated, but its attention can be timed
    assert calls == [(s, b) for b in ("softmax", "alibi") for s in names if (s, b) != ("measure_lengths", "alibi")]
    assert "train: 0 s does not work" in capsys.readouterr().out
    calls.clear()
    main(["--mechanisms", "softmax", "shaw horizon=4", "--steps", "3", *places])
    assert [mechanism for _, mechanism in calls] == ["shaw horizon=4"] * 5
    page = narrow((tmp_path / "docs" / "page.md").read_text())
    assert "| `softmax` | 1,000 | 1.250 | 1.50 | 2.50 | 4.50 | 8.50 | 10.0 | 20.0 | 40.0 | 80.0 |" in page
    assert "| `softmax` | 1,200 | 100.0% | 1,200 (50%) | 25.0% |" in page
    assert "Made by `python -m scripts.mechanisms --mechanisms softmax 'shaw horizon=4' --steps 3`." in page
    assert (tmp_path / "docs" / "page.png").stat().st_size > 1000
    with pytest.raises(SystemExit), one_line_errors():
        main(["--mechanisms", "softmax", "--steps", "4", *places])
    assert "a comparison with other settings" in capsys.readouterr().err


def test_stages_can_run_in_several_calls(
    tmp_path: Path, calls: list, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.mechanisms.report.draw", lambda results, path: None)
    given = ["--mechanisms", "softmax", "shaw", "--output", str(tmp_path)]
    main([*given, "--stages", "lengths"])
    assert calls == []
    assert "not trained yet" in capsys.readouterr().out
    main([*given, "--stages", "train", "lengths"])
    names = ("train", "measure_lengths")
    assert calls == [(name, mechanism) for mechanism in ("softmax", "shaw") for name in names]
    assert "| `softmax` | 100 |" not in narrow((tmp_path / "report.md").read_text())
    calls.clear()
    main([*given, "--stages", "speed"])
    assert calls == [("speed", "softmax"), ("speed", "shaw")]
    page = narrow((tmp_path / "report.md").read_text())
    assert "| `softmax` | 1,000 | 1.250 |" in page
    assert "| `softmax` | 100 (1.00) |" in page


def test_the_tables_show_errors_ratios_and_slopes() -> None:
    def speed(*rates: float) -> dict:
        pairs = zip((512, 2048), rates, strict=True)
        return {"points": [{"length": n, "tokens_per_second": r, "memory": 2**20 * r} for n, r in pairs]}

    def alone(site: str, *seconds: float) -> list[dict]:
        pairs = zip((2048, 8192, 32768), seconds, strict=False)
        return [{"site": site, "length": n, "seconds": s} for n, s in pairs]

    results: dict[str, dict[str, Any]] = {
        "softmax": {"train": {"loss": 1.0}, "speed": speed(400, 100), "slopes": {"points": alone("cross", 0.1, 1.6)}},
        "linear": {
            "train": {"loss": 2.0},
            "lengths": {"error": "too long"},
            "speed": speed(200, 200),
            "slopes": {"points": [*alone("encoder", 0.1, 0.45, 1.6), *alone("decoder", 0.002)]},
        },
        "broken": {"train": {"error": "nothing"}, "speed": {"points": [{"length": 512, "error": "out of memory"}]}},
    }
    cost = narrow(cost_table(results, [512, 2048])).splitlines()
    assert cost[2] == "| `softmax` | 400 (1.00) | 100 (1.00) | 400 (1.00) | 100 (1.00) |"
    assert cost[3] == "| `linear` | 200 (0.50) | 200 (2.00) | 200 (0.50) | 200 (2.00) |"
    assert cost[4] == "| `broken` | out of memory | | out of memory | |"
    assert narrow(slope_table(results, [2048, 8192, 32768])).splitlines()[2:] == [
        "| `softmax` | cross | 100 | 1,600 | | 2.00 |",
        "| `linear` | encoder | 100 | 450 | 1,600 | 1.00 |",
        "| `linear` | decoder | 2 | | | |",
    ]
    quality = narrow(quality_table(results)).splitlines()
    assert quality[3].startswith("| `linear` | | 2.000 | too long |")
    assert quality[4].startswith("| `broken` | | nothing |")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--mechanisms nonesuch", "mechanisms is 'nonesuch': it must be one of adaptive_span, "),
        ("--mechanisms softmax ''", "mechanisms is '': it must be one of"),
        ("--mechanisms", "argument --mechanisms: expected at least one argument"),
        ("--stages train sleep", "stages is ['train', 'sleep']: it must be a list of one of tasks, train, lengths"),
        ("--threads 0", "threads is 0: it must be an int of at least 1"),
        ("--steps many", "argument --steps: invalid int value: 'many'"),
        ("steps=3", "unrecognized arguments: steps=3"),
        ("--report none/page.md", "--report=none/page.md: there is no folder none"),
    ],
)
def test_wrong_settings_are_refused_in_one_line_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, lambda: main(shlex.split(given))).startswith(f"error: {message}")
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_fails_leaves_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"no such command.*\(exit code 1, see .*nonesuch\.log\)"):
        stages.run(tmp_path, parse([]), "nonesuch")


def test_options_of_a_choice_reach_the_training() -> None:
    wanted = ["model/attention=scaleformer", "model.attention.relative=raw", "model.attention.horizon=8"]
    assert stages.overrides_of("scaleformer relative=raw horizon=8") == wanted


def test_lengths_are_read_from_what_extrapolation_writes(tmp_path: Path) -> None:
    make_run(tmp_path / "run", {"data": {"format": "synthetic", "synthetic": {"segments": [1, 1]}}})
    options = parse(["--segments", "1", "--documents", "1", "--threads", "1"])
    found = stages.measure_lengths("softmax", tmp_path, options)
    assert [point["times"] for point in found["points"]] == [1, 2, 4, 8]
    assert all(point["loss"] > 0 for point in found["points"])
