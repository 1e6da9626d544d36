"""Train every attention in the same way on the synthetic corpus, and compare cost and quality at many lengths.

    python -m scripts.mechanisms [--mechanisms scaleformer softmax rotary] [--threads 1] [--report FILE.md]
    python -m scripts.mechanisms --mechanisms softmax "shaw horizon=4" --stages speed slopes

Each choice of conf/model/attention goes through five stages. It learns two short tasks (`tasks`). It trains with the
same seed, documents and number of steps (`train`), and is evaluated on documents of 1, 2, 4 and 8 times the trained
number of segments (`lengths`). Its speed and memory are measured in a model (`speed`), and its time as a single
attention (`slopes`), in separate processes. A choice may have options: "scaleformer relative=raw". Finished stages are
not repeated, so that the command continues where it was stopped, and `--stages speed slopes` can wait until the machine
is quiet. Writes a report of the existing results, and a figure.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaleformer.system.allocator import bound_kernel_caches, use_huge_pages
from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import from_mapping
from scripts.arguments import Parser
from scripts.mechanisms.report import write_comparison
from scripts.mechanisms.stages import STAGES, Options, choices, folder_of, is_done, work_of
from scripts.quality.programs import Failed

#: what may differ between calls that share a folder
FREE = ("mechanisms", "stages", "output", "report")


def parse(given: Sequence[str] | None) -> Options:
    """The settings. Raises ValueError for unknown ones, and for values of a wrong type or out of bounds."""
    parser = Parser("python -m scripts.mechanisms", __doc__)
    tokens: dict[str, Any] = {"nargs": "*", "type": int, "metavar": "TOKENS"}
    parser.add_argument("--mechanisms", nargs="+", metavar="NAME", help="choices of model/attention; None is all")
    parser.add_argument("--stages", nargs="*", default=STAGES, metavar="STAGE", help="those to run")
    parser.add_argument("--model", default="tiny", help="preset of conf/model: tiny, small or base")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder and of the decoder, in training")
    parser.add_argument("--steps", type=int, default=600, help="optimizer steps of the training")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="of a batch in training, padding included")
    parser.add_argument("--segments", type=int, default=4, help="most of a training document")
    documents = "for evaluation, each with 8 times as many segments, cut into pieces for shorter lengths"
    parser.add_argument("--documents", type=int, default=8, help=documents)
    parser.add_argument("--lengths", default=(512, 2048, 8192), help="of a document, for speed and memory", **tokens)
    parser.add_argument("--slope-lengths", default=(2048, 8192, 32768), help="of one attention alone", **tokens)
    parser.add_argument("--cost-layers", type=int, default=1, help="of encoder and decoder, for speed and memory")
    parser.add_argument("--repeats", type=int, default=3, help="timed passes of one measurement")
    parser.add_argument("--most-seconds", type=float, default=10.0, help="that the passes of one measurement may take")
    share = 'of the machine\'s memory for one measurement; more is "out of memory"'
    parser.add_argument("--memory-share", type=float, default=0.6, help=share)
    parser.add_argument("--threads", type=int, default=2, help="to train and evaluate; speed is that of one")
    parser.add_argument("--seed", type=int, default=1, help="of weights and data")
    parser.add_argument("--overrides", nargs="*", default=(), metavar="KEY=VALUE", help="more settings of the training")
    parser.add_argument("--output", default="runs/mechanisms", help="folder of all results")
    parser.add_argument("--report", metavar="FILE.md", help="the page to write; None is OUTPUT/report.md")
    return from_mapping(Options, vars(parser.parse_args(given)), "")


def main(given: Sequence[str] | None = None) -> None:
    """Run the unfinished stages, and write the report."""
    options = parse(given)
    mechanisms, output = options.mechanisms or tuple(choices()), Path(options.output)
    check_file("--report", options.report)
    keep_settings(options, output)
    report = Path(options.report or output / "report.md")
    for number, mechanism in enumerate(mechanisms, start=1):
        folder = folder_of(mechanism, output)
        print(f"[{number}/{len(mechanisms)}] {mechanism}", flush=True)
        for stage in options.stages:
            path = folder / f"{stage}.json"
            if is_done(path):
                continue
            if stage == "lengths" and not is_done(folder / "train.json"):
                print("  lengths: not trained yet: add the stage train", flush=True)
                continue
            start = time.monotonic()
            try:
                result = work_of(stage)(mechanism, folder, options)
            except Failed as error:
                result = {"error": str(error)}
            write_result(path, {"seconds": time.monotonic() - start, **result})
            print(f"  {stage}: {time.monotonic() - start:.0f} s {result.get('error', '')}", flush=True)
        # after each mechanism, so that an interrupted comparison has a report too
        results = read_results(mechanisms, output)
        write_comparison(results, report, text_of(options), options.lengths, options.slope_lengths)
    print(f"written to {report}")


def keep_settings(options: Options, output: Path) -> None:
    """Check that the folder was made with the same settings. Raises ValueError otherwise."""
    settings = json.loads(json.dumps({k: v for k, v in asdict(options).items() if k not in FREE}))
    path = output / "settings.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ValueError(f"{path}: a comparison with other settings: set another --output, or remove this one")
    write_result(path, settings)


def read_results(mechanisms: Sequence[str], output: Path) -> dict[str, dict[str, Any]]:
    """Stage -> result, for each mechanism in the folder."""
    found = {}
    for mechanism in mechanisms:
        stages = {stage: folder_of(mechanism, output) / f"{stage}.json" for stage in STAGES}
        found[mechanism] = {s: json.loads(p.read_text(encoding="utf-8")) for s, p in stages.items() if p.exists()}
    return {mechanism: result for mechanism, result in found.items() if result}


def text_of(options: Options) -> str:
    """The text on how the results were made."""
    device = provenance("cpu", options.seed)["device"]
    usual = asdict(parse([]))
    words = ["python", "-m", "scripts.mechanisms"]
    for name, value in asdict(options).items():
        if value != usual[name] and name not in ("stages", "output", "report"):
            words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    return f"""Made by `{shlex.join(words)}`.

Every choice of `conf/model/attention` in the preset `{options.model}` with {options.layers} + {options.layers} layers,
the same seed ({options.seed}), the same synthetic documents of 1 to {options.segments} segments and {options.steps:,}
steps of {options.batch_tokens:,} tokens, in float32 on {device["name"]}. Such a short training shows which mechanisms
learn quickly and which generalize beyond the trained length, not their final quality. Sites that a mechanism cannot
serve (mostly cross-attention) use the fallback of its YAML.

The short tasks are documents of two segments of five tokens, to be copied, and to be translated with a dictionary while
swapping neighbouring words, in a model of 2 + 2 layers of width 64. The tables have the steps of 32 documents until 99
of 100 tokens are right, and the share of correct tokens in new documents with greedy decoding.

Validation loss is in nats per token, over documents as in training. Loss and d-BLEU (greedy) at 1, 2, 4 and 8 times the
largest trained number of segments use {options.documents} documents cut into pieces of that size.

Speed is measured over a forward and backward pass on one document, source and target tokens together, in a model of
{options.cost_layers} + {options.cost_layers} layers; memory is counted on top of the weights. An attention alone is
timed with its projections at each site that it serves itself. A pass that would take more than
{options.most_seconds:g} s, if the cost were quadratic, is skipped. A text longer than a mechanism allows is refused.
All times are processor time of one thread."""


if __name__ == "__main__":
    use_huge_pages()  # as commands do
    bound_kernel_caches()
    with one_line_errors():
        main()
