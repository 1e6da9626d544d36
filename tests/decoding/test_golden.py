"""Hypotheses and scores of every strategy under every rule, as they were when `golden.json` was written.

`python -m tests.decoding.test_golden` writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.vocabulary import EOS, PLACEHOLDER, SEP
from tests.search import SIZE, A, B, C, FakeModel, batch, random_logits

GOLDEN = Path(__file__).with_name("golden.json")
P, Q = PLACEHOLDER, PLACEHOLDER + 3
SOURCES = [[P, A, Q, SEP, B, SEP, EOS], [A, B, EOS], [A, B, C, SEP, SEP, P, SEP, A, A, Q, C, B, SEP, EOS]]
FORCED = [{1: [C, B, SEP]}, {}, {0: [B], 3: [C, C, A, SEP]}]
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"strategy": "greedy"},
    "beam": {"strategy": "beam", "beam_size": 3, "n_best": 2, "length_penalty": 0.6},
    "sample": {"strategy": "sample", "n_best": 2, "top_p": 0.9, "temperature": 0.7},
}
RULES: dict[str, dict[str, Any]] = {
    "segments are matched": {},
    "segments are not matched": {"match_segments": False},
    "segments are not merged": {"merge_segments": False},
    "no loops of 2 tokens": {"loop_ngram_size": 2},
    "a least length": {"min_length_ratio": 0.75},
    "a short length": {"max_length_ratio": 0.3, "max_length_offset": 1},
    "all": {"loop_ngram_size": 2, "min_length_ratio": 0.5, "merge_segments": False},
}
CASES = [f"{strategy}, {rule}{given}" for strategy in STRATEGIES for rule in RULES for given in ("", ", forced")]
CASES = [case for case in CASES if "not matched, forced" not in case]


def found(case: str) -> list[list[Any]]:
    strategy, rule, *given = case.split(", ")
    config = DecodingConfig(**{"max_length_ratio": 1.0, "max_length_offset": 3, **STRATEGIES[strategy], **RULES[rule]})
    model = FakeModel(lambda source, written: random_logits(source, written, some=range(SIZE)))
    hypotheses = decode(model, *batch(*SOURCES), config, forced=FORCED if given else ())
    return [[list(h.tokens), h.log_probability, h.score, h.finished] for some in hypotheses for h in some]


@pytest.mark.parametrize("case", CASES)
def test_hypotheses_and_scores_stay(case: str) -> None:
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))[case]
    for (tokens, *scores, finished), (old_tokens, *old_scores, old_finished) in zip(found(case), expected, strict=True):
        assert (tokens, finished) == (old_tokens, old_finished)
        assert scores == pytest.approx(old_scores, rel=1e-6)


if __name__ == "__main__":
    lines = [f"{json.dumps(case)}: {json.dumps(found(case))}" for case in CASES]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
