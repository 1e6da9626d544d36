"""Settings of filters: what `prepare` leaves out, and what `inspect` says that it would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from scaleformer.system.schema import Range, Share

#: What a filter has where it is on without a value of its own, in the order in which filters are applied.
USUAL: dict[str, Any] = {
    "duplicates": 5,
    "leakage": 0.2,
    "script": True,
    "language": True,
    "repetition": True,
    "copies": True,
    "mojibake": True,
    "ratio": 4.0,
    "alignment": 0.5,
}
RAW = ("script", "language", "repetition")  # on for format=raw


@dataclass(frozen=True)
class FilterConfig:
    """Filters by name; conf/commands/prepare.yaml says what each means. None is on with `usual`, else off."""

    usual: bool = False
    duplicates: Annotated[int, Range(ge=2)] | bool | None = None
    leakage: Share | bool | None = None
    script: bool | None = None
    language: bool | None = None
    repetition: bool | None = None
    copies: bool | None = None
    mojibake: bool | None = None
    ratio: Annotated[float, Range(ge=1)] | bool | None = None
    alignment: Share | bool | None = None
    scorer: str | None = None
    score: float = 0.5
    segments: Literal["drop", "unaligned"] = "drop"
    documents: Share = 0.5

    def __post_init__(self) -> None:
        if not (self.scorer or "").strip() and (self.scorer is not None or self.score != FilterConfig.score):
            raise ValueError("filters.score needs filters.scorer, a command that gives each segment a number")

    def active(self, raw: bool = False) -> dict[str, Any]:
        """The filters that are on, with their values, in order; "score" has (scorer, score). raw: with those of `RAW`
        unless they are false."""
        found: dict[str, Any] = {}
        for name, usual in USUAL.items():
            value = getattr(self, name)
            if value is None:
                value = self.usual or (raw and name in RAW)
            if value is not False:
                found[name] = usual if value is True else value
        return found | ({"score": (self.scorer, self.score)} if self.scorer is not None else {})
