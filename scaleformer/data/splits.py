"""The splits of a corpus, read, tokenized and encoded on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from scaleformer.data.augment.masking import Masking
from scaleformer.data.config import DataConfig, MissingSplit
from scaleformer.data.corpora import DocumentStream, load_split
from scaleformer.data.cutting import Cutting
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.encoding_cache import cached_encoding
from scaleformer.data.sources import SplitSource, segmentation, split_sources
from scaleformer.data.synthetic.corpus import generate
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.data.tokenizer_import import tagged
from scaleformer.data.tokenizer_text import train_tokenizers
from scaleformer.text.documents import Document
from scaleformer.vocabulary import tag_name


class EncodedSplits:
    """The documents, tokenizers and token ids of a corpus; everything is lazy.

    tokenizers: (source, target) models, as from a checkpoint; otherwise trained on the training split and cached.
    """

    def __init__(
        self,
        config: DataConfig,
        tokenizer: TokenizerConfig | None = None,
        tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    ) -> None:
        super().__init__()  # for the other base classes
        self.config = config
        self.tokenizer_config = tokenizer or TokenizerConfig()
        self._tokenizers = tokenizers
        self._corpora: dict[str, Sequence[Document]] = {}
        self._encoded: dict[str, EncodedCorpus] = {}
        self._fingerprints: dict[str, str] = {}

    @cached_property
    def sources(self) -> dict[str, SplitSource]:
        """The splits that exist. Raises DataError like `split_sources`."""
        return split_sources(self.config)

    def source(self, split: str) -> SplitSource:
        """The source of a split; raises DataError with the existing splits if there is no such split."""
        if split not in self.sources:
            raise MissingSplit(f"{self.config.place}: no {split!r} split; present: {', '.join(self.sources)}")
        return self.sources[split]

    def documents(self, split: str) -> Sequence[Document]:
        """The whole documents of a split (a single jsonl file also has "all"). Raises DataError for bad input."""
        if split not in self._corpora:
            source = self.source(split)
            if source.synthetic is not None:
                self._corpora[split] = list(generate(source.synthetic, split))  # an Arrow file would lose the labels
            else:
                self._corpora[split] = load_split(source, self.config.cache_dir)
        return self._corpora[split]

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """(source, target); the same object if joint."""
        if self._tokenizers is None:
            config, fingerprint = self.tokenizer_config, self._fingerprint("train")
            where = self.config.cache_dir, self.config.tags
            self._tokenizers = train_tokenizers(self._readable("train"), fingerprint, config, *where)
        if self._tokenizers[0].imported and not self._tokenizers[0].prefix and not self.config.parts:
            self._tokenizers = tagged(*self._tokenizers, self.config.tag)
        return self._tokenizers

    @property
    def tag(self) -> int | None:
        """The id of the corpus's tag. Raises ValueError if the vocabulary has no such piece."""
        if self.config.tag is None or self.source_tokenizer.imported:
            return None
        name, known = tag_name(self.config.tag), self.source_tokenizer.tags
        if name not in known:
            there = f"its tags are {', '.join(known)}" if known else "it has no tags"
            raise ValueError(f"data.tag={name}: the vocabulary that training starts with has no such piece: {there}")
        return known[name]

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[1]

    @property
    def cutting(self) -> Cutting:
        return Cutting(**{field.name: getattr(self.config, field.name) for field in fields(Cutting)})

    def encoded(self, split: str) -> EncodedCorpus:
        """The token ids of a split, cached by content hash."""
        if split not in self._encoded:
            where: tuple[Any, ...] = (self.config.cache_dir, self.config.num_proc)
            fingerprint = self._fingerprint(split)
            if split == "train" and self._masking is not None:
                fingerprint, where = f"{fingerprint} {self._masking.key}", (*where, self._masking)
            corpus = cached_encoding(self._readable(split), fingerprint, *self.tokenizers, *where)
            self._encoded[split] = replace(corpus, tag=self.tag)
        return self._encoded[split]

    @property
    def _masking(self) -> Masking | None:
        return Masking(self.config.mask_spans, self.config.seed) if self.config.mask_spans else None

    def _readable(self, split: str) -> Iterable[Document]:
        """The documents of a split; each iteration reads from the start, and nothing is kept in memory."""
        return self.documents(split) if self.source(split).synthetic is not None else DocumentStream(self.source(split))

    def fingerprint(self, splits: Iterable[str] | None = None) -> dict[str, str]:
        """sha256 of each split's files and of the settings that determine its documents, for some splits or all. Raises
        DataError for a split that does not exist or cannot be read."""
        return {split: self._fingerprint(split) for split in (self.sources if splits is None else splits)}

    def _fingerprint(self, split: str) -> str:
        if split not in self._fingerprints:
            self._fingerprints[split] = self.source(split).fingerprint()
        return self._fingerprints[split]

    @property
    def segmentation(self) -> dict[str, str | None]:
        """Grain and languages of segments, where known (`scaleformer.data.sources.segmentation`) and corpora agree."""
        first, *others = map(segmentation, self.config.parts.values() or [self.config])
        return {name: value if all(own[name] == value for own in others) else None for name, value in first.items()}
