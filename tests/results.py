"""Result files as the commands leave them, small and made up: what figures and pages are drawn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIZES = {"64-tokens": (64, 1.0), "128-tokens": (128, 2.0), "whole": (300, None)}


def extrapolation(systems: tuple[str, ...] = ("ours", "softmax")) -> dict[str, Any]:
    """extrapolation.json as docs/result-files.md has it: three lengths, two modes."""
    lengths = [
        {"label": label, "unit": "tokens", "size": size, "times": times, "documents": 4, "segments": 9}
        | {"source_tokens": {"mean": size * 0.9, "max": size}, "target_tokens": {"mean": size * 0.9, "max": size}}
        for label, (size, times) in SIZES.items()
    ]
    return {
        "lengths": lengths,
        "settings": {"metrics": {"tokenize": "13a", "lowercase": False}},
        "systems": [{"name": name, "trained": {"unit": "tokens", "size": 64}} for name in systems],
        "results": [
            _of_length(system, mode, label, quality)
            for i, system in enumerate(systems)
            for mode in ("pass", "segments")
            for label, quality in zip(SIZES, (30.0, 30.0 - 8 * i, 29.0 - 20 * i), strict=True)
        ],
    }


def _of_length(system: str, mode: str, label: str, bleu: float) -> dict[str, Any]:
    cost = {"seconds": 2.0 + bleu / 10, "peak_memory_bytes": 3 << 28, "memory_growth_bytes": 1 << 24}
    details = {"precisions": [60.0, 30.0, 20.0, 10.0], "brevity_penalty": 1.0, "length_ratio": 1.01}
    tenths = [
        {"from": i / 10, "to": (i + 1) / 10, "segments": 3, "s_bleu": bleu, "chrf": bleu + 20 - i if i < 9 else None}
        for i in range(10)
    ]
    decode = {
        "scores": [
            {"metric": "d-BLEU", "score": bleu, "signature": "s", "details": details},
            {"metric": "chrF++", "score": bleu + 20, "signature": "c", "details": {}},
        ],
        "reference_segments": 9,
        "missing_segments": 1,
        "extra_segments": 0,
        "empty_segments": 0,
        "unfinished": ["a"] if bleu < 20 else [],
        "repeated_4grams": 0.02,
        "reference_repeated_4grams": 0.01,
        "by_decile": tenths,
        "cost": cost,
    }
    loss = {
        "nats_per_token": 3 - bleu / 20,
        "by_position": [{"from": 2**i, "to": 2 ** (i + 1), "tokens": 5, "nats_per_token": 2.0} for i in range(6)],
        "cost": cost,
    }
    if mode == "segments":
        return {"system": system, "mode": mode, "length": label, "loss": None, "decode": decode}
    return {"system": system, "mode": mode, "length": label, "loss": loss, "decode": decode}


def context(share: float = 0.8) -> dict[str, Any]:
    """context-test.json: two kinds at three distances."""
    scores = []
    for kind in ("all", "pronoun", "term"):
        for distance in ("all", "1", "2", "9-16"):
            row: dict[str, Any] = {"kind": kind, "distance": distance, "count": 40, "chance": 0.4}
            row |= {"contrastive": share, "generative": share - 0.1, "wrong": 0.1, "unclear": 0.2}
            row |= {"contrastive_interval": [share - 0.1, share + 0.1], "generative_interval": [0.5, 0.9]}
            scores.append(row)
    return {"kind": "context", "context": None, "scores": scores}


def bleu(score: float = 30.0, signature: str = "nrefs:1") -> dict[str, Any]:
    """bleu-test.json."""
    details = {"precisions": [60.0, 30.0, 20.0, 10.0], "brevity_penalty": 0.98, "length_ratio": 0.981}
    scores = [
        {"metric": "d-BLEU", "score": score, "signature": signature, "details": details},
        {"metric": "chrF++", "score": score + 20, "signature": "c", "details": {}},
    ]
    facts = {"documents": 2, "count_mismatches": 1, "unfinished": ["one"], "command": "python evaluate", "seed": 1}
    return {**facts, "scores": scores}


TRANSLATIONS = [
    {"id": "one", "source": ["a <b>", "c"], "target": ["der rote hund", "ja"], "hypothesis": ["der hund nein", "ja"]},
    {"id": "two", "source": ["d"], "target": ["das haus"], "hypothesis": ["das haus"]},
]


def make_results(run: Path, name: str, record: dict[str, Any]) -> Path:
    """A run directory with metrics.csv and one more result file."""
    (run / "results").mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{step},{5 - step / 100},{step / 2 if step % 50 == 0 else ''}\n" for step in range(10, 201, 10))
    (run / "metrics.csv").write_text("step,train/loss,val/bleu\n" + rows, encoding="utf-8")
    (run / "results" / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    if name.startswith("bleu-"):
        lines = "".join(json.dumps(record) + "\n" for record in TRANSLATIONS)
        (run / "results" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return run
