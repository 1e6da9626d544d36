"""`python -m scripts.pages.results [--check]` fills the tables of README and docs/results from docs/results/saved.

    python -m scripts.pages.results add SAVED "name of the row" RUN/results/bleu-test.json

takes the scores of a result file, without folders and translations, into docs/results/saved/SAVED.json. A page has a
table between `<!-- KIND SAVED -->` and `<!-- end -->`; the kinds are those of `TABLES`. With --check nothing is
written, and the program ends with 1 where a page has other tables.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.report.positions import plot_positions
from scripts.bench_training.tables import markdown
from scripts.quality.rows import unseen

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "results"
COMMAND = "python -m scripts.pages.results"
#: What is kept of a result file: what it says, and the conditions that it was made under.
KEPT = (
    *("kind", "time", "versions", "device", "seed", "signatures", "decoding", "mode", "context", "max_tokens", "split"),
    *("precision", "translation_seconds", "documents", "reference_segments", "hypothesis_segments", "mismatch_rate"),
    *(
        "unfinished",
        "cut_segments",
        "scores",
        "positions",
        "leaks",
        "program",
        "level",
        "minutes",
        "recipe",
        "updates",
        "parameters",
        "version",
    ),
    *("search", "difference", "pieces_of_other_segments"),
)
#: What the figure of README shows: rows of these saved scores, and after how much training they were made.
DRAWN = {"documents": "2,000 updates, rate 0.002", "equal_time": "40 minutes, rate 0.01"}
LEVELS = "sentences, `segment_recall`", "documents, whole in one pass"
BLOCK = re.compile(r"(<!-- (\w+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Rows = Mapping[str, Mapping[str, Any]]


def add(saved: Path, name: str, result: Path) -> None:
    """Keep the scores of a result file as a row, in the place of one of the same name."""
    rows = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else {}
    found = json.loads(result.read_text(encoding="utf-8"))
    rows[name] = {key: found[key] for key in KEPT if key in found}
    (rows[name].get("leaks") or {}).pop("training", None)  # where the split lay
    saved.parent.mkdir(exist_ok=True)
    saved.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def scores(rows: Rows) -> str:
    """d-BLEU, s-BLEU and chrF++ of each row, the best of each in bold; if all rows have it, also the s-BLEU of the
    segments that are not in the training split."""
    metrics = ["d-BLEU", "s-BLEU", "chrF++"]
    values = {name: {s["metric"]: s["score"] for s in row["scores"]} for name, row in rows.items()}
    if all(row.get("leaks") and row["leaks"]["unseen"]["segments"] for row in rows.values()):
        metrics.append("unseen")
        for name, row in rows.items():
            values[name]["unseen"] = row["leaks"]["unseen"]["s_bleu"]
    best = {metric: max(value[metric] for value in values.values()) for metric in metrics}
    body = []
    for name, own in values.items():
        shown = ((f"{own[metric]:.2f}", own[metric] == best[metric]) for metric in metrics)
        body.append([name, *(f"**{text}**" if bold else text for text, bold in shown)])
    return markdown(["", *metrics], body)


def tenths(rows: Rows) -> str:
    """s-BLEU of each row by tenth of the document."""
    return _parts(rows, "tenths", lambda part: str(round(10 * part["to"])))


def lengths(rows: Rows) -> str:
    """s-BLEU of each row by segments of the document."""
    return _parts(rows, "lengths", lambda p: f"{p['from']}+" if p["to"] is None else f"{p['from']}-{p['to']}")


def _parts(rows: Rows, part: str, head: Callable[[Mapping[str, Any]], str]) -> str:
    first = next(iter(rows.values()))["positions"][part]
    body = [[name, *(f"{place['s_bleu']:.1f}" for place in row["positions"][part])] for name, row in rows.items()]
    return markdown(["", *map(head, first)], body)


def phenomena(rows: Rows) -> str:
    """Share of right words in the translations, by kind and distance; a column for each row."""
    places = [(s["kind"], s["distance"], s["count"]) for s in next(iter(rows.values()))["scores"] if s["kind"] != "all"]
    found = {name: {(s["kind"], s["distance"]): s["generative"] for s in row["scores"]} for name, row in rows.items()}
    body = [
        [kind, distance, str(count), *(f"{shares[kind, distance]:.0%}" for shares in found.values())]
        for kind, distance, count in places
    ]
    return markdown(["", "distance", "count", *rows], body)


def programs(rows: Rows) -> str:
    """Programs beside each other: scores, updates, weights, what is left out and added; if a row has it, also the
    s-BLEU of the segments that are not in the training split."""
    metrics = ("d-BLEU", "s-BLEU", "chrF++")
    parted = [unseen(row) for row in rows.values()]
    known = set(parted) != {"-"}
    body = []
    for (name, row), part in zip(rows.items(), parted, strict=True):
        values = {score["metric"]: score["score"] for score in row["scores"]}
        shares = [f"{row['difference'][key]:.1%}" for key in ("omitted", "added")]
        facts = [f"{row['updates']:,}", f"{row['parameters']:,}"]
        own = [f"{values[metric]:.2f}" for metric in metrics] + [part] * known
        body.append([name, *facts, *own, *shares])
    return markdown(["", "updates", "weights", *metrics, *["unseen"] * known, "left out", "added"], body)


TABLES: Mapping[str, Callable[[Rows], str]] = {
    "scores": scores,
    "tenths": tenths,
    "lengths": lengths,
    "phenomena": phenomena,
    "programs": programs,
}


def filled(text: str, folder: Path) -> str:
    """A page with its tables as the saved scores have them. Raises KeyError for an unknown kind of table."""

    def block(match: re.Match[str]) -> str:
        rows = json.loads((folder / f"{match[3]}.json").read_text(encoding="utf-8"))
        return f"{match[1]}\n{TABLES[match[2]](rows)}\n\n{match[4]}"

    return BLOCK.sub(block, text)


def main(arguments: Sequence[str], pages: Path = PAGES) -> int:
    if arguments[:1] == ["add"]:
        saved, name, result = arguments[1:]
        add(pages / "saved" / f"{saved}.json", name, Path(result))
        return 0
    stale = 0
    for page in [*sorted(pages.glob("*.md")), *([ROOT / "README.md"] if pages == PAGES else [])]:
        old = page.read_text(encoding="utf-8")
        new = filled(old, pages / "saved")
        if new != old and arguments == ["--check"]:
            stale = 1
            print(f"{page}: has other tables than the saved scores: write them anew by {COMMAND}")
        elif new != old:
            page.write_text(new, encoding="utf-8")
    if arguments != ["--check"] and pages == PAGES:
        plot_positions(dict(drawn(pages / "saved")), pages.parent / "documents.png", beside=())
    return stale


def drawn(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The lines of the figure of README: the name of each, and its result."""
    for saved, when in DRAWN.items():
        rows = json.loads((folder / f"{saved}.json").read_text(encoding="utf-8"))
        for level in LEVELS:
            yield f"{level.split(',')[0]}, {when}", rows[level]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
