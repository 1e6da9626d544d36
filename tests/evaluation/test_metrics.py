"""Which tokenizer scores use."""

from __future__ import annotations

import pytest

from scaleformer.evaluation.metrics import Metrics, choose_metrics


@pytest.mark.parametrize(
    ("code", "tokenize"),
    [
        ("zh", "zh"),
        ("zh_CN", "zh"),
        ("zho-Hans", "zh"),
        ("th", "char"),
        ("en", "13a"),
        ("target", "13a"),
        (None, "13a"),
    ],
)
def test_the_language_chooses_the_tokenizer(code, tokenize):
    assert Metrics().for_language(code) == Metrics(tokenize)
    assert Metrics("none").for_language(code) == Metrics("none"), "what is asked for stays"


def test_the_command_line_comes_before_the_run():
    group = {"tokenize": "char", "lowercase": True}
    run = {"metrics": {"tokenize": "none", "lowercase": False}}
    assert choose_metrics(run, group, []) == Metrics("none")
    assert choose_metrics(run, group, ["metrics.lowercase=true"]) == Metrics("none", lowercase=True)
    assert choose_metrics(run, group, ["metrics=x"]) == Metrics("char", lowercase=True)
    assert choose_metrics({}, group, [], "zh") == Metrics("zh")
    assert choose_metrics({"metrics": {"tokenize": "auto"}}, group, [], "zh") == Metrics("zh")


@pytest.mark.parametrize(
    ("tokenize", "wanted"),
    [
        ("ja-mecab", r"pip install 'sacrebleu\[ja\]'"),
        ("ko-mecab", r"pip install 'sacrebleu\[ko\]'"),
        ("flores200", "connection"),
    ],
)
def test_a_missing_requirement_of_a_tokenizer_is_reported(tokenize, wanted, monkeypatch):
    def missing(**settings):
        raise RuntimeError("\nlong\n\n   advice\n")

    monkeypatch.setattr("scaleformer.evaluation.metrics.BLEU", missing)
    with pytest.raises(ValueError, match=wanted) as error:
        Metrics(tokenize)
    assert str(error.value).startswith(f"metrics.tokenize is {tokenize}, which does not work here: ")
    assert "\n" not in str(error.value)


def test_an_unknown_tokenizer():
    with pytest.raises(ValueError, match=r"metrics\.tokenize is 'best': it must be one of auto, 13a, "):
        Metrics("best")
