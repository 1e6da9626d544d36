"""The stages of the comparison of attentions: what each does with one of them, and the settings of all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from omegaconf import OmegaConf

from scaleformer.cli.command import CONF
from scaleformer.report.curves import read_curves
from scaleformer.system.schema import NonEmpty, OneOf, Positive, check_type
from scripts.mechanisms.cost import Conditions, measure_alone, measure_model
from scripts.mechanisms.report import TIMES
from scripts.mechanisms.tasks import TASKS, learn
from scripts.quality.programs import call

CHOICES = CONF / "model" / "attention"
STAGES = ("tasks", "train", "lengths", "speed", "slopes")


@dataclass(frozen=True)
class Options:
    """The settings; `python -m scripts.mechanisms --help` describes them."""

    mechanisms: NonEmpty[str] | None
    stages: tuple[Annotated[str, OneOf(STAGES)], ...]
    model: str
    layers: Positive
    steps: Positive
    batch_tokens: Positive
    segments: Positive
    documents: Positive
    lengths: tuple[Positive, ...]
    slope_lengths: tuple[Positive, ...]
    cost_layers: Positive
    repeats: Positive
    most_seconds: float
    memory_share: float
    threads: Positive
    seed: int
    overrides: tuple[str, ...]
    output: str
    report: str | None

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown mechanism; a name may have overrides behind it."""
        for mechanism in self.mechanisms or ():
            check_type("mechanisms", mechanism.partition(" ")[0], Annotated[str, OneOf(choices())])


def choices() -> list[str]:
    """The names of all configured attentions."""
    return sorted(path.stem for path in CHOICES.glob("*.yaml"))


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


def run(folder: Path, options: Options, command: str, *arguments: str) -> None:
    """Run a command with its output in a file. Raises Failed with the last line of it."""
    call([sys.executable, "-m", "scaleformer", command, *arguments], folder / f"{command}.log", options.threads)


def train(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """The last validation loss of a training. Raises Failed."""
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
    run(folder, options, "train", *arguments)
    curve = read_curves(target / "metrics.csv")
    return {"loss": curve["val/loss"][1][-1]}


def measure_lengths(mechanism: str, folder: Path, options: Options) -> dict[str, Any]:
    """Teacher-forced loss and BLEU at 1, 2, 4 and 8 times the trained number of segments. Raises Failed."""
    segments = [times * options.segments for times in TIMES]
    run(
        folder,
        options,
        "extrapolation",
        *(f"checkpoint={folder / 'run'}", f"output={folder}", "modes=[pass]", f"segments={segments}".replace(" ", "")),
        "data=synthetic",
        f"data.synthetic.segments=[{segments[-1]},{segments[-1]}]",
        f"data.synthetic.test={options.documents}",
        *("bootstrap_samples=0", "randomization_trials=0", f"threads={options.threads}", f"seed={options.seed}"),
    )
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
