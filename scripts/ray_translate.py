"""Translate JSON Lines on many machines with Ray Data: each GPU has an actor with the model, each document is a row.

    pip install 'ray[data]==2.60.0'
    python -m scripts.ray_translate RUN corpus.jsonl out.jsonl                      # an actor on each GPU
    python -m scripts.ray_translate RUN corpus.jsonl out.jsonl --actors 2 --gpus 0  # two on the CPUs of this machine

Writes the documents in the order of the input, each with its `target`, and whether that is `finished` or was cut.
RUN and the input must be on a file system that all machines share. Ray gives the documents of an actor that is lost to
another one. A call that was interrupted begins anew: where that costs much, `scaleformer translate shard=3/64` resumes
(docs/translation.md). The search has the settings of the model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scaleformer import Translator
from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import atomic_writer


class Worker:
    """A model on one GPU or CPU, and what it makes of some rows, lines of JSON."""

    def __init__(self, checkpoint: str, device: str | None) -> None:
        self.translator = Translator.load(checkpoint, device)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        documents = [json.loads(line) for line in rows["text"]]
        request = self.translator.request([document["source"] for document in documents])
        lines = [
            json.dumps({**document, "target": found.segments, "finished": found.finished}, ensure_ascii=False)
            for document, found in zip(documents, self.translator.translate_documents(request), strict=True)
        ]
        return {"text": lines}


def translate(checkpoint: str, source: Path, output: Path, actors: int, gpus: float, together: int) -> int:
    """Translate a file of documents; returns their number.

    actors    that hold the model, 0 for one on each GPU of the cluster; gpus of each, 0 for a CPU
    together  documents that an actor gets at once
    """
    if output.exists():
        raise ValueError(f"{output}: exists already: name a new file")
    if not source.is_file():
        raise ValueError(f"{source}: no such file: wanted JSON Lines, a document a line")
    try:
        ray, data = import_module("ray"), import_module("ray.data")
    except ModuleNotFoundError as error:
        raise ValueError("Ray is not installed: pip install 'ray[data]==2.60.0'") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)  # joins the cluster of `ray start`, if there is one
    count = actors or int(ray.cluster_resources().get("GPU", 0))
    if count < 1:
        raise ValueError("the cluster has no GPU: set --actors 2 --gpus 0 to translate on CPUs")
    data.DataContext.get_current().execution_options.preserve_order = True
    lines = data.read_text(str(source.absolute()), drop_empty_lines=True)
    translated = lines.repartition(target_num_rows_per_block=together).map_batches(
        Worker, fn_constructor_args=(str(Path(checkpoint).absolute()), None if gpus else "cpu"), batch_size=together,
        batch_format="numpy", num_gpus=gpus or None, num_cpus=1, compute=data.ActorPoolStrategy(size=count),
    )  # fmt: skip
    done = 0
    with atomic_writer(output) as file:
        for row in translated.iter_rows():
            file.write(f"{row['text']}\n")
            done += 1
        with source.open(encoding="utf-8") as given:
            wanted = sum(bool(line.strip()) for line in given)
        if done != wanted:
            raise ValueError(f"{output}: not written: {done:,} of {wanted:,} documents came back: try again")
    return done


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", metavar="RUN", help="a run, checkpoint or exported model")
    parser.add_argument("input", type=Path, help="JSON Lines, a document a line")
    parser.add_argument("output", type=Path, help="a new file")
    parser.add_argument("--actors", type=int, default=0, help="that hold the model; 0: one for each GPU")
    parser.add_argument("--gpus", type=float, default=1, help="of each actor; 0.5 lets two share one, 0 is for CPUs")
    parser.add_argument("--together", type=int, default=32, help="documents that an actor gets at once")
    options = parser.parse_args(given)
    done = translate(options.checkpoint, options.input, options.output, options.actors, options.gpus, options.together)
    print(f"{done:,} documents in {options.output}")


if __name__ == "__main__":
    with one_line_errors():
        main()
