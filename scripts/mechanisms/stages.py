"""Train every attention in the same way on the synthetic corpus, and compare cost and quality at many lengths.

    scaleformer benchmark mechanisms [mechanisms=[scaleformer,softmax,rotary]] [steps=600] [output=DIR] [report=FILE.md]

Each choice of conf/model/attention goes through five stages. It learns two short tasks (`tasks`). It trains with the
same seed, documents and number of steps (`train`), and is evaluated on documents of 1, 2, 4 and 8 times the trained
number of segments (`lengths`). Its speed and memory are measured in a model (`speed`), and its time as a single
attention (`slopes`), in separate processes. A choice may have options: "scaleformer relative=raw". Finished stages are
not repeated, so that the command continues where it was stopped, and `stages=[speed,slopes]` can wait until the machine
is quiet. Writes a report of the existing results, and a figure.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from omegaconf import OmegaConf

from scaleformer.cli.command import CONF, default_options
from scaleformer.report.curves import read_curves
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import NonEmpty, OneOf, Positive, check_type
from scripts.mechanisms.cost import Conditions, measure_alone, measure_model
from scripts.mechanisms.report import write_comparison
from scripts.mechanisms.tasks import TASKS, learn

CHOICES = CONF / "model" / "attention"
TIMES = (1, 2, 4, 8)
STAGES = ("tasks", "train", "lengths", "speed", "slopes")


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_mechanisms.yaml describes them."""

    mechanisms: NonEmpty[str] | None
    stages: tuple[Annotated[str, OneOf(STAGES)], ...]
    model: str
    layers: int
    steps: int
    batch_tokens: int
    segments: int
    documents: int
    lengths: tuple[int, ...]
    slope_lengths: tuple[int, ...]
    cost_layers: int
    repeats: int
    most_seconds: float
    memory_share: float
    threads: Positive
    seed: int
    overrides: tuple[str, ...]
    output: str
    report: str

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown mechanism; a name may have overrides behind it."""
        for mechanism in self.mechanisms or ():
            check_type("mechanisms", mechanism.split()[0], Annotated[str, OneOf(choices())])


def choices() -> list[str]:
    """The names of all configured attentions."""
    return sorted(path.stem for path in CHOICES.glob("*.yaml"))


def main(options: Options, given: Sequence[str]) -> None:
    """Run the unfinished stages, and write the report."""
    mechanisms = options.mechanisms or tuple(choices())
    options = replace(options, mechanisms=mechanisms)
    output = Path(options.output)
    keep_settings(options, output)
    check_file("report", options.report)
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
            result = work_of(stage)(mechanism, folder, options)
            write_result(path, {"seconds": time.monotonic() - start, **result})
            print(f"  {stage}: {time.monotonic() - start:.0f} s {result.get('error', '')}", flush=True)
        # after each mechanism, so that an interrupted comparison has a report too
        made = text_of(options)
        write_comparison(
            read_results(options, output), Path(options.report), made, options.lengths, options.slope_lengths
        )
    print(f"written to {options.report}")


def keep_settings(options: Options, output: Path) -> None:
    """Check that the folder was made with the same settings. Raises ValueError otherwise."""
    free = ("mechanisms", "stages", "output", "report")
    settings = json.loads(json.dumps({k: v for k, v in asdict(options).items() if k not in free}))
    path = output / "settings.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ValueError(f"{path}: a comparison with other settings: set another output=DIR, or remove this one")
    write_result(path, settings)


def folder_of(mechanism: str, output: Path) -> Path:
    return output / mechanism.replace(" ", "_").replace("=", "-")


def is_done(path: Path) -> bool:
    """Whether a stage has a result without an error."""
    return path.exists() and "error" not in json.loads(path.read_text(encoding="utf-8"))


def work_of(stage: str) -> Callable[[str, Path, Options], dict[str, Any]]:
    return {"tasks": tasks, "train": train, "lengths": measure_lengths, "speed": speed, "slopes": slopes}[stage]


def overrides_of(mechanism: str) -> list[str]:
    name, *chosen = mechanism.split()
    return [f"model/attention={name}", *(f"model.attention.{option}" for option in chosen)]


def run(command: str, folder: Path, *arguments: str) -> str | None:
    """Run a command with its output in a file; returns None, or the last line of its error."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{command}.log"
    with log.open("w", encoding="utf-8") as file:
        words = [sys.executable, "-m", "scaleformer", command, *arguments]
        code = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT).returncode
    if code == 0:
        return None
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    return f"{command} ended with {code}: {lines[-1] if lines else 'no output'} (see {log})"


