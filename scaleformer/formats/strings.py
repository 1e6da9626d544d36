"""Strings of programs, read and written by translate-toolkit: properties, iOS, Android, .NET, ARB, JSON, YAML and Qt.

A file with one text for each key gets the translation in its place, a Qt file in the place for it. The toolkit writes
a file anew, so its output says only how the texts are encoded: they are put into the file as it was.
"""

from __future__ import annotations

import importlib
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from scaleformer.formats.blocks import CHOICES
from scaleformer.formats.markup import decode_xml
from scaleformer.formats.po import message_blocks
from scaleformer.formats.printf import translated
from scaleformer.formats.recognition import FORMATS, LANGUAGE
from scaleformer.formats.restoring import Change
from scaleformer.formats.rows import brief
from scaleformer.formats.splicing import ANEW, BEGIN, END, decode, encode, placed
from scaleformer.system.errors import DataError

_CLASSES = {  # for `getclass` of the toolkit, which by itself knows bilingual files only
    "android": ("aresource", "AndroidResourceFile"),
    **dict.fromkeys(("arb", "json"), ("jsonl10n", "JsonNestedFile")),
    "properties": ("properties", "propfile"),
    "qt": ("ts2", "tsfile"),
    "resx": ("resx", "RESXFile"),
    "strings": ("properties", "stringsutf8file"),
    "yaml": ("yaml", "YAMLFile"),
}
_LANGUAGES = {  # where a file names its language
    "arb": re.compile(r'(?<="@@locale")(\s*:\s*")[\w-]+(?=")'),
    "yaml": re.compile(  # the only key that is not indented
        rf"(\A(?:[ \t]*(?:#[^\r\n]*)?\r?\n)*[\"']?){LANGUAGE.pattern}"
        r"(?=[\"']?:[ \t]*(?:#[^\r\n]*)?(?:\r?\n(?:[ \t#-][^\r\n]*)?)+\Z)"
    ),
}
_BEGIN_OF_YAML = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?\r?\n)*---[ \t]*(?:#[^\r\n]*)?\r?\n")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_NO_PROSE = re.compile(r"[@?][\w.:+]+/[\w.]+|")  # Android's names of other texts


class _Text(NamedTuple):
    """A text, its unit of the toolkit, what stands in the places for its translation, and its flags as of PO; doubled:
    whether apostrophes are written twice there, as in Java's messages with arguments."""

    source: str
    unit: Any
    places: list[str]
    flags: frozenset[str] = frozenset()
    doubled: bool = False


class StringsFile:
    """The texts of a file in order; language: of the translation, if it is known, which ARB and YAML name; written: of
    a Qt file the translations, not what has none. Raises DataError if that is no table of texts, or lacks the toolkit.
    """

    def __init__(self, content: bytes, name: str, format: str, language: str = "", written: bool = False) -> None:
        self._raw, self._name, self._format = content, name, format
        self._language, self._written = language, written
        self.left: Counter[str] = Counter()
        text, self._encoding = (decode_xml if format in ("android", "qt", "resx") else decode)(content, name)
        if format == "properties" and content.isascii():
            self._encoding = "us-ascii"  # every program reads its escapes
        text = text.removeprefix("\ufeff")
        begin = _BEGIN_OF_YAML.match(text) if format == "yaml" else None  # which the toolkit drops
        self._head, self._content = text[: begin.end() if begin else 0], text[begin.end() if begin else 0 :]
        self._texts = self._read(self._content, self.left)[1]
        found = [message_blocks(text.source, text.flags) for text in self._texts]
        self.left += Counter({CHOICES: found.count(None), "units without words": found.count([])})
        self._blocks = [blocks or [] for blocks in found]
        self.blocks = [block for blocks in self._blocks for block in blocks]

    def _read(self, content: str, left: Counter[str]) -> tuple[Any, list[_Text]]:
        """A store of the toolkit with this content, and its texts."""
        try:
            getclass = importlib.import_module("translate.storage.factory").getclass
            store: Any = getclass(self._name, localfiletype=self._format, classes_str=_CLASSES)()
            store.detect_encoding = lambda text, *_, **__: (text.decode(self._encoding), self._encoding)  # no guesses
            if self._format == "yaml":
                store.dump_args["width"] = 1 << 30
            elif self._format in ("arb", "json"):
                store.dump_args["ensure_ascii"] = content.isascii() and "\\u" in content
                store.get_root_node = lambda: store._file  # with all that is no text
            store.parse(content.encode(self._encoding))
            return store, list(self._find(store, left))
        except Exception as error:  # the readers have no common class of errors
            reason = "pip install 'scaleformer[strings]'" if isinstance(error, ImportError) else brief(error)
            wanted = f"{self._name}: cannot be read as {FORMATS[self._format].title}"
            raise DataError(f"{wanted}: {reason or type(error).__name__}") from None

    def _find(self, store: Any, left: Counter[str]) -> Iterator[_Text]:
        for unit in _UNITS.get(self._format, lambda store: store.units)(store):
            source = _joined(str(unit.source or ""))
            if self._format == "qt":
                forms = [node.text or "" for node in unit.xmlelement.iter("{*}numerusform")]
                places = forms if unit.hasplural() else [unit.target]
                if unit.isobsolete() or not places or any(places) != self._written:
                    left["units that are translated, obsolete or lack their plural forms"] += 1
                else:
                    yield _Text(places[0] if self._written else source, unit, places)
            elif not _NO_PROSE.fullmatch(source) and not (self._format == "yaml" and source in ("True", "False")):
                doubled = self._format == "properties" and "{0" in source and "'" not in source.replace("''", "")
                flags = frozenset(["xml-format"] if self._format == "android" and len(unit.xmlelement) else [])
                yield _Text(source.replace("''", "'") if doubled else source, unit, [source], flags, doubled)

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the translations of the changed blocks."""
        rest, texts = iter(changes), dict[int, str | None]()
        for number, (text, blocks) in enumerate(zip(self._texts, self._blocks, strict=True)):
            some = [next(rest) for _ in blocks]
            filled = {"python-brace-format" if "{}" in text.source else "c-format"}  # %2$s is known wherever %s is
            new = translated(text.source, blocks, some, filled, self.left) if any(some) else None
            if new is not None:
                texts[number] = new.replace("'", "''") if text.doubled else new
        if not texts:
            return self._raw
        try:
            plain, marked = self._rewritten(texts), self._rewritten(dict.fromkeys(texts))
        except UnicodeError:
            raise DataError(f"{self._name}: {self._encoding} lacks a character of its translation: use UTF-8") from None
        content = placed(self._content, marked, plain, self.left)
        if not self._same(content, plain):
            self.left[ANEW] += 1
            content = plain
        if 0 < self._content.count("\n") == self._content.count("\r\n"):  # the toolkit may have lost them
            content = re.sub(r"(?<!\r)\n", "\r\n", content)
        if self._language and (pattern := _LANGUAGES.get(self._format)):
            content = pattern.sub(rf"\g<1>{self._language}", content, count=1)
        return self._raw[: 3 * self._raw.startswith(BOM_UTF8)] + encode(self._head + content, self._encoding)

    def _same(self, *contents: str) -> bool:
        with suppress(DataError):
            first, second = ([one._replace(unit=None) for one in self._read(text, Counter())[1]] for text in contents)
            return first == second
        return False

    def _rewritten(self, texts: Mapping[int, str | None]) -> str:
        """The file as the toolkit writes it with these texts; None: with what stands there, between two marks."""
        store, found = self._read(self._content, Counter())
        if hasattr(store, "dump_args"):  # all others stay, also what is no text
            store.units = [found[number].unit for number in texts]
        for number, text in texts.items():
            if text and self._encoding == "us-ascii":  # in two escapes
                text = _ASTRAL.sub(lambda m: chr(0xD7C0 + (ord(m[0]) >> 10)) + chr(0xDC00 + (ord(m[0]) & 0x3FF)), text)
            unit, kind = found[number].unit, type(found[number].unit.target)  # YAML has its quotes there
            core = re.compile(r"(?s)\A(\s*)(.*?)(\s*)\Z").sub
            values = [text or core(rf"\1{BEGIN}\2{END}\3", old) for old in found[number].places]
            unit.target = kind(values if hasattr(unit.target, "strings") else values[0])
        return bytes(store).decode(self._encoding).replace("\r\n", "\r\n" if "\r\n" in self._content else "\n")


def _joined(text: str) -> str:
    """A text whose characters beyond U+FFFF were written as two escapes."""
    with suppress(UnicodeDecodeError):
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    return text


def _of_android(store: Any) -> Iterator[Any]:
    """Single texts, each plural form and each item of an array, which the toolkit does not have."""
    for element in store.body.iterchildren("string", "plurals", "string-array"):
        for child in [element] if element.tag == "string" else element.iterchildren("item"):
            unit = store.UnitClass(None, xmlelement=child)
            unit._store, unit.SINGULAR_TAG = store, child.tag
            if element.get("translatable") != "false":
                yield unit


def _of_json(store: Any) -> Iterator[Any]:
    """All but what is said of texts. Raises ValueError if that is no object of texts, nested or not."""
    if not isinstance(store._file, dict):
        raise ValueError('wanted an object, such as {"greeting": "Hello"}')
    texts = [value for key, value in store._file.items() if not key.startswith("@")]
    both = ("message", "defaultMessage")  # of WebExtension and FormatJS, which have descriptions as well
    keys = [key for key in both if all(isinstance(one, dict) and key in one for one in texts)]
    for unit in store.units:
        path = [str(key) for _, key in unit.get_unitid().parts]
        if not any(key.startswith("@") for key in path) and (not keys or path[1:] == keys[:1]):
            if not isinstance(unit.source, str | None):
                raise ValueError(f"{'.'.join(path)} is {unit.source!r}, not a text")
            yield unit


def _of_net(store: Any) -> Iterator[Any]:
    """All but pictures, sizes and the like, and what designers of forms keep."""
    for unit in store.units:
        if not {"type", "mimetype"} & set(unit.xmlelement.keys()) and not unit.getid().startswith(">>"):
            yield unit


_UNITS = {"android": _of_android, "arb": _of_json, "json": _of_json, "resx": _of_net}
