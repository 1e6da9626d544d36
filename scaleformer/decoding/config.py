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
#: How documents are translated: as a whole, each segment on its own, or so first and then each after those before it.
Mode = Literal["document", "segment", "two-pass"]
#: Most tokens of a piece of a document that is translated separately: at least a token, `<sep>` and `</s>`.
MaxTokens = Annotated[int, Range(ge=3)]


@dataclass(frozen=True)
class DecodingConfig:
    """How to search.

    strategy           greedy | beam | sample
    beam_size          live and kept hypotheses of a document (beam)
    length_penalty     alpha in score = log-probability / length ** alpha, length with `</s>`. The plain power of
                       [Koehn & Knowles 2017] and fairseq; [Wu 2016, eq. 14] has ((5 + length) / 6) ** alpha, the same
                       order of merit but for very short outputs. 0 ranks by probability alone, 1 by the mean. Fixed
                       segments and given beginnings count in neither
    n_best             hypotheses returned of each document; with `sample` independent samples
    max_length_ratio,  a target has at most floor(ratio * source tokens) + offset tokens. Source tokens are all that the
    max_length_offset  model reads (`<sep>` and `</s>` too), target tokens all that it writes. The same holds of each
                       segment's text, `<sep>` apart, so that no segment eats up the room of others: a segment has at
                       most what its own source segment allows with match_segments, else what the longest one does
    match_segments     every segment of the source is translated, none twice, and no `</s>` is written before: nothing
                       is left out at the end; a source without `<sep>` asks for nothing
    merge_segments     whether a target segment may translate several source segments, where the model can say so; false
                       keeps headings, items and cells apart
    no_repeat_ngram_size
                       no n-gram of so many tokens is written twice in the same segment; segments may repeat each other;
                       0 for no such rule
    min_length_ratio   a segment has at least floor(ratio * tokens of its own source segment) tokens before a separator,
                       with match_segments; 0 for no such rule
    repetition_penalty logits of tokens that the segment at hand has already are divided by it, negative ones multiplied
                       [Keskar 2019]: in the choice of tokens and the score, not in log-probabilities; 1 for none
    temperature        logits are divided by it (sample)
    top_k, top_p       only the k most probable tokens; only the smallest set with mass p [Holtzman 2020] (sample);
                       0 and 1 leave all
    seed               of the sampling
    batch_tokens       source tokens with pads in a batch of the translator, times the rows a document
    memory_limit       what a batch may need beside the model, "2GiB" say, in the place of batch_tokens wherever whole
                       documents, pieces or segments are translated. The state of a linear attention does not grow with
                       what is written: long documents stand beside each other then. None: by batch_tokens
    """

    strategy: Strategy = "beam"
    beam_size: Positive = 5
    length_penalty: Annotated[float, Range(ge=0, le=10)] = 1.0
    n_best: Positive = 1
    max_length_ratio: Annotated[float, Range(ge=0)] = 2.0
    max_length_offset: Positive = 10
    match_segments: bool = True
    merge_segments: bool = True
    no_repeat_ngram_size: Annotated[int, Range(ge=0, le=100)] = 0
    min_length_ratio: Annotated[float, Range(ge=0)] = 0.0
    repetition_penalty: Annotated[float, Range(ge=1, le=100)] = 1.0
    temperature: Annotated[float, Range(ge=1e-6)] = 1.0
    top_k: Natural = 0
    top_p: Annotated[float, Range(gt=0, le=1)] = 1.0
    seed: Natural = 1
    batch_tokens: Positive = 8192
    memory_limit: str | int | None = None

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
    def rows(self) -> int:
        """K, the rows that one document takes."""
        return {"greedy": 1, "beam": self.beam_size, "sample": self.n_best}[self.strategy]

    def limit(self, tokens: Tensor) -> Tensor:
        """The most target tokens for so many source tokens."""
        return (tokens.double() * self.max_length_ratio).floor().long() + self.max_length_offset


def choose_decoding(run: DecodingConfig, settings: Mapping[str, Any], overrides: Sequence[str]) -> DecodingConfig:
    """The settings of the model's own run, but for what the command line says.

    `settings` is the composed group, `overrides` the command line: `decoding=beam` takes the whole group,
    `decoding.beam_size=5` this one setting. Raises ValueError for one that the search does not read.
    """
    keys = [override.split("=")[0].lstrip("+") for override in overrides]
    given = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    whole = settings if "decoding" in keys else {**asdict(run), **{key: settings[key] for key in given}}
    chosen = from_mapping(DecodingConfig, whole, "decoding")
    chosen.refuse_unread(sorted(given), "decoding.")
    return chosen
