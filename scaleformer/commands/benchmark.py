"""Time attention, training steps or decoding, by the programs of scripts/, which a clone has.

scaleformer benchmark attention|training|decoding|gpu [key=value ...]     lengths=[128,512] for --lengths 128 512
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import ListConfig, OmegaConf

KINDS = "attention", "training", "decoding", "gpu"
ROOT = Path(__file__).parents[2]


def main(given: Sequence[str]) -> None:
    """Hand over to `scripts.bench_KIND`. Raises ValueError for another kind, and without a clone."""
    kind, *settings = given or [""]
    if kind in ("--help", "-h"):
        print(__doc__)
        return
    if kind not in KINDS:
        raise ValueError(f"{' '.join(['benchmark', *given[:1]])}: wanted attention, training, decoding or gpu")
    if not (ROOT / "scripts").is_dir():
        raise ValueError("benchmark: its programs are in scripts/ of a clone, not in this installation: make bench")
    sys.path.insert(0, str(ROOT))
    sys.argv[1:] = [word for setting in settings for word in options(setting)]
    runpy.run_module(f"scripts.bench_{kind}", run_name="__main__", alter_sys=True)


def options(setting: str) -> Iterator[str]:
    """`sizes.layers=4` as `--layers`, `4`; other words as they are."""
    name, equals, value = setting.partition("=")
    if not equals or name.startswith("-"):
        yield setting
        return
    found = dict(OmegaConf.from_dotlist([f"value={value}"]))["value"]
    flag = name.rpartition(".")[2].replace("_", "-")
    yield f"--no-{flag}" if found is False else f"--{flag}"
    yield from () if isinstance(found, bool) else map(str, found if isinstance(found, ListConfig) else [found])
