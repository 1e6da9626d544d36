"""Watches the loss: skips steps with a NaN or infinite loss or gradient, and warns of spikes."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from pytorch_lightning.utilities import rank_zero_only

log = logging.getLogger(__name__)

SPIKE = 6.0  # standard deviations above the mean loss
MEMORY = 0.98  # decay of that mean and deviation in a step
CALM = 50  # steps before spikes are reported


class StepGuard:
    """Counts steps skipped because their loss or gradients were NaN or infinite, and watches for spikes.

    max_bad_steps  bad steps in a row that are tolerated; one more ends the training
    skipped        bad steps since the run began
    """

    def __init__(self, max_bad_steps: int = 10) -> None:
        self.max_bad_steps = max_bad_steps
        self.skipped = 0
        self.in_a_row = 0
        self.spikes = 0
        self._mean = self._square = 0.0
        self._steps = 0

    def bad(self, step: int, loss: float, norm: float, ids: Sequence[str], largest: str) -> None:
        """Count a bad step. After too many, raises ValueError naming step, documents and gradients."""
        self.skipped += 1
        self.in_a_row += 1
        what = f"step {step:,}: loss {loss:.4g}, gradient norm {norm:.4g}; documents {name_documents(ids)}"
        if self.in_a_row > self.max_bad_steps:
            raise ValueError(
                f"{what}; largest gradients: {largest}. {self.in_a_row} such steps in a row, more than "
                f"callbacks.max_bad_steps={self.max_bad_steps}; the last checkpoint is from before this step: start a "
                "new run with a lower optimizer.learning_rate, or look for the cause with resume= and "
                "trainer.detect_anomaly=true"
            )
        _warn(f"{what}: skipped ({self.in_a_row} in a row)")

    def good(self, step: int, loss: float, ids: Sequence[str]) -> None:
        """Record a loss; warn where it is far above the recent ones."""
        self.in_a_row = 0
        deviation = math.sqrt(max(self._square - self._mean**2, 0.0))
        if self._steps >= CALM and loss > self._mean + SPIKE * max(deviation, 1e-3 * abs(self._mean)):
            self.spikes += 1
            place = f"{self._mean:.4g} +- {deviation:.2g}"
            _warn(f"step {step:,}: loss {loss:.4g} is far above the recent {place}; documents {name_documents(ids)}")
        # plain averages of the first steps, then over about 1 / (1 - MEMORY) steps
        keep = min(self._steps / (self._steps + 1), MEMORY)
        self._mean = keep * self._mean + (1 - keep) * loss
        self._square = keep * self._square + (1 - keep) * loss**2
        self._steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in _STATE:
            setattr(self, name, state[name])


@rank_zero_only
def _warn(message: str) -> None:
    log.warning(message)


_STATE = ("skipped", "in_a_row", "spikes", "_mean", "_square", "_steps")


def name_documents(ids: Sequence[str], count: int = 8) -> str:
    """The first names, and how many more there are."""
    more = len(ids) - count
    return ", ".join(ids[:count]) + (f" and {more} more" if more > 0 else "") if ids else "unknown"
