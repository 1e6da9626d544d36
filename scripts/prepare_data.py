"""Convert text pairs, TSV, gettext .po trees, JSON Lines, data sets of the Hub or test sets of sacrebleu to JSON Lines.

    python scripts/prepare_data.py format=text input=corpus.en target=corpus.es output=data/prepared/corpus
    python scripts/prepare_data.py format=po input=locale/es/LC_MESSAGES output=data/prepared/docs min_segments=5
    python scripts/prepare_data.py format=hub input=Helsinki-NLP/opus-100 subset=en-es source_column=translation.en \\
        target_column=translation.es output=data/prepared/opus
    python scripts/prepare_data.py format=sacrebleu input=wmt22:en-de valid=0 test=1 output=data/prepared/wmt22

All settings: `scaleformer.data.prepare.PrepareConfig`.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields
from typing import Any

import rich
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from scaleformer.data.prepare import PrepareConfig, prepare
from scaleformer.system.errors import one_line_errors
from scaleformer.system.schema import from_mapping, shown


def settings(arguments: list[str]) -> PrepareConfig:
    """The configuration that `key=value` arguments give; raises ValueError for unknown, missing and wrong ones."""
    if wrong := [argument for argument in arguments if "=" not in argument]:
        raise ValueError(f"{shown(wrong[0])}: wanted key=value")
    values: dict[str, Any] = {}
    known = {f.name: f for f in fields(PrepareConfig)}
    if unknown := [a.split("=")[0] for a in arguments if a.split("=")[0] not in known]:
        raise ValueError(f"{shown(unknown[0])[1:-1]}: no such setting; there are {', '.join(known)}")
    for argument in arguments:
        key, text = argument.split("=", 1)
        # Paths and names stay as they were typed: YAML would make a number of input=2024.
        if known[key].type in ("str", "str | None"):
            values[key] = text
            continue
        try:
            values[key] = OmegaConf.to_container(OmegaConf.from_cli([argument]))[key]  # type: ignore[index,call-overload]
        except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
            raise ValueError(f"{shown(argument)[1:-1]}: {' '.join(str(error).split())[:200]}") from None
    missing = [f.name for f in known.values() if f.default is MISSING and f.name not in values]
    if missing:
        raise ValueError(f"{missing[0]}=... is missing; settings: {', '.join(known)}")
    return from_mapping(PrepareConfig, values, "")


@one_line_errors()
def main(arguments: list[str]) -> None:
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nsettings: {', '.join(f.name for f in fields(PrepareConfig))}")
        return
    rich.print(prepare(settings(arguments)).table())


if __name__ == "__main__":
    main(sys.argv[1:])