def train(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """The number of parameters and the last validation loss of a training, or the reason of its failure."""
    target = folder / "run"
    if (target / "checkpoints" / "last.ckpt").exists():
        arguments = [f"resume={target}"]
    else:
        arguments = [
            *(f"model={options.model}", *overrides_of(mechanism), "tokenizer.vocab_size=700"),
            *(f"model.encoder_layers={options.layers}", f"model.decoder_layers={options.layers}"),
            f"data.synthetic.segments=[1,{options.segments}]",
            f"data.batch_tokens={options.batch_tokens}",
            *(f"trainer.max_steps={options.steps}", f"trainer.val_check_interval={options.steps}"),
            f"schedule.warmup_steps={max(1, options.steps // 4)}",
            *("callbacks.validation_bleu.examples=0", "test.enabled=false"),
            *(f"seed={options.seed}", f"threads={options.threads}", f"hydra.run.dir={target}"),
            *options.overrides,
        ]
    error = run("train", folder, *arguments)
    if error is not None:
        return {"error": error}
    curve = read_curves(target / "metrics.csv")
    return {"loss": curve["val/loss"][1][-1]}


def measure_lengths(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """Teacher-forced loss and BLEU at 1, 2, 4 and 8 times the trained number of segments."""
    segments = [times * options.segments for times in TIMES]
    error = run(
        "extrapolation",
        folder,
        *(f"checkpoint={folder / 'run'}", f"output={folder}", "modes=[pass]", f"segments={segments}".replace(" ", "")),
        "data=synthetic",
        f"data.synthetic.segments=[{segments[-1]},{segments[-1]}]",
        f"data.synthetic.test={options.documents}",
        *("bootstrap_samples=0", "randomization_trials=0", f"threads={options.threads}", f"seed={options.seed}"),
    )
    if error is not None:
        return {"error": error}
    (written,) = folder.glob("extrapolation*.json")  # named after its corpus
    found = json.loads(written.read_text(encoding="utf-8"))
    sizes = {length["label"]: length["size"] for length in found["lengths"]}
    points = []
    for row in found["results"]:
        bleu = next(s["score"] for s in row["decode"]["scores"] if s["metric"] == "d-BLEU")
        times = sizes[row["length"]] // options.segments
        points.append({"times": times, "loss": row["loss"]["nats_per_token"], "bleu": bleu})
    return {"parameters": found["systems"][0]["parameters"], "points": points}


def tasks(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """How many steps each of the short tasks takes."""
    torch.set_num_threads(1)
    return {task: learn(choice_of(mechanism), task, seed=options.seed) for task in TASKS}


def speed(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """Training speed and memory of a whole model at each length."""
    return {"points": measure_model(choice_of(mechanism), options.lengths, conditions(options))}


def slopes(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """The time of one attention alone at each of the longer lengths."""
    return {"points": measure_alone(choice_of(mechanism), options.slope_lengths, conditions(options))}


def choice_of(mechanism: str) -> dict[str, Any]:
    """The options of a choice, from its YAML and the command."""
    name, *chosen = mechanism.split()
    merged = OmegaConf.merge(OmegaConf.load(CHOICES / f"{name}.yaml"), OmegaConf.from_dotlist(chosen))
    found: dict[str, Any] = OmegaConf.to_container(merged)  # type: ignore[assignment]
    return found


def conditions(options: Options) -> Conditions:
    sizes: Any = OmegaConf.load(CONF / "model" / f"{options.model}.yaml")
    kept = {key: sizes[key] for key in ("width", "feedforward", "heads")}
    given = {k: getattr(options, k) for k in ("repeats", "most_seconds", "memory_share", "seed")}
    return Conditions(kept, options.cost_layers, **given)


def read_results(options: Options, output: Path) -> dict[str, dict[str, Any]]:
    """Stage -> result, for each mechanism in the folder."""
    found = {}
    for mechanism in options.mechanisms or ():
        stages = {stage: folder_of(mechanism, output) / f"{stage}.json" for stage in STAGES}
        found[mechanism] = {s: json.loads(p.read_text(encoding="utf-8")) for s, p in stages.items() if p.exists()}
    return {mechanism: result for mechanism, result in found.items() if result}


def text_of(options: Options) -> str:
    """The text on how the results were made."""
    device = provenance("cpu", options.seed)["device"]
    places = ("stages", "output", "report")
    usual = default_options("benchmark mechanisms")
    given = {k: v for k, v in asdict(options).items() if v != getattr(usual, k) and k not in places}
    shown = {k: f"[{','.join(map(str, v))}]" if isinstance(v, tuple) else v for k, v in given.items()}
    words = shlex.join(["scaleformer", "benchmark", "mechanisms", *(f"{k}={v}" for k, v in shown.items())])
    return f"""Made by `{words}`.

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
