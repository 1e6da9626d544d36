"""How texts are compared, one setting for all scores: sacrebleu's tokenizer, and whether case counts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Signature

from scaleformer.system.schema import OneOf, check_fields, from_mapping
from scaleformer.text.words import written_without_spaces

# Tokenizers that split words at spaces, or (flores200) serve languages of both kinds.
_SPACED = ("13a", "intl", "none", "flores200")
TOKENIZERS = ("auto", *_SPACED, "zh", "ja-mecab", "ko-mecab", "char")
# By ISO 639 code; sacrebleu's choice, and characters where it has none.
_LANGUAGES = {
    "zh": ("zh", "zho", "cmn", "yue"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod"),
}
_WANTED = {
    "ja-mecab": "pip install 'sacrebleu[ja]'",
    "ko-mecab": "pip install 'sacrebleu[ko]'",
    "flores200": "sacrebleu downloads its model at the first use, which needs a connection",
}


class _Cut:
    """A metric on the tokens of sacrebleu's BLEU tokenizer; its signature says so."""

    cut: Any = None

    def _preprocess_segment(self, sent: str) -> str:
        return super()._preprocess_segment(self.cut(sent))  # type: ignore[misc]

    def get_signature(self) -> Signature:
        signature = super().get_signature()  # type: ignore[misc]
        signature.update("tok", self.cut.signature())
        return signature


@dataclass(frozen=True)
class Metrics:
    """The group `metrics`.

    tokenize   one of sacrebleu's tokenizers for BLEU. Those for text without spaces (zh, ja-mecab, ko-mecab, char)
               split the words of chrF++ and TER too, and `tok:` in their signatures says so. "auto": the choice of
               `for_language`, 13a where the language is unknown
    lowercase  whether BLEU and chrF++ ignore case (TER always does)
    Raises ValueError for an unknown tokenizer, or one whose requirements are missing.
    """

    tokenize: Annotated[str, OneOf(TOKENIZERS)] = "auto"
    lowercase: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "metrics")
        try:
            self.bleu()
        except Exception as error:  # failed imports, downloads, dictionaries
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"metrics.tokenize is {self.tokenize}, which does not work here: {_WANTED.get(self.tokenize, reason)}; "
                "metrics.tokenize=char, 13a, zh and none need no installation"
            ) from error

    def for_language(self, code: str | None) -> Metrics:
        """`auto` replaced by the tokenizer of a language, by its code (zh, zh_CN, zho_Hans), None if unknown."""
        if self.tokenize != "auto":
            return self
        language = re.split(r"[-_.]", (code or "").lower())[0]
        return replace(self, tokenize=next((t for t, codes in _LANGUAGES.items() if language in codes), "13a"))

    def bleu(self, effective_order: bool = False) -> BLEU:
        """sacrebleu's BLEU. force: suppresses the warning about tokenized text, which does not change the score."""
        tokenize = "13a" if self.tokenize == "auto" else self.tokenize
        return BLEU(tokenize=tokenize, lowercase=self.lowercase, force=True, effective_order=effective_order)

    def chrf(self) -> CHRF:
        """sacrebleu's chrF++."""
        return self._cut(CHRF, word_order=2, lowercase=self.lowercase)

    def ter(self) -> TER:
        """sacrebleu's TER."""
        return self._cut(TER)

    @property
    def _spaced(self) -> bool:
        return self.tokenize in ("auto", *_SPACED)

    def _cut(self, kind: Any, **settings: Any) -> Any:
        if self._spaced:
            return kind(**settings)
        return type("Cut", (_Cut, kind), {"cut": self.bleu().tokenizer})(**settings)

    def check(self, references: Sequence[str]) -> None:
        """Raises ValueError where no reference has text; warns where the tokenizer takes clauses for words."""
        if not any(reference.strip() for reference in references):
            raise ValueError("the references are empty: there is nothing to score against")
        if self._spaced and written_without_spaces(references):
            what = "splits the words of chrF++ and TER" if self.tokenize == "flores200" else "splits words"
            warnings.warn(
                f"the references have no spaces, but metrics.tokenize={self.tokenize} {what} at spaces, so the scores "
                "mean little: set metrics.tokenize=zh, ja-mecab or char",
                stacklevel=3,
            )

    def __str__(self) -> str:
        return f"{self.tokenize}{', lower-cased' if self.lowercase else ''}"


def choose_metrics(
    run: Mapping[str, Any], settings: Mapping[str, Any], overrides: Sequence[str], language: str | None = None
) -> Metrics:
    """The metrics of `run`, with changes from the command line.

    `settings` is the composed group, `overrides` the command line: `metrics=lowercase` replaces the whole group,
    `metrics.tokenize=zh` only this setting. Raises ValueError for wrong settings.
    """
    keys = [override.split("=")[0].lstrip("+") for override in overrides]
    given = {key.removeprefix("metrics.") for key in keys if key.startswith("metrics.")}
    whole = dict(settings) if "metrics" in keys else {**run.get("metrics", {}), **{key: settings[key] for key in given}}
    return from_mapping(Metrics, whole, "metrics").for_language(language)
