"""The comparison of the attentions: what is done again, what is refused, and what the report says."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.plots_backends import cost_table, quality_table
from scripts import compare_backends


def points(first: float) -> list[dict]:
    return [{"times": times, "loss": first + times, "bleu": 10.0 * times} for times in (1, 2, 4, 8)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The stages, without their work."""
    made: list[tuple[str, str]] = []

    def stage(name: str, result: dict) -> None:
        def work(backend: str, folder: Path, options: compare_backends.Options) -> dict:
            made.append((name, backend))
            return result if backend != "alibi" else {"error": "does not work"}

        monkeypatch.setattr(compare_backends, name, work)

    stage("train", {"loss": 1.25})
    stage("evaluate", {"parameters": 1000, "points": points(0.5)})
    stage("measure", {"points": [{"length": 512, "tokens_per_second": 100.0, "memory": 2**20}]})
    return made


def test_what_is_there_is_not_done_again(tmp_path: Path, calls: list, capsys: pytest.CaptureFixture[str]) -> None:
    places = [f"output={tmp_path / 'out'}", f"report={tmp_path / 'docs' / 'page.md'}"]
    compare_backends.main(["backends=[softmax,alibi]", "steps=3", *places])
    assert calls == [("train", "softmax"), ("evaluate", "softmax"), ("measure", "softmax"), ("train", "alibi")]
    calls.clear()
    compare_backends.main(["backends=[softmax,shaw horizon=4]", "steps=3", *places])
    assert [backend for _, backend in calls] == ["shaw horizon=4"] * 3
    page = (tmp_path / "docs" / "page.md").read_text()
    assert "| `softmax` | 1,000 | 1.250 | 1.50 | 2.50 | 4.50 | 8.50 | 10.0 | 20.0 | 40.0 | 80.0 |" in page
    assert "steps=3" in page
    assert (tmp_path / "docs" / "page.png").stat().st_size > 1000
    with pytest.raises(SystemExit):
        compare_backends.main(["backends=[softmax]", "steps=4", *places])
    assert "a comparison with other settings" in capsys.readouterr().err


def test_the_tables_show_errors_ratios_and_slopes() -> None:
    def speed(*rates: float) -> dict:
        pairs = zip((512, 2048), rates, strict=True)
        return {"points": [{"length": n, "tokens_per_second": r, "memory": 2**20 * r} for n, r in pairs]}

    results = {
        "softmax": {"train": {"loss": 1.0}, "speed": speed(400, 100)},
        "linear": {"train": {"loss": 2.0}, "lengths": {"error": "too long"}, "speed": speed(200, 200)},
        "broken": {"train": {"error": "nothing"}, "speed": {"points": [{"length": 512, "error": "out of memory"}]}},
    }
    cost = cost_table(results, [512, 2048]).splitlines()
    assert cost[2] == "| `softmax` | 400 (1.00) | 100 (1.00) | 400 (1.00) | 100 (1.00) | 2.00 |"
    assert cost[3] == "| `linear` | 200 (0.50) | 200 (2.00) | 200 (0.50) | 200 (2.00) | 1.00 |"
    assert cost[4] == "| `broken` | out of memory |  | out of memory |  |  |"
    quality = quality_table(results).splitlines()
    assert quality[3].startswith("| `linear` |  | 2.000 | too long |")
    assert quality[4].startswith("| `broken` |  | nothing |")


@pytest.mark.parametrize(("given", "message"), [("[nonesuch]", "nonesuch: choose of"), ("[]", "none: choose of")])
def test_an_unknown_choice_is_named(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_backends.read_options([f"backends={given}"])


def test_options_of_a_choice_reach_the_training() -> None:
    wanted = ["model/attention=scaleformer", "model.attention.relative=raw", "model.attention.horizon=8"]
    assert compare_backends.overrides_of("scaleformer relative=raw horizon=8") == wanted
