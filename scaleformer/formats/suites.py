"""Published contrastive test suites, in the layouts of their repositories, as examples for `scaleformer context`.

contrapro  [Müller 2018] English-German pronouns; also the French set in that layout [Lopes 2020]
bawden     [Bawden 2018] discourse-mt-test-sets: English-French anaphora and lexical choice
voita      [Voita 2019] good-translation-wrong-in-context: English-Russian deixis, ellipsis, lexical cohesion
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

SUITES = ("contrapro", "bawden", "voita")
EQUAL = "wrong translations that equal the right one"
CONTEXTS = "examples whose right and wrong translations have different contexts"
NO_WRONG = "examples without a wrong translation"
NO_DOCUMENT = "examples whose document is not there"
OTHER_TEXT = "examples whose document has another sentence there"
_KINDS: dict[str, Callable[[Any], bool]] = {  # what a value may have to be
    "a text": lambda value: isinstance(value, str) and value != "",
    "a whole number, 0 or more": lambda value: str(value).isdecimal(),
    "the previous sentence and the sentence itself": lambda value: (
        isinstance(value, list) and [*map(type, value)] == [str, str]
    ),
}


@dataclass(frozen=True)
class SuiteExample:
    """A segment with its context, right translation and wrong translations; distance: segments back to the deciding
    word."""

    id: str
    kind: str
    distance: int
    source_context: tuple[str, ...]
    source: str
    target_context: tuple[str, ...]
    right: str
    wrong: tuple[str, ...]

    def to_json(self) -> str:
        """The example as a line that `scaleformer context input=FILE` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Documents:
    """The documents that the contrapro examples come from: FOLDER/.../NAME.SOURCE and NAME.TARGET, line by line, as its
    script extracts them; context: segments to keep before an example, None for all."""

    folder: str
    source: str = "en"
    target: str = "de"
    context: int | None = None


def read_suite(
    suite: str, name: str, dropped: Counter[str], documents: Documents | None = None
) -> Iterator[SuiteExample]:
    """The examples of a suite, from a file or (bawden, voita) a folder of files; omitted ones are counted.

    documents: required for contrapro. Raises DataError for files that are not in the suite's layout.
    """
    path = Path(name)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .json files: wanted the folder of the {suite} suite")
    for file in files:
        content = _content(file)
        if suite == "contrapro":
            assert documents is not None
            yield from _contrapro(content, str(file), documents, dropped)
        elif suite == "bawden":
            yield from _bawden(content, file, dropped)
        else:
            yield from _voita(content, file, dropped)


def _contrapro(content: Any, where: str, documents: Documents, dropped: Counter[str]) -> Iterator[SuiteExample]:
    """A list of {"document id", "segment id" (a line, from 1), "src segment", "ref segment", "src pronoun",
    "ref pronoun", "ante distance", "errors": [{"contrastive"}, ...]} and more."""
    read = _library(documents)
    for number, entry in enumerate(_list(content, where)):
        at = f"{where}[{number}]"
        source, right = (_text(entry, key, at) for key in ("src segment", "ref segment"))
        wrong = [_text(error, "contrastive", at) for error in _list(_value(entry, "errors", at), at)]
        name = _text(entry, "document id", at).removesuffix(f".{documents.target}")
        sides = read(name)
        if sides is None:
            dropped[NO_DOCUMENT] += 1
            continue
        line = _whole(entry, "segment id", at)
        # the French set counts from 0
        place = next((i for i in (line - 1, line) if 0 <= i < len(sides[0]) and _same(sides[0][i], source)), None)
        if place is None:
            dropped[OTHER_TEXT] += 1
            continue
        first = 0 if documents.context is None else max(0, place - documents.context)
        pronouns = ":".join(_text(entry, key, at).lower() for key in ("src pronoun", "ref pronoun"))
        found = SuiteExample(
            f"{name}/{line}/{number}", pronouns, _whole(entry, "ante distance", at),
            tuple(sides[0][first:place]), source, tuple(sides[1][first:place]), right, tuple(wrong),
        )  # fmt: skip
        yield from _checked(found, dropped)


def _bawden(content: Any, path: Path, dropped: Counter[str]) -> Iterator[SuiteExample]:
    """{"1": {"src": [before, it], "trg": [{"correct" or "semi-correct": [before, it], "incorrect": ...}, ...]}}, or
    {"1": {"type", "examples": [{"src", "trg": {"correct", "incorrect"}}, ...]}} for lexical choice."""
    if not isinstance(content, dict):
        raise DataError(f"{path}: a JSON {type(content).__name__}, wanted an object of numbered blocks")
    for number, block in content.items():
        at = f"{path}[{shown(number)}]"
        if isinstance(block, dict) and "examples" in block:
            kind = f"lexical choice: {_text(block, 'type', at)}"
            entries = [(e, _value(e, "trg", at), kind) for e in _list(block["examples"], at)]
        else:
            found = _list(_value(block, "trg", at), at)
            entries = [(block, e, "anaphora" if "correct" in e else "anaphora, semi-correct") for e in found]
        for n, (entry, target, kind) in enumerate(entries, 1):
            source = _pair(entry, "src", at)
            right = _pair(target, "correct" if "correct" in target else "semi-correct", at)
            wrong = _pair(target, "incorrect", at)
            if right[0] != wrong[0]:
                dropped[CONTEXTS] += 1
                continue
            name = f"{path.stem}/{number}/{n}"
            example = SuiteExample(name, kind, 1, (source[0],), source[1], (right[0],), right[1], (wrong[1],))
            yield from _checked(example, dropped)


