"""Trained tokenizers, kept by the content that they were trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import sentencepiece as spm
from filelock import FileLock

from scaleformer.data.errors import cache_errors
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.system.files import replaced

_CACHE_VERSION = 3


def cached_tokenizer(
    texts: Iterable[str],
    name: str,
    config: TokenizerConfig,
    cache_dir: str | Path,
    tags: Sequence[str] = (),
    terms: bool = False,
) -> Tokenizer:
    """Train on `texts`, with pieces for tags and terms, unless a model for the same is kept in `cache_dir`/tokenizers.

    name: stands for the content of the texts (a fingerprint), so that kept models are found without reading these.
    Written beside and renamed: never half a file.
    One process alone trains while others wait. Raises ValueError as `Tokenizer.train`, DataError when the cache cannot
    be written; a kept file that is damaged is made again.
    """
    settings = {k: v for k, v in asdict(config).items() if k not in ("joint", "sample_alpha", "max_segments", "extend")}
    key = [_CACHE_VERSION, spm.__version__, settings, config.max_segments, name, *([list(tags)] if tags else [])]
    key += ["terms"] * terms
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    path = Path(cache_dir) / "tokenizers" / f"{digest.hexdigest()[:32]}.model"
    if (kept := _kept(path)) is not None:
        return kept
    with cache_errors(path.parent):
        locks = Path(cache_dir) / "locks"
        for needed in (path.parent, locks):
            needed.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{path.name}.lock"):  # several processes of a machine would each take all its memory
            if (kept := _kept(path)) is not None:
                return kept
            tokenizer = Tokenizer.train(texts, **settings, tags=tags, terms=terms)
            with replaced(path) as temporary:
                temporary.write_bytes(tokenizer.proto)
    return tokenizer


def _kept(path: Path) -> Tokenizer | None:
    """The tokenizer in a file, None where there is none or it is damaged."""
    with suppress(OSError, ValueError):
        return Tokenizer.from_proto(path.read_bytes())
    return None
