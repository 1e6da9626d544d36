"""Train other programs and ours by themselves on one corpus for one time, and score the translations of all alike.

    python -m scripts.quality CORPUS [--minutes 60] [--recipe ours] [--segments 30] [--rows joeynmt-sentences ...]
    python -m scripts.quality CORPUS --rows scaleformer-sentences scaleformer-staged-whole --seeds 1 2 3
    make bench-quality CORPUS=FOLDER MINUTES=60

The others are Hugging Face transformers (Marian's architecture, Seq2SeqTrainer), JoeyNMT and eole, each installed by
pip into an environment of its own. All have the same sizes, subwords, threads and time; each translates the test split
by its own search. A row is a program on one level: segments one by one, or documents flattened to pieces of
`--max-tokens`; ours also segments first and documents from a share of the time on (staged), and with a deep encoder and
a shallow decoder (6+2, 7+1). Writes OUTPUT/results/ROW.json, of several seeds OUTPUT/seed-N/results/ROW.json, and
OUTPUT/quality.md; called again, it goes on with the missing rows.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import atomic_writer
from scaleformer.system.schema import from_mapping
from scripts.bench_training.models import Sizes
from scripts.quality.programs import Failed
from scripts.quality.rows import BY_DEFAULT, RECIPE, ROWS, Bench, Plan, table


def parse(given: Sequence[str] | None) -> tuple[list[Plan], list[str]]:
    """What all rows share, for each seed, and the names of the rows. Raises ValueError for a number out of bounds."""
    parser = argparse.ArgumentParser(
        "python -m scripts.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="folder of train, valid and test.jsonl[.gz]")
    parser.add_argument("--minutes", type=float, default=60, help="of training of each row, the same for all")
    parser.add_argument("--output", default="runs/quality", help="folder of the rows; finished ones stay")
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=ROWS,
        default=BY_DEFAULT,
        metavar="ROW",
        help=f"of {', '.join(ROWS)}; by default the first {len(BY_DEFAULT)}",
    )
    parser.add_argument(
        "--recipe", default="own", help="own or ours: what others optimize with, theirs or that of our experiments"
    )
    parser.add_argument("--experiment", default="techdocs", help="for what our rows do not share with the others")
    sizes = parser.add_argument_group("sizes of all models; by default those of the preset tiny")
    sizes.add_argument("--layers", type=int, default=4, help="of the encoder, and as many of the decoder")
    sizes.add_argument("--width", type=int, default=128, help="of the model")
    sizes.add_argument("--feedforward", type=int, default=256, help="inner width of the feed-forward layers")
    sizes.add_argument("--heads", type=int, default=4, help="of each attention")
    sizes.add_argument("--vocabulary", type=int, default=8000, help="pieces, of one sentencepiece model for all")
    parser.add_argument("--max-tokens", type=int, default=512, help="of a piece of a document, trained and translated")
    parser.add_argument("--max-documents", type=int, help="of the test split, the first ones; by default all")
    parser.add_argument("--segments", type=int, help="of a test document, the first ones; by default all")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each program")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of weights and order; all rows for each")
    parser.add_argument(
        "--like", metavar="FOLDER", help="of rows of another seed: as many updates as there, whatever the clock says"
    )
    parser.add_argument(
        "--schedule", default="inverse_sqrt", help="of our rows: inverse_sqrt, or cosine, which falls to 0"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=RECIPE["learning_rate"], help="of our rows, the peak of the schedule"
    )
    parser.add_argument("--environments", help="folder of the other programs; by default OUTPUT/environments")
    values = vars(parser.parse_args(given))
    rows = list(values.pop("rows"))
    values["sizes"] = {field.name: values.pop(field.name) for field in fields(Sizes)}
    values["environments"] = values["environments"] or f"{values['output']}/environments"
    output, seeds = values["output"], dict.fromkeys(values.pop("seeds"))
    folders = {seed: f"{output}/seed-{seed}" if len(seeds) > 1 else output for seed in seeds}
    return [from_mapping(Plan, {**values, "seed": s, "output": folder}, "") for s, folder in folders.items()], rows


def main(given: Sequence[str] | None = None) -> None:
    """Make the rows one after the other; one that fails is reported, and the others continue."""
    plans, rows = parse(given)
    output = Path(plans[0].output)
    output = output.parent if len(plans) > 1 else output
    failures, results = {}, []
    for plan in plans:
        bench, of_seed = Bench(plan), f" of seed {plan.seed}" if len(plans) > 1 else ""
        for row in rows:
            name = row + of_seed
            print(f"{name} ...", flush=True)
            try:
                print(f"{name}: {'done' if bench.row(row) else 'there already'}", flush=True)
            except Exception as error:  # whatever it is, the other rows are worth their hours
                if not isinstance(error, Failed):
                    traceback.print_exc()
                failures[name] = " ".join(str(error).split()) or type(error).__name__
                print(f"{name}: failed: {failures[name]}", flush=True)
        paths = sorted((bench.output / "results").glob("*.json"))
        results += [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    text = table(results, failures)
    with atomic_writer(output / "quality.md") as file:
        file.write(text)
    print(f"\n{text}\nwritten to {output / 'quality.md'}")
    if failures:
        raise ValueError(f"{len(failures)} of {len(rows) * len(plans)} rows failed: {', '.join(failures)}")


if __name__ == "__main__":
    with one_line_errors():
        main()
