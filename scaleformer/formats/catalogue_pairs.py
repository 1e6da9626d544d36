"""Translation memories (TMX) and XLIFF 1.x and 2, read as a stream: a unit is a segment.

translate-toolkit interprets the states and texts of a unit. The parser uses lxml with its limits on: no entity is
expanded, nothing outside the file is read, and files that declare entities are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from scaleformer.formats.lines import opened
from scaleformer.formats.rows import Row, brief, some
from scaleformer.formats.toolkit import one_segment, toolkit
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_EQUIVALENTS = ("equiv-text", "equiv", "disp")  # XLIFF attributes with the text of an empty inline element
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, name: str, languages: tuple[str | None, str | None], dropped: Counter[str]) -> Iterator[Row]:
    """The units of a memory as rows of the document `name`.

    languages: of source and target; "en" also matches "en-XX"; None: srclang of the header or the unit, and the only
    other language of a unit. Units without both are left out and counted. Raises DataError with file and line.
    """
    unit_class = toolkit("tmx", path).tmxunit
    default: str | None = None
    for event, element in _elements(path, "tmx", ("header", "tu")):
        if _name(element) == "header":
            default = element.get("srclang")
        elif event == "end":
            where = f"{path}:{element.sourceline}"
            unit = unit_class.createfromxmlElement(element)
            unit.namespace = etree.QName(element).namespace
            source, target = _pair(unit, languages, element.get("srclang", default), where, dropped)
            if source and target:
                yield Row(where, name, (source,), (target,))
            else:
                dropped["without a text in both languages"] += 1


def _pair(
    unit: Any, languages: tuple[str | None, str | None], default: str | None, where: str, dropped: Counter[str]
) -> tuple[str, str]:
    texts: dict[str, str] = {}
    for node in unit.getlanguageNodes():
        language = _normal(node.get(_LANG) or node.get("lang") or "")
        text = unit.getNodeText(node)
        if text is None or not language:
            raise DataError(f"{where}: a <tuv> without {'xml:lang' if text else '<seg>'}")
        if language in texts:
            dropped["a second text in a language"] += 1
        texts.setdefault(language, one_segment(text))
    source = _chosen(texts, languages[0] or default or "")
    if source is None and languages[0] is None and _normal(default or "*all*") == "*all*":
        raise DataError(f"{where}: no srclang names the source language: set source_language=")
    others = {language: text for language, text in texts.items() if language != source}
    target = _chosen(others, languages[1]) if languages[1] else next(iter(others), None)
    if not languages[1] and len(others) > 1:
        raise DataError(f"{where}: texts in {some(texts)}: choose one with target_language=")
    return texts.get(source or "", ""), others.get(target or "", "")


def _chosen(texts: dict[str, str], language: str) -> str | None:
    """The key of a language, else of its first regional variant."""
    language = _normal(language)
    return language if language in texts else next((key for key in texts if key.startswith(f"{language}-")), None)


def _normal(language: str) -> str:
    return language.strip().replace("_", "-").lower()


def read_xliff(path: Path, name: str, dropped: Counter[str]) -> Iterator[Row]:
    """The translated units (1.x) or segments (2) of a file as rows, with a document for each <file> element.

    Left out and counted: units that are untranslated, fuzzy (in a state before "translated"), or marked as not
    translatable. Inline codes become their text, or their declared equivalent if they are empty. Raises DataError with
    file and line.
    """
    classes = toolkit("xliff", path).Xliff1Unit, toolkit("xliff2", path).Xliff2Unit
    document = name
    for event, element in _elements(path, "xliff", ("file", "trans-unit", "unit")):
        if _name(element) == "file":
            document = f"{name}/{element.get('original') or element.get('id') or ''}".rstrip("/")
            continue
        if event == "start":
            continue
        two = _name(element) == "unit"
        for part in element.iterchildren("{*}segment") if two else (element,):
            where = f"{path}:{part.sourceline}"
            unit = classes[two].createfromxmlElement(part)
            unit.namespace = etree.QName(part).namespace
            _show_codes(part, where)
            source, target = unit.source, unit.target
            if source is None:
                raise DataError(f"{where}: a unit without <source>")
            if not unit.istranslatable():
                dropped["not to be translated"] += 1
            elif not (one_segment(source) and one_segment(target or "")):
                dropped["untranslated"] += 1
            elif unit.isfuzzy() if two else _is_draft(unit):
                dropped["fuzzy"] += 1
            else:
                yield Row(where, document, (one_segment(source),), (one_segment(target),))


def _is_draft(unit: Any) -> bool:
    """Whether an XLIFF 1.x unit says that its translation is not ready. The toolkit treats every unapproved unit as
    fuzzy, but most files record no approval."""
    target = unit.target_dom
    state = unit.statemap.get(target.get("state"), unit.S_TRANSLATED)
    return state < unit.S_TRANSLATED or target.get("state-qualifier") == "fuzzy-match"


def _show_codes(element: etree._Element, where: str) -> None:
    """Fill empty inline elements with their equivalents."""
    for node in element.iter("{*}x", "{*}ph", "{*}cp"):
        if node.text or len(node):
            continue
        if _name(node) == "cp":  # a character that XML cannot hold
            raise DataError(f"{where}: <cp> stands for a control character, which is not text: remove it")
        codes = [node.get(key) for key in _EQUIVALENTS]
        if (reference := node.get("dataRef")) is not None:  # XLIFF 2: the code itself is stored next to the segments
            data = element.getparent().iterfind("{*}originalData/{*}data")
            codes = [*(code.text for code in data if code.get("id") == reference), *codes]
        node.text = next(filter(None, codes), None)


def _elements(path: Path, root: str, names: tuple[str, ...]) -> Iterator[tuple[str, etree._Element]]:
    """The start and end events of the named elements; each element is emptied after its end."""
    with opened(path, root) as stream:
        try:
            events = etree.iterparse(
                stream,
                events=("start", "end"),
                resolve_entities=False,
                load_dtd=False,
                no_network=True,
                huge_tree=False,
                remove_comments=True,
                remove_pis=True,
            )
            for event, element in events:
                if element.getparent() is None and event == "start":
                    _check_root(element, root, path)
                if _name(element) not in names:
                    continue
                for entity in element.iter(etree.Entity) if event == "end" else ():
                    raise DataError(
                        f"{path}:{element.sourceline}: the entity {brief(entity.text)} is not defined in XML"
                    )
                yield event, element
                if event == "end":
                    _forget(element)
        except etree.XMLSyntaxError as error:
            reason = (error.msg or "empty file").rsplit(", line ", 1)[0]
            raise DataError(f"{path}:{error.lineno or 1}: malformed XML ({brief(reason)})") from None
        except LookupError as error:
            raise DataError(f"{path}: malformed XML ({brief(error)})") from None


def _check_root(element: etree._Element, root: str, path: Path) -> None:
    if _name(element) != root:
        raise DataError(f"{path}:{element.sourceline}: <{brief(_name(element))}>, wanted <{root}>")
    doctype = element.getroottree().docinfo.internalDTD
    if doctype is not None and (entity := next(doctype.iterentities(), None)) is not None:
        raise DataError(
            f"{path}: declares the entity {shown(entity.name)}: entities are not expanded, write out their text"
        )


def _forget(element: etree._Element) -> None:
    """Free an element and those before it: a file may be larger than the machine's memory."""
    parent = element.getparent()
    element.clear(keep_tail=False)
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def _name(element: etree._Element) -> str:
    return etree.QName(element).localname
