"""From the files of one or more runs to figures and one page; computes nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scaleformer.evaluation.attention_maps import read_maps
from scaleformer.evaluation.corpus import file_name
from scaleformer.report.attention import plot_attention
from scaleformer.report.context import plot_context
from scaleformer.report.curves import compare_learning_curves, plot_learning_curves
from scaleformer.report.extrapolation import MODES, plot_extrapolation
from scaleformer.report.positions import plot_positions
from scaleformer.report.results import (
    Record,
    RunFiles,
    by_name,
    details,
    facts,
    read_runs,
    several_checkpoints,
    told_apart,
)
from scaleformer.report.samples import side_by_side
from scaleformer.system import html

Row = Sequence[str | float | int | None]


@dataclass
class Report:
    """Collects figures, title -> file, and tables, (title, columns, rows)."""

    page: Path
    figures: dict[str, Path] = field(default_factory=dict)
    tables: list[tuple[str, Sequence[str], list[Row]]] = field(default_factory=list)

    def draw(self, figures: Mapping[str, Path | None]) -> str:
        """Collect figures, and return them as HTML."""
        found = {title: path for title, path in figures.items() if path is not None}
        self.figures |= found
        return "".join(html.figure(path, title) for title, path in found.items())

    def table(self, title: str, columns: Sequence[str], rows: list[Row]) -> str:
        """Collect a table, and return it as HTML; empty without rows."""
        if not rows:
            return ""
        self.tables.append((title, columns, rows))
        return f'<h3 dir="auto">{html.escape(title)}</h3>{html.table(columns, rows)}'


def write_report(runs: Sequence[str | Path], folder: str | Path, samples: int = 5, segments: int = 8) -> Report:
    """Draw every figure that the files of the runs allow into `folder`, and report.html with all of them inside.

    samples   documents shown side by side; segments: most of each
    Raises ValueError for a directory that is not a run or is given twice, and for files of the wrong kind; OSError
    where writing fails.
    """
    folder = Path(folder)
    files = read_runs(runs)
    report = Report(folder / "report.html")
    try:
        sections = [
            ("Scores", _scores(report, files)),
            ("Learning curves", _learning(report, files, folder)),
            ("Position", _positions(report, files, folder)),
            ("Length", _length(report, files, folder)),
            ("Context", _context(report, files, folder)),
            ("Attention", _attention(report, files, folder)),
            ("Samples", _samples(files, samples, segments)),
            ("Conditions", _conditions(files)),
        ]
    except (KeyError, TypeError, IndexError) as error:
        where = ", ".join(str(run.path / "results") for run in files)
        raise ValueError(f"{where}: a result file of an unknown format ({type(error).__name__}: {error})") from error
    title = ", ".join(run.name for run in files)
    folder.mkdir(parents=True, exist_ok=True)
    report.page.write_text(html.page(title, sections), encoding="utf-8")
    return report


def _scores(report: Report, runs: Sequence[RunFiles]) -> str:
    parts = []
    signatures: dict[str, dict[str, list[tuple[str, str]]]] = {}  # metric -> signature -> (run, split)
    for name, results in by_name(runs, "bleu-").items():
        rows: list[Row] = []
        notes = []
        for run, result in results.items():
            notes.append(html.note(facts(run, result)))
            for score in result["scores"]:
                rows.append((run, score["metric"], score["score"], result["documents"], *details(score)))
                of_metric = signatures.setdefault(score["metric"], {})
                of_metric.setdefault(score["signature"], []).append((run, name.removeprefix("bleu-")))
        columns = ("run", "metric", "score", "documents", "precisions", "brevity penalty", "length ratio")
        parts += [report.table(f"{name.removeprefix('bleu-')} split", columns, rows), *notes]
    for one in runs:
        for name, result in one.of("compare-").items():
            rows = [
                (*(r[key] for key in _COMPARED), _p(r["bootstrap_p"]), _p(r["randomization_p"])) for r in result["rows"]
            ]
            columns = ("system", "metric", "score", "± (95%)", "difference", "p (bootstrap)", "p (randomization)")
            title = f"{name.removeprefix('compare-')} split: against {result['baseline']}, {result['lines']:,} lines"
            parts.append(report.table(title, columns, rows))
        parts.append(_other_scores(report, one))
    for metric, found in signatures.items():
        parts += [html.note(f"{metric}{which}: {signature}") for signature, which in told_apart(found).items()]
    parts += [html.note(f"{one.name} {text}") for one in runs if (text := several_checkpoints(one))]
    return "".join(parts)


_COUNTED, _SHARED = ("kind", "words", "mentions"), ("as_reference", "consistent")


def _other_scores(report: Report, run: RunFiles) -> str:
    """COMET and consistency, if computed."""
    comet: list[Row] = [
        (name.removeprefix("comet-"), r["signatures"]["COMET"], len(r["segments"]), f"{r['score']:.4f}")
        for name, r in run.of("comet-").items()
    ]
    consistency: list[Row] = [
        (name.removeprefix("consistency-"), *(s[k] for k in _COUNTED), *(100 * s[k] for k in _SHARED))
        for name, r in run.of("consistency-").items()
        for s in r["scores"]
    ]
    columns = ("split", "kind", "repeated words", "mentions", "as reference, %", "consistent, %")
    return report.table(f"COMET of {run.name}", ("split", "model", "segments", "score"), comet) + report.table(
        f"Names and terms of {run.name}", columns, consistency
    )


_COMPARED = ("system", "metric", "score", "interval", "difference")


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _learning(report: Report, runs: Sequence[RunFiles], folder: Path) -> str:
    if len(runs) == 1:
        figure = plot_learning_curves(runs[0].path, folder / "learning_curves.png")
        return report.draw({f"Learning curves of {runs[0].name}": figure})
    together = compare_learning_curves({run.name: run.path for run in runs}, folder / "learning_curves.png")
    each = {
        f"Learning curves of {run.name}": plot_learning_curves(run.path, folder / f"learning_curves-{_plain(run)}.png")
        for run in runs
    }
    return report.draw({"Learning curves of all runs": together}) + html.folded("each run alone", report.draw(each))


def _plain(run: RunFiles) -> str:
    """The name of a run as part of a file name."""
    return file_name(run.name.replace("/", "-"))


def _positions(report: Report, runs: Sequence[RunFiles], folder: Path) -> str:
    parts = []
    for name, results in by_name(runs, "bleu-").items():
        split = name.removeprefix("bleu-")
        figure = plot_positions(results, folder / f"positions-{split}.png")
        parts.append(report.draw({f"Quality by position in the document and by its length ({split})": figure}))
    return "".join(parts)


def _length(report: Report, runs: Sequence[RunFiles], folder: Path) -> str:
    parts = []
    for run in runs:
        for name, result in run.of("extrapolation").items():
            prefix = name if len(runs) == 1 else f"{name}-{_plain(run)}"
            figures = plot_extrapolation(result, folder, prefix)
            parts.append(report.draw({f"{title} ({run.name})": path for title, path in figures.items()}))
            rows: list[Row] = [
                (r["system"], MODES[r["mode"]], r["length"], *_of_length(r)) for r in result["results"]
            ]  # fmt: skip
            columns = ("system", "read", "length", "d-BLEU", "chrF++", "nats per token", "repeated 4-grams, %", "cut")
            table = report.table(f"By length ({run.name})", columns, rows)
            parts.append(html.folded("table", table))
    return "".join(parts)


def _of_length(row: Record) -> tuple[float | int | None, ...]:
    decode, loss = row["decode"], row["loss"]
    scores = {s["metric"]: s["score"] for s in decode["scores"]} if decode else {}
    return (
        scores.get("d-BLEU"),
        scores.get("chrF++"),
        loss["nats_per_token"] if loss else None,
        100 * decode["repeated_4grams"] if decode else None,
        len(decode["unfinished"]) if decode else None,
    )


def _context(report: Report, runs: Sequence[RunFiles], folder: Path) -> str:
    parts = []
    for name, results in by_name(runs, "context-").items():
        figure = plot_context(results, folder / f"{name}.png")
        parts.append(report.draw({f"What only earlier segments decide ({name})": figure}))
        rows: list[Row] = [
            (run, s["kind"], s["distance"], s["count"], *(None if s[k] is None else 100 * s[k] for k in _SHARES))
            for run, result in results.items()
            for s in result["scores"]
        ]
        columns = ("run", "kind", "distance", "count", *(f"{name}, %" for name in _SHARES))
        parts.append(html.folded("table", report.table(f"Right answers by distance ({name})", columns, rows)))
    return "".join(parts)


_SHARES = ("chance", "contrastive", "generative", "wrong", "unclear")


def _attention(report: Report, runs: Sequence[RunFiles], folder: Path) -> str:
    parts = []
    for run in runs:
        for name, result in run.of("attention-").items():
            maps = read_maps(run.files[name].with_name(f"{run.files[name].name}.json"))
            prefix = name if len(runs) == 1 else f"{name}-{_plain(run)}"
            figures = plot_attention(maps, folder, prefix)
            if not figures:
                continue
            (first, path), *others = figures.items()
            where = f" ({run.name}, {name.removeprefix('attention-')}: {result.get('document', '')})"
            parts.append(report.draw({first + where: path}))
            rest = report.draw({title + where: path for title, path in others})
            parts.append(html.folded("every layer and head", rest))
    return "".join(parts)


def _samples(runs: Sequence[RunFiles], count: int, segments: int) -> str:
    parts = []
    for name in by_name(runs, "bleu-"):
        files = {run.name: run.files[name] for run in runs if name in run.files}
        texts = {run: file.with_name(f"{file.name}.jsonl") for run, file in files.items()}
        parts.append(side_by_side(texts, count, segments))
    legend = "Underlined on grey: differs from the reference. ‸: words of the reference are missing."
    return html.note(legend) + "".join(parts) if any(parts) else ""


def _conditions(runs: Sequence[RunFiles]) -> str:
    parts = []
    for run in runs:
        for name, result in run.results.items():
            kept = ("command", "time", "versions", "device", "seed", "checkpoint", "decoding", "corpus")
            text = json.dumps({key: result[key] for key in kept if key in result}, indent=1, ensure_ascii=False)
            parts.append(html.folded(f"{run.name}: {name}", f'<pre dir="auto">{html.escape(text)}</pre>'))
    return "".join(parts)
