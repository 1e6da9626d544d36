"""The stages of a run, checked against its limits."""

from __future__ import annotations

from itertools import pairwise

import pytorch_lightning as pl

from scaleformer.data.config import DataConfig
from scaleformer.data.stages import check_clock, last_step
from scaleformer.system.schema import shown


def stage_notes(config: DataConfig, trainer: pl.Trainer) -> list[str]:
    """A line for the user on each stage. Raises ValueError where the end of one cannot be known, or one has no step."""
    most, notes = trainer.max_steps, []
    ends = [(stage.until, last_step(stage.until, most)) for stage in config.stage_settings if stage.until is not None]
    if shares := [until for until, step in ends if step is None]:
        what = f"data.stages: until={shares[0]} is a share of trainer.max_steps or trainer.max_time"
        mend = "give until in steps, set trainer.max_steps, or train without stages (data.stages=null)"
        check_clock(what, trainer, mend)
    # A share may leave a stage without a step in a run of one or two, which only tries a preset.
    steps = [(step, isinstance(until, int)) for until, step in ends if step is not None]
    steps = [(0, True), *steps, *([(most, True)] if most > 0 and ends else [])]
    wrong = (a > b or (a == b and exact and equal) for (a, exact), (b, equal) in pairwise(steps))
    if any(wrong) or any(a >= b for a, b in pairwise(until for until, _ in ends if isinstance(until, float))):
        limit = f", with trainer.max_steps={most}" if most > 0 else ""
        raise ValueError(
            f"data.stages: until is {', '.join(shown(until) for until, _ in ends)}{limit}: a stage would have no step: "
            "let each until be larger than the one before, and the last below the limit"
        )
    where = [f"to step {step:,}" if step is not None else f"to {until:.0%} of trainer.max_time" for until, step in ends]
    for number, (stage, end) in enumerate(zip(config.stages or (), [*where, "to the end"], strict=False), 1):
        given = ", ".join(f"{name}={value}" for name, value in stage.items() if name != "until")
        notes.append(f"stage {number}, {end}: {given or 'as in data'}")
    return notes
