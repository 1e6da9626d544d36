"""Serve a model over HTTP: translates documents and files, streams segments, and has a page for the browser.

scaleformer serve checkpoint=RUN [host=127.0.0.1] [port=8000]
scaleformer serve models={en-es: RUN, en-fr: RUN2}

docs/server.md describes the requests. Needs the extra `serve`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from scaleformer.decoding.config import choose_decoding
from scaleformer.system.files import check_file
from scaleformer.system.schema import Positive, Range
from scaleformer.translation.files.documents import Split
from scaleformer.translation.translator import Precision, Translator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/serve.yaml describes them."""

    checkpoint: str | None
    models: dict[str, str] | None
    host: str
    port: Annotated[int, Range(ge=0, le=65535)]
    token: str | None
    corrections: str | None
    origins: tuple[str, ...]
    per_minute: Positive | None
    body: Annotated[int, Range(ge=1000)]
    waiting: Annotated[int, Range(ge=1000)]
    longest: Annotated[int, Range(ge=10)]
    seconds: Annotated[float, Range(ge=1)]
    tag: str | None
    split: Split
    source_language: str | None
    device: str
    precision: Precision
    threads: Positive | None
    decoding: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    try:
        from scaleformer.server.app import make_app
        from scaleformer.server.corrections import Corrections
        from scaleformer.server.models import Model, parse_pair
        from scaleformer.server.run import is_loopback, open_socket, serve
        from scaleformer.server.service import Limits, Service
        from scaleformer.server.sources import Splitting
    except ModuleNotFoundError as error:
        raise ValueError(f"serving needs {error.name}: pip install 'scaleformer[serve]'") from None
    token = options.token or os.environ.get("SCALEFORMER_TOKEN") or None
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("token: wanted ASCII letters, digits and punctuation without spaces")
    if (options.checkpoint is None) == (not options.models):
        raise ValueError("wanted checkpoint=RUN for one model, or models={en-es: RUN, en-fr: RUN2} for several")
    if options.models and options.tag is not None:
        raise ValueError(f"tag={options.tag}: models= are chosen by their languages: leave it out")
    listener = open_socket(options.host, options.port)
    load = cache(lambda path: Translator.load(path, options.device, options.tag, precision=options.precision))
    models = []
    alone = options.checkpoint or ""
    for name, path in (options.models or {Path(alone).name: alone}).items():
        decoding = choose_decoding(load(path).decoding, options.decoding, given)
        models.append(Model(load(path), decoding, name, parse_pair(name) if options.models else None))
    if not is_loopback(options.host) and token is None:
        log.warning("host=%s: other machines can reach this server without a token: set token=", options.host)
    limits = Limits(options.body, options.waiting, options.longest, options.seconds, per_minute=options.per_minute or 0)
    check_file("corrections", options.corrections)
    corrections = None if options.corrections is None else Corrections(Path(options.corrections))
    splitting = Splitting(options.split, options.source_language)
    service = Service(models, limits, splitting, corrections)
    names = alone or ", ".join(model.name for model in models)
    serve(make_app(service, token, options.origins), service, listener, names)
