"""String Catalogs of Xcode: JSON with each text in all languages. A translation is written beside the others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from scaleformer.formats.blocks import CHOICES
from scaleformer.formats.po import message_blocks
from scaleformer.formats.printf import translated
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import ANEW, decode
from scaleformer.system.errors import DataError


class CatalogFile:
    """The texts without a translation into a language, which gets the state "needs_review"; written: its translations.
    Raises DataError."""

    def __init__(self, content: bytes, name: str, language: str = "", written: bool = False) -> None:
        self._raw, self._language, self.left = content, language, Counter[str]()
        self._text, self._texts = decode(content, name)[0], list[tuple[str, str]]()
        try:
            catalog = json.loads(self._text)
            for key, entry in catalog["strings"].items():
                own = entry.get("localizations", {})
                unit = own.get(language if written else catalog["sourceLanguage"]) or {"stringUnit": {"value": key}}
                done = (language in own) != written or entry.get("shouldTranslate") is False
                single = set(unit) == {"stringUnit"}
                self.left += Counter({"units that are translated or stay": done, CHOICES: not done and not single})
                self._texts += [(key, str(unit["stringUnit"]["value"]))] if single and not done else []
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise DataError(f"{name}: not a String Catalog of Xcode: wanted sourceLanguage and strings") from None
        if not language:
            raise DataError(f"{name}: a String Catalog has many languages: name yours, such as target_language=es")
        found = [message_blocks(source, frozenset()) for _, source in self._texts]
        self.left += Counter({CHOICES: found.count(None), "units without words": found.count([])})
        self._blocks = [blocks or [] for blocks in found]
        self.blocks = [block for blocks in self._blocks for block in blocks]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the translations of the changed blocks."""
        rest, before = iter(changes), _laid_out(catalog := json.loads(self._text))
        for (key, source), blocks in zip(self._texts, self._blocks, strict=True):
            some = [next(rest) for _ in blocks]
            text = translated(source, blocks, some, {"c-format"}, self.left) if any(some) else None
            if text is not None:
                own = catalog["strings"][key].setdefault("localizations", {})
                added = {**own, self._language: {"stringUnit": {"state": "needs_review", "value": text}}}
                catalog["strings"][key]["localizations"] = dict(sorted(added.items()))
        if (after := _laid_out(catalog)) == before:
            return self._raw
        self.left += Counter({ANEW: before != self._text.strip()})
        return (after + self._text[len(self._text.rstrip()) :]).encode()


def _laid_out(catalog: object) -> str:
    text = json.dumps(catalog, ensure_ascii=False, indent=2, separators=(",", " : "))
    return re.sub(r"(?m)^( *)(.*)\{\}(,?)$", r"\1\2{\n\n\1}\3", text)  # as Xcode does
