"""The settings of a search for translations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from scaleformer.system.measure import read_size
from scaleformer.system.schema import Natural, Positive, Range, check_fields, from_mapping, shown

Strategy = Literal["greedy", "beam", "sample"]
#: How documents are translated: as a whole, or each segment on its own.
Mode = Literal["document", "segment"]
#: Whether documents are searched from drafts of their segments: greedily the same texts; beams by segment (`drafts`).
Draft = Literal["auto", "none", "segments"]
#: Whose words count where the model's state is like one there (`scaleformer.model.cache`).
Cache = Literal["fixed", "none"]
#: Most tokens of a piece of a document that is translated separately: at least a token, `<sep>` and `</s>`.
MaxTokens = Annotated[int, Range(ge=3)]


@dataclass(frozen=True)
class DecodingConfig:
    """How to search: `conf/decoding/beam.yaml` says what each setting means.

    score = log-probability / length ** length_penalty, lengths with `</s>`: the plain power of [Koehn & Knowles 2017]
    and fairseq. [Wu 2016, eq. 14] has ((5 + length) / 6) ** alpha, the same order of merit but for very short outputs.
    Fixed segments and forced prefixes count in neither.

    A target has at most floor(max_length_ratio * source tokens) + max_length_offset tokens, of all that the model reads
    and writes. The same holds of the text of each segment, `<sep>` apart, so that none eats up the room of others: by
    its own source segment with match_segments, else by the longest one. A source without `<sep>` has nothing to match.

    top_p is that of [Holtzman 2020].
    """

    strategy: Strategy = "beam"
    beam_size: Positive = 5
    length_penalty: Annotated[float, Range(ge=0, le=10)] = 1.0
    n_best: Positive = 1
    max_length_ratio: Annotated[float, Range(ge=0)] = 2.0
    max_length_offset: Positive = 10
    match_segments: bool = True
    merge_segments: bool = True
    loop_ngram_size: Annotated[int, Range(ge=0, le=100)] = 4
    min_length_ratio: Annotated[float, Range(ge=0)] = 0.0
    temperature: Annotated[float, Range(ge=1e-6)] = 1.0
    top_k: Natural = 0
    top_p: Annotated[float, Range(gt=0, le=1)] = 1.0
    seed: Natural = 1
    draft: Draft = "auto"
    cache: Cache = "fixed"
    batch_tokens: Positive = 8192
    memory_limit: str | float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "decoding")
        if self.memory_limit is not None and self.memory_limit_bytes is None:
            given = shown(self.memory_limit)
            raise ValueError(f"decoding.memory_limit is {given}: it must be a size as 2GiB or 512MiB, or null")
        most = {"greedy": 1, "beam": self.beam_size, "sample": math.inf}[self.strategy]
        if self.n_best > most:
            raise ValueError(
                f"decoding.n_best is {self.n_best}: it must be at most {most} with decoding.strategy={self.strategy}"
            )
        if self.draft == "segments" and not self.drafts:
            raise ValueError(
                "decoding.draft is segments: it must be auto or none unless decoding.strategy is greedy, or beam with "
                "n_best=1, match_segments=true and memory_limit=null"
            )
        if self.min_length_ratio and not self.match_segments:
            raise ValueError(
                f"decoding.min_length_ratio is {self.min_length_ratio}: it must be 0 with "
                "decoding.match_segments=false, which knows no segment's source"
            )

    def refuse_unread(self, given: Iterable[str], prefix: str = "") -> None:
        """ValueError where the strategy does not read one of the settings `given`, called with `prefix` before their
        names. A beam of one is greedy search, and fits every strategy."""
        readers = {"beam_size": "beam", "temperature": "sample", "top_k": "sample", "top_p": "sample", "seed": "sample"}
        for name in given:
            reader = readers.get(name, self.strategy)
            if reader != self.strategy and (name, getattr(self, name)) != ("beam_size", 1):
                raise ValueError(
                    f"{prefix}{name} is {getattr(self, name)}: the strategy is {self.strategy}, which has no "
                    f"{'beam' if reader == 'beam' else 'sampling'}: set {prefix}strategy={reader} too"
                )

    @property
    def memory_limit_bytes(self) -> int | None:
        """`memory_limit` as a number; None without, or where it is no size."""
        return None if self.memory_limit is None else read_size(self.memory_limit)

    @property
    def drafts(self) -> bool:
        """Whether documents may be searched from drafts."""
        one = self.strategy == "greedy" or (self.strategy == "beam" and self.n_best == 1)
        return self.draft != "none" and one and self.match_segments and self.memory_limit is None

    @property
    def rows(self) -> int:
        """K, the rows that one document takes."""
        return {"greedy": 1, "beam": self.beam_size, "sample": self.n_best}[self.strategy]

    def limit(self, tokens: Tensor) -> Tensor:
        """The most target tokens for so many source tokens."""
        return (tokens.double() * self.max_length_ratio).floor().long() + self.max_length_offset


def choose_decoding(
    run: DecodingConfig, settings: Mapping[str, Any], overrides: Sequence[str], seed: bool = False
) -> DecodingConfig:
    """The settings of the model's own run, but for what the command line says.

    `settings` is the composed group, `overrides` the command line: `decoding=beam` takes the whole group,
    `decoding.beam_size=5` this one setting, with `seed` also `seed=5`. Raises ValueError for one that is not read.
    """
    keys = [override.split("=")[0].lstrip("+") for override in overrides]
    given = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.") or (seed and key == "seed")}
    whole = settings if "decoding" in keys else {**asdict(run), **{key: settings[key] for key in given}}
    chosen = from_mapping(DecodingConfig, whole, "decoding")
    chosen.refuse_unread(sorted(given), "decoding.")
    return chosen
