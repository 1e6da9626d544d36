"""What reading a public model costs in memory: of a Marian with random weights, in fp32 and in bf16.

    python -m scripts.measure_public_memory [--layers 13 --width 1024 --feedforward 8192]    # 570 million weights

Each reading is a process of its own (Linux). Of its memory above that of the program before: what no file backs
(RssAnon), and the high-water mark of all (VmHWM), which includes the pages of the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from scaleformer.checkpoints.model_file import load_model
from scaleformer.data.tokenizer import Tokenizer
from scripts.quality.rows import write_vocabulary


def make(folder: Path, layers: int, width: int, feedforward: int) -> None:
    """A folder in the layout of transformers, with few pieces: so the weights are those of the layers."""
    tokenizer = Tokenizer.train([f"Line {n} of a page, {n * n}." for n in range(300)], 300)
    pad, _, start, end = range(4)
    sides: Any = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
             {"layers": layers, "ffn_dim": feedforward, "attention_heads": width // 64}.items()}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=300, decoder_vocab_size=300, d_model=width, max_position_embeddings=512, pad_token_id=pad,
        bos_token_id=start, eos_token_id=end, decoder_start_token_id=start, forced_eos_token_id=end, **sides,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(folder)
    write_vocabulary(folder, tokenizer)


def resident(name: str) -> float:
    """A line of the process's status, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def measure(folder: Path, dtype: torch.dtype) -> dict[str, float]:
    """The memory that reading took, in MiB, and the number of weights."""
    before = {"RssAnon": resident("RssAnon"), "VmHWM": resident("VmRSS")}
    model = load_model(folder, dtype=dtype).model
    grown = {name: resident(name) - start for name, start in before.items()}
    return {"weights": float(sum(p.numel() for p in model.parameters())), **grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 13, "width": 1024, "feedforward": 8192}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--read", nargs=2, metavar=("FOLDER", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        folder, dtype = options.read
        print(json.dumps(measure(Path(folder), getattr(torch, dtype))))
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.layers, options.width, options.feedforward)
        for dtype in ("float32", "bfloat16"):
            command = [sys.executable, "-m", "scripts.measure_public_memory", "--read", folder, dtype]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            size = f"{found['RssAnon']:,.0f} MiB of memory that no file backs, peak {found['VmHWM']:,.0f} MiB"
            print(f"{dtype}: {found['weights']:,.0f} weights, {size}", flush=True)


if __name__ == "__main__":
    main()
