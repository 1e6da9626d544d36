"""Combines measurements at many lengths into one result: JSON, the scored texts, significance tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.corpus import file_name
from scaleformer.evaluation.length.documents import LengthSet, TestText
from scaleformer.evaluation.length.extrapolation import Measurement
from scaleformer.evaluation.length.scores import original_documents, paired_t_test, sentence_bleu
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import ParallelLines, lines_of
from scaleformer.evaluation.significance import compare_systems
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import LEVELS, Level

Lines = Mapping[tuple[str, str, str], Mapping[Level, ParallelLines]]  # by `_key`, then by level


def assemble(
    measurements: Sequence[Measurement],
    sets: Sequence[LengthSet],
    text: TestText,
    metrics: Metrics,
    folder: Path,
    bootstrap_samples: int = 1000,
    randomization_trials: int = 10_000,
) -> dict[str, Any]:
    """lengths, results, length_tests, comparisons and alignment of docs/result-files.md; scored texts go to `folder`.

    Without bootstrap samples or randomization trials, systems are not compared. Raises OSError.
    """
    lines = {_key(m): {level: lines_of(m.translated, level) for level in LEVELS} for m in measurements if m.translated}
    results = []
    for m in measurements:
        result = m.to_dict()
        if _key(m) in lines:
            result["decode"] |= _write_texts(folder, m, lines[_key(m)])
        results.append(result)
    comparisons = []
    if bootstrap_samples and randomization_trials:
        comparisons = _comparisons(measurements, lines, metrics, (bootstrap_samples, randomization_trials))
    return {
        "lengths": [length.to_dict() for length in sets],
        "results": results,
        "length_tests": _length_tests(measurements, lines, text, metrics),
        "comparisons": comparisons,
        "alignment": RULE,
    }


def _key(m: Measurement) -> tuple[str, str, str]:
    return m.system, m.mode, m.length.spec.label


def _write_texts(folder: Path, m: Measurement, lines: Mapping[Level, ParallelLines]) -> dict[str, str]:
    """Write four files; returns their names, relative to the folder of the result."""
    label = m.length.spec.label
    own = f"{file_name(m.system)}.{m.mode}.{label}"
    names = {
        "hypotheses": (f"{own}.hypotheses.txt", lines["document"].hypotheses),
        "references": (f"{label}.references.txt", lines["document"].references),
        "segment_hypotheses": (f"{own}.segments.hypotheses.txt", lines["segment"].hypotheses),
        "segment_references": (f"{label}.segments.references.txt", lines["segment"].references),
    }
    for name, texts in names.values():
        with atomic_writer(folder / name) as file:
            file.writelines(line + "\n" for line in texts)
    return {key: f"{folder.name}/{name}" for key, (name, _) in names.items()}


def _length_tests(
    measurements: Sequence[Measurement], lines: Lines, text: TestText, metrics: Metrics
) -> list[dict[str, Any]]:
    """Sentence BLEU of the original documents at each length compared with the trained one, else the shortest."""
    tests = []
    for system, mode in dict.fromkeys((m.system, m.mode) for m in measurements):
        own = [m for m in measurements if (m.system, m.mode) == (system, mode) and _key(m) in lines]
        if len(own) < 2:
            continue
        base = next((m for m in own if m.length.spec.times == 1), own[0])
        scores = {}
        for m in own:
            segments = lines[_key(m)]["segment"]
            found = original_documents(text, m.length.documents, segments.hypotheses)
            wanted = original_documents(text, m.length.documents, segments.references)
            values = sentence_bleu(list(found.values()), list(wanted.values()), metrics)
            scores[m.length.spec.label] = dict(zip(found, values, strict=True))
        for m in own:
            if m is base:
                continue
            against, now = scores[base.length.spec.label], scores[m.length.spec.label]
            both = sorted(set(against) & set(now))
            if not both:
                continue
            pair = [now[i] for i in both], [against[i] for i in both]
            test = paired_t_test(*pair)
            tests.append(
                {
                    "system": system,
                    "mode": mode,
                    "length": m.length.spec.label,
                    "against": base.length.spec.label,
                    "documents": len(both),
                    "mean": sum(pair[0]) / len(both),
                    "mean_against": sum(pair[1]) / len(both),
                    "t": test[0] if test else None,
                    "p": test[1] if test else None,
                }
            )
    return tests


def _comparisons(
    measurements: Sequence[Measurement], lines: Lines, metrics: Metrics, trials: tuple[int, int]
) -> list[dict[str, Any]]:
    found = []
    systems = list(dict.fromkeys(m.system for m in measurements))
    if len(systems) < 2:
        return []
    for label, mode in dict.fromkeys((m.length.spec.label, m.mode) for m in measurements if _key(m) in lines):
        for unit in LEVELS:
            texts = {system: lines[system, mode, label][unit] for system in systems}
            wanted = texts[systems[0]].references
            if len(wanted) < 2:
                continue
            comparison = compare_systems(
                {system: own.hypotheses for system, own in texts.items()},
                wanted,
                metrics,
                bootstrap_samples=trials[0],
                randomization_trials=trials[1],
            )
            found.append({"mode": mode, "length": label, "unit": unit, **asdict(comparison)})
    return found
