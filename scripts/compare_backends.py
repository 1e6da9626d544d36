"""Train every attention alike on the synthetic corpus, and compare what it costs and how far it carries.

    python scripts/compare_backends.py [backends=[scaleformer,softmax,rotary]] [steps=400] [output=DIR] [report=FILE.md]

Each choice of conf/model/attention is trained from the same seed on the same documents for the same number of steps,
then evaluated on documents of 1, 2, 4 and 8 times the trained number of segments, and its speed and memory are measured
in a process of its own. A choice may have options: "scaleformer relative=raw". What is there already is not done again,
so that the command goes on where it was stopped. Writes the report and a figure beside it.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from scaleformer.batch import Batch
from scaleformer.cli import one_line_errors
from scaleformer.evaluation.results import provenance, write_result
from scaleformer.model.transformer import ModelConfig, Transformer
from scaleformer.ops._benchmark import peak_memory
from scaleformer.plots import read_curves
from scaleformer.plots_backends import write_report

ROOT = Path(__file__).resolve().parents[1]
CHOICES = ROOT / "conf" / "model" / "attention"
TIMES = (1, 2, 4, 8)


@dataclass
class Options:
    """The settings, each `key=value` on the command line."""

    backends: list[str] = field(default_factory=lambda: sorted(path.stem for path in CHOICES.glob("*.yaml")))
    model: str = "tiny"
    steps: int = 400
    batch_tokens: int = 2048
    segments: int = 4  # most segments of a training document
    documents: int = 8  # for evaluation, each of 8 times as many segments, cut shorter for the other lengths
    lengths: list[int] = field(default_factory=lambda: [512, 2048, 8192])  # for speed and memory
    layers: int = 1  # of the encoder and the decoder, for speed and memory
    repeats: int = 3
    memory_share: float = 0.6  # of the machine's memory that one measurement may take; more is "out of memory"
    threads: int = 2
    seed: int = 1
    overrides: list[str] = field(default_factory=list)  # more of train.py's
    output: str = "runs/backends"
    report: str = "docs/backends.md"


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    options = read_options(arguments)
    output = Path(options.output)
    keep_settings(options, output)
    torch.set_num_threads(options.threads)
    for number, backend in enumerate(options.backends, start=1):
        folder = output / backend.replace(" ", "_").replace("=", "-")
        print(f"[{number}/{len(options.backends)}] {backend}", flush=True)
        for stage, work in (("train", train), ("lengths", evaluate), ("speed", measure)):
            path = folder / f"{stage}.json"
            if path.exists() and "error" not in json.loads(path.read_text(encoding="utf-8")):
                continue
            start = time.monotonic()
            result = work(backend, folder, options)
            write_result(path, {"seconds": time.monotonic() - start, **result})
            print(f"  {stage}: {time.monotonic() - start:.0f} s {result.get('error', '')}", flush=True)
            if "error" in result and stage == "train":
                break
        # after each, so that a stopped comparison has one as well
        write_report(read_results(options, output), Path(options.report), text_of(options), options.lengths)
    print(f"written to {options.report}")


def read_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line. Raises errors of OmegaConf for unknown keys and values of another type."""
    given = OmegaConf.from_cli(arguments)
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Options), given))
    assert isinstance(options, Options)
    known = {path.stem for path in CHOICES.glob("*.yaml")}
    unknown = [b for b in options.backends if b.split()[0] not in known]
    if unknown or not options.backends:
        raise ValueError(f"backends: {', '.join(unknown) or 'none'}: choose of {', '.join(sorted(known))}")
    return options


def keep_settings(options: Options, output: Path) -> None:
    """See that what is in the folder was made with the same settings. Raises ValueError where it was not."""
    settings = {k: v for k, v in asdict(options).items() if k not in ("backends", "output", "report")}
    path = output / "settings.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ValueError(f"{path}: a comparison with other settings: take another output=DIR, or remove this one")
    write_result(path, settings)


def overrides_of(backend: str) -> list[str]:
    name, *chosen = backend.split()
    return [f"model/attention={name}", *(f"model.attention.{option}" for option in chosen)]


