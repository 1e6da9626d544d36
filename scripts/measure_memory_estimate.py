"""What batches need by `decoding.memory_limit`, and what the process really grew by.

    python -m scripts.measure_memory_estimate

Untrained models of a preset's size, so that every translation is as long as it may be; the growth is the kernel's
high-water mark (VmHWM), less what was resident before.
"""

from __future__ import annotations

import argparse
import random

import torch

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.allocator import keep_freed_memory
from scaleformer.system.measure import measured, shown_size
from scaleformer.translation.batches import MemoryEstimate
from scaleformer.vocabulary import EOS, SEP

SIZES = {"tiny": (4, 128, 256, 4), "small": (6, 256, 1024, 4), "base": (6, 512, 2048, 8)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--attention", nargs="+", default=["segment_recall", "scaleformer", "softmax"])
    parser.add_argument("--documents", type=int, default=16)
    parser.add_argument("--segments", type=int, default=60)
    parser.add_argument("--ratio", type=float, default=0.5, help="max_length_ratio: tokens to write for each read")
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as commands do
    layers, width, feedforward, heads = SIZES[options.size]
    draw = random.Random(1)
    sources = [
        [t for _ in range(options.segments) for t in (*(draw.randrange(40, 8000) for _ in range(24)), SEP)] + [EOS]
        for _ in range(options.documents)
    ]
    for name in options.attention:
        shape = ModelConfig(8000, 8000, True, layers, layers, width, feedforward, heads, attention={"name": name})
        model = Transformer(shape).eval()
        for strategy in ("greedy", "beam"):
            config = DecodingConfig(
                strategy, options.beam, max_length_ratio=options.ratio, max_length_offset=1, merge_segments=False
            )
            decode(model, *pad([[*sources[0][:25], EOS]], torch.device("cpu")), config)  # what is made once
            estimate = MemoryEstimate(model, config)
            estimated = estimate.bytes(estimate.extent(sources[0]), len(sources))
            with measured() as cost:
                decode(model, *pad(sources, torch.device("cpu")), config)
            grown = cost.memory_growth_bytes
            print(
                f"{options.size} {name} {strategy}: {shown_size(estimated)} estimated, {shown_size(grown)} grown "
                f"({cost.memory_method}), {estimated / max(grown, 1):.2f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
