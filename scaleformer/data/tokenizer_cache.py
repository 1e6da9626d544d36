"""A cache of trained tokenizers by the content of their training text."""

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
    """Train on `texts`, with pieces for tags and terms, unless `cache_dir`/tokenizers already has the same model.

    name: a fingerprint of the texts, so that a cached model is found without reading them.
    The file is written completely or not at all. One process trains while others wait. A damaged file is made again.
    Raises ValueError like `Tokenizer.train`, and DataError if the cache cannot be written.
    """
    settings = {k: v for k, v in asdict(config).items() if k not in ("joint", "max_segments", "extend")}
    key = [_CACHE_VERSION, spm.__version__, settings, config.max_segments, name, list(tags), terms]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    path = Path(cache_dir) / "tokenizers" / f"{digest.hexdigest()[:32]}.model"
    if (kept := _kept(path)) is not None:
        return kept
    with cache_errors(path.parent):
        locks = Path(cache_dir) / "locks"
        for needed in (path.parent, locks):
            needed.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{path.name}.lock"):  # several trainings at once could exhaust the memory
            if (kept := _kept(path)) is not None:
                return kept
            tokenizer = Tokenizer.train(texts, **settings, tags=tags, terms=terms)
            with replaced(path) as temporary:
                temporary.write_bytes(tokenizer.proto)
    return tokenizer


def _kept(path: Path) -> Tokenizer | None:
    """The tokenizer in a file, None if there is none or it is damaged."""
    with suppress(OSError, ValueError):
        return Tokenizer(path.read_bytes())
    return None