def _voita(content: Any, path: Path, dropped: Counter[str]) -> Iterator[SuiteExample]:
    """A list of {"src", "dst": [translations], "true_ind", "ctx_dist"}, their sentences separated by `_eos`."""
    for number, entry in enumerate(_list(content, str(path)), 1):
        at = f"{path}[{number}]"
        source = _sentences(_text(entry, "src", at))
        texts = _list(_value(entry, "dst", at), at)
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"{at}: 'dst' is not a list of texts")
        targets, true = [_sentences(text) for text in texts], _whole(entry, "true_ind", at)
        if not 0 <= true < len(targets):
            raise DataError(f"{at}: 'true_ind' is {true}, but 'dst' has {len(targets)} translations")
        if other := next((t for t in targets if len(t) != len(source)), None):
            raise DataError(f"{at}: {len(source)} sentences in 'src', {len(other)} in one of 'dst'")
        if len({target[:-1] for target in targets}) > 1:
            dropped[CONTEXTS] += 1
            continue
        wrong = tuple(target[-1] for i, target in enumerate(targets) if i != true)
        name, distance = f"{path.stem}/{number}", _whole(entry, "ctx_dist", at)
        sides = source[:-1], source[-1], targets[true][:-1], targets[true][-1]
        yield from _checked(SuiteExample(name, path.stem, distance, *sides, wrong), dropped)


def _library(documents: Documents) -> Callable[[str], tuple[list[str], list[str]] | None]:
    """Reads the documents of a folder by name."""
    folder, ending = Path(documents.folder), f".{documents.source}"
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder: wanted the documents that ContraPro's script extracts")
    files = {path.name.removesuffix(ending): path for path in folder.rglob(f"*{ending}")}
    if not files:
        raise DataError(f"{folder}: no documents: wanted NAME{ending} and NAME.{documents.target} in it or below")

    @lru_cache(maxsize=32)
    def read(name: str) -> tuple[list[str], list[str]] | None:
        if (source := files.get(name)) is None:
            return None
        target = source.with_name(f"{name}.{documents.target}")
        first, second = ([line.strip() for _, line in read_lines(path)] for path in (source, target))
        if len(first) != len(second):
            raise DataError(f"{source}: {len(first)} lines, but {target.name} has {len(second)}: align them")
        return first, second

    return read


def _checked(example: SuiteExample, dropped: Counter[str]) -> Iterator[SuiteExample]:
    """The example with distinct wrong translations; nothing if none is left."""
    wrong = tuple(text for text in dict.fromkeys(example.wrong) if text != example.right)
    if example.right in example.wrong:
        dropped[EQUAL] += example.wrong.count(example.right)
    if wrong:
        yield SuiteExample(**{**vars(example), "wrong": wrong})
    else:
        dropped[NO_WRONG] += 1


def _same(first: str, second: str) -> bool:
    """Whether two sentences have the same letters and digits: quotation marks and spaces differ between versions."""
    return re.findall(r"\w", first.casefold()) == re.findall(r"\w", second.casefold())


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(" _eos "))


def _content(path: Path) -> Any:
    try:
        return json.loads("\n".join(line for _, line in read_lines(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: malformed JSON ({error})") from None


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{where}: a JSON {type(value).__name__}, wanted a list")
    return value


def _value(entry: Any, key: str, where: str, wanted: str = "") -> Any:
    """A value of an entry, of `_KINDS` if one is wanted, texts without space around them."""
    if not isinstance(entry, dict) or key not in entry:
        present = ", ".join(list(entry)[:12]) if isinstance(entry, dict) else type(entry).__name__
        raise DataError(f"{where}: no {key!r} (present: {present or '-'}): not the layout of the suite")
    value = entry[key].strip() if isinstance(entry[key], str) else entry[key]
    if wanted and not _KINDS[wanted](value):
        raise DataError(f"{where}: {key!r} is {shown(entry[key])}, wanted {wanted}")
    return value


def _text(entry: Any, key: str, where: str) -> str:
    return str(_value(entry, key, where, "a text"))


def _whole(entry: Any, key: str, where: str) -> int:
    return int(_value(entry, key, where, "a whole number, 0 or more"))


def _pair(entry: Any, key: str, where: str) -> list[str]:
    return [text.strip() for text in _value(entry, key, where, "the previous sentence and the sentence itself")]