def run(script: str, folder: Path, *arguments: str) -> str | None:
    """Run a command of the repository, its output into a file; None, or the last line of what went wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{Path(script).stem}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, str(ROOT / script), *arguments]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment).returncode
    if code == 0:
        return None
    lines = log.read_text(encoding="utf-8").strip().splitlines()
    return f"{script} ended with {code}: {lines[-1] if lines else 'no output'} (see {log})"


def train(backend: str, folder: Path, options: Options) -> dict[str, Any]:
    """The number of parameters and the last validation loss of a training, or why there is none."""
    target = folder / "run"
    if (target / "checkpoints" / "last.ckpt").exists():
        arguments = [f"resume={target}"]
    else:
        arguments = [
            *(f"model={options.model}", *overrides_of(backend), "tokenizer.vocab_size=700"),
            f"data.synthetic.segments=[1,{options.segments}]",
            f"data.batch_tokens={options.batch_tokens}",
            *(f"trainer.max_steps={options.steps}", f"trainer.val_check_interval={options.steps}"),
            f"schedule.warmup_steps={max(1, options.steps // 4)}",
            *("callbacks.validation_bleu.examples=0", "test.enabled=false"),
            *(f"seed={options.seed}", f"threads={options.threads}", f"hydra.run.dir={target}"),
            *options.overrides,
        ]
    error = run("train.py", folder, *arguments)
    if error is not None:
        return {"error": error}
    curve = read_curves(target / "metrics.csv")
    return {"loss": curve["val/loss"][1][-1]}


def evaluate(backend: str, folder: Path, options: Options) -> dict[str, Any]:
    """Teacher-forced loss and BLEU at 1, 2, 4 and 8 times the trained number of segments."""
    segments = [times * options.segments for times in TIMES]
    error = run(
        "scripts/evaluate_extrapolation.py",
        folder,
        *(f"checkpoint={folder / 'run'}", f"output={folder}", "modes=[pass]", f"segments={segments}".replace(" ", "")),
        "data=synthetic",
        f"data.synthetic.segments=[{segments[-1]},{segments[-1]}]",
        f"data.synthetic.test={options.documents}",
        *("bootstrap_samples=0", "randomization_trials=0", f"threads={options.threads}", f"seed={options.seed}"),
    )
    if error is not None:
        return {"error": error}
    found = json.loads((folder / "extrapolation.json").read_text(encoding="utf-8"))
    sizes = {length["label"]: length["size"] for length in found["lengths"]}
    points = []
    for row in found["results"]:
        bleu = next(s["score"] for s in row["decode"]["scores"] if s["metric"] == "d-BLEU")
        times = sizes[row["length"]] // options.segments
        points.append({"times": times, "loss": row["loss"]["nats_per_token"], "bleu": bleu})
    return {"parameters": found["systems"][0]["parameters"], "points": points}


def measure(backend: str, folder: Path, options: Options) -> dict[str, Any]:
    """Training speed and memory at each length, each in a process with a bound on its memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name, *chosen = backend.split()
    merged = OmegaConf.merge(OmegaConf.load(CHOICES / f"{name}.yaml"), OmegaConf.from_dotlist(chosen))
    config: dict[str, Any] = OmegaConf.to_container(merged)  # type: ignore[assignment]
    points = []
    for length in options.lengths:
        receive, send = get_context("spawn").Pipe(duplex=False)
        arguments = (config, length, options, int(options.memory_share * total), send)
        process = get_context("spawn").Process(target=measure_one, args=arguments)
        process.start()
        send.close()
        try:
            points.append({"length": length, **receive.recv()})
        except EOFError:
            points.append({"length": length, "error": "out of memory"})
        process.join()
    return {"points": points}


def measure_one(config: dict[str, Any], length: int, options: Options, most: int, send: Any) -> None:
    """Send the tokens (source and target) a second of a forward and backward pass, and the bytes that it takes."""
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    sizes: Any = OmegaConf.load(ROOT / "conf" / "model" / f"{options.model}.yaml")
    kept = {key: sizes[key] for key in ("width", "feedforward", "heads")}
    shape = ModelConfig(
        700, 700, encoder_layers=options.layers, decoder_layers=options.layers, attention=config, **kept
    )
    model = Transformer(shape)

    def step() -> None:
        model.logits(model(batch)).square().mean().backward()

    try:
        batch = random_batch(min(length, 256))
        step()  # warm-up
        batch = random_batch(length)
        seconds: list[float] = []
        while len(seconds) < options.repeats and sum(seconds) < 10:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        memory = peak_memory(step, torch.device("cpu"))
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        send.send({"error": "out of memory"})
    except ValueError as error:  # the length is more than the mechanism allows
        send.send({"error": str(error)})
    else:
        send.send({"tokens_per_second": 2 * length / median(seconds), "memory": memory})


def random_batch(length: int) -> Batch:
    """One document of `length` source and target tokens, in segments of 16."""
    tokens = torch.randint(5, 700, (1, length))
    mask = torch.ones(1, length, dtype=torch.bool)
    segments: Tensor = (torch.arange(length) // 16)[None]
    return Batch(tokens, mask, segments, tokens, tokens, mask, segments)


def read_results(options: Options, output: Path) -> dict[str, dict[str, Any]]:
    """Stage -> result of each back-end in the folder."""
    found = {}
    for backend in options.backends:
        folder = output / backend.replace(" ", "_").replace("=", "-")
        stages = {stage: folder / f"{stage}.json" for stage in ("train", "lengths", "speed")}
        found[backend] = {s: json.loads(p.read_text(encoding="utf-8")) for s, p in stages.items() if p.exists()}
    return {backend: result for backend, result in found.items() if result}


def text_of(options: Options) -> str:
    """How the results were made."""
    device = provenance("cpu", options.seed)["device"]
    given = {k: v for k, v in asdict(options).items() if v != getattr(Options(), k) and k != "report"}
    shown = {k: f"[{','.join(map(str, v))}]" if isinstance(v, list) else v for k, v in given.items()}
    words = shlex.join(["python", "scripts/compare_backends.py", *(f"{k}={v}" for k, v in shown.items())])
    return f"""Made by `{words}`.

Every choice of `conf/model/attention` with the preset `{options.model}`, the same seed ({options.seed}), the same
synthetic documents of 1 to {options.segments} segments and {options.steps:,} steps of {options.batch_tokens:,} tokens,
in float32 on {device["name"]} with {options.threads} threads. A training this short tells which mechanisms learn
quickly and which carry beyond the trained length, not where each of them ends up. What a mechanism cannot serve
(cross-attention, mostly) is served by the one that its YAML names.

Validation loss is in nats a token, over documents as trained. Loss and d-BLEU (greedy) at 1, 2, 4 and 8 times the
greatest trained number of segments are those of {options.documents} documents cut into pieces of that size. Speed is
that of a forward and backward pass over one document, source and target tokens together, in a model of
{options.layers} + {options.layers} layers; memory is what it takes on top of the weights."""


if __name__ == "__main__":
    main()
