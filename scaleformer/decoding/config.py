"""The settings of a search for translations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from scaleformer.system.measure import read_size

STRATEGIES = ("greedy", "beam", "sample")


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

    strategy: str = "beam"
    beam_size: int = 5
    length_penalty: float = 1.0
    n_best: int = 1
    max_length_ratio: float = 2.0
    max_length_offset: int = 10
    match_segments: bool = True
    merge_segments: bool = True
    no_repeat_ngram_size: int = 0
    min_length_ratio: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    batch_tokens: int = 8192
    memory_limit: str | int | None = None

    def __post_init__(self) -> None:
        wrong = [f"{name}={getattr(self, name)!r} (wanted {wanted})" for name, wanted in self._faults()]
        if wrong:
            raise ValueError(f"decoding settings are wrong: {'; '.join(wrong)}")

    def _faults(self) -> list[tuple[str, str]]:
        def number(name: str) -> bool:  # finite, and of 64 bits: what torch computes with
            value = getattr(self, name)
            return isinstance(value, (int, float)) and not isinstance(value, bool) and -(2**63) <= value < 2**63

        def whole(name: str) -> bool:
            return isinstance(getattr(self, name), int) and number(name)

        limit, size = self.memory_limit, self.memory_limit_bytes
        most = self.beam_size if self.strategy == "beam" else 1 if self.strategy == "greedy" else 2**31
        checks = [
            ("strategy", self.strategy in STRATEGIES, f"one of {', '.join(STRATEGIES)}"),
            ("beam_size", whole("beam_size") and self.beam_size >= 1, "a whole number of at least 1"),
            ("length_penalty", number("length_penalty") and 0 <= self.length_penalty <= 10, "a number from 0 to 10"),
            ("n_best", whole("n_best") and self.n_best >= 1, "a whole number of at least 1"),
            ("max_length_ratio", number("max_length_ratio") and self.max_length_ratio >= 0, "a number of at least 0"),
            ("max_length_offset", whole("max_length_offset") and self.max_length_offset >= 1, "1 or more"),
            ("match_segments", isinstance(self.match_segments, bool), "true or false"),
            ("merge_segments", isinstance(self.merge_segments, bool), "true or false"),
            (
                "no_repeat_ngram_size",
                whole("no_repeat_ngram_size") and 0 <= self.no_repeat_ngram_size <= 100,
                "a whole number from 1 to 100, 0 for no such rule",
            ),
            ("min_length_ratio", number("min_length_ratio") and self.min_length_ratio >= 0, "a number of at least 0"),
            (
                "repetition_penalty",
                number("repetition_penalty") and 1 <= self.repetition_penalty <= 100,
                "a number from 1, for none, to 100",
            ),
            ("temperature", number("temperature") and self.temperature >= 1e-6, "a number of at least 0.000001"),
            ("top_k", whole("top_k") and self.top_k >= 0, "a whole number, 0 for all"),
            ("top_p", number("top_p") and 0 < self.top_p <= 1, "a number above 0 and at most 1"),
            ("seed", whole("seed") and self.seed >= 0, "a whole number of at least 0"),
            ("batch_tokens", whole("batch_tokens") and self.batch_tokens >= 1, "a whole number of at least 1"),
            ("memory_limit", limit is None or size is not None, "a size as 2GiB or 512MiB, or null"),
        ]
        faults = [(name, wanted) for name, right, wanted in checks if not right]
        if not faults and self.n_best > most:
            faults.append(("n_best", f"at most {most} with strategy={self.strategy}"))
        if not faults and self.min_length_ratio and not self.match_segments:
            faults.append(("min_length_ratio", "0 with match_segments=false, which knows no segment's source"))
        return faults

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> DecodingConfig:
        """From a dictionary; ValueError names keys that do not exist."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(f"no such decoding setting: {', '.join(unknown)}; there are {', '.join(known)}")
        return cls(**settings)

    def refuse_unread(self, given: Iterable[str], prefix: str = "") -> None:
        """ValueError where the strategy does not read one of the settings `given`, called with `prefix` before their
        names. A beam of one is greedy search, and fits every strategy."""
        readers = {"beam_size": "beam", "temperature": "sample", "top_k": "sample", "top_p": "sample", "seed": "sample"}
        for name in given:
            reader = readers.get(name, self.strategy)
            if reader != self.strategy and (name, getattr(self, name)) != ("beam_size", 1):
                raise ValueError(
                    f"{prefix}{name}={getattr(self, name)}: the strategy is {self.strategy}, which has no "
                    f"{'beam' if reader == 'beam' else 'sampling'}: set {prefix}strategy={reader} too"
                )

    @property
    def memory_limit_bytes(self) -> int | None:
        """`memory_limit` as a number; None without, or where it is no size."""
        given = self.memory_limit
        return None if given is None or isinstance(given, (bool, float)) else read_size(given)

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
    chosen = DecodingConfig.from_mapping(whole)
    chosen.refuse_unread(sorted(given), "decoding.")
    return chosen
