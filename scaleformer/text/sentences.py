"""Where sentences end: the rules of sentencex, corrected by language.

The text that sentencex reads has the same length. A full stop that ends nothing is a comma there, and a word that
sentencex mistakes for an abbreviation has other letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import accumulate

import regex

from scaleformer.system.errors import DataError
from scaleformer.text.languages import base_language

_WINDOW = 2000  # characters to find sentences in
_CAPITAL = r"(?=\s+[¿¡«“„\"(\[]*\p{Lu})"
# Abbreviations before a name, by language; "" for all.
_BEFORE_NAMES = {
    "": r"Dr|Drs|Mr|Mrs|Ms|Prof|St|Gen|Lt|Bros|vs?|\p{Lu}\.-\p{Lu}",  # J.-C. Martin
    "cs": "p|pí|sl|dr|[Ii]ng|[Mm]gr|prof|doc|(?:MU|JU|Ph|RN)Dr|Bc|sv|ul|gen|např|tzv|tj|mj",
    "de": r"(?i:de[mnrs]|das|die|[ai]m|vom|zum|zur|beim|ab)\s\d{1,3}",  # an ordinal
    "es": "Sra?|Sres|Srta|Dra|D|Dña|Lic|Ing|St[oa]",
    "fr": "MM?|Mmes?|Mlles?|Pr|Me|Mgr|Ste|[Cc]f",
    "it": "[Ss]igg?|[Dd]ott|dr|prof|[Ii]ng|[Aa]vv|[Aa]rch|[Mm]ons|[Cc]fr|on|S",
    "pl": r"św|ks|prof|dr|mgr|inż|gen|płk|kpt|por|red|hab|ul|al|pl|im|bp|abp|kard|np|tzw|m\.in|paraf|nadkom|asp|woj",
    "pt": "Sra?|Dra|Profa?|D|R|Av|Eng|Exmo|St[oa]",
    "ru": r"(?<!\d\s?)г|ул|пр|акад|проф|им|св|гр|о",
    "sv": r"[Tt]\.ex|[Bb]l\.a|[Dd]\.v\.s|s\.k|dr|prof|hr",
}
# Abbreviations before a number.
_BEFORE_NUMBERS = {
    "": "arts?|artt|cap|chap|figs?|nr?|n[oº]|nos|nn|núm|pp?|pagg?|págs?|vols?|tab|tel|sec|ca|op",
    "cs": "č|str|čl|odst|s",
    "de": "S|Abs|Abb|Bd|Kap",
    "nl": "blz|hfst",
    "pl": "ust|godz|ok|poz|pkt|str|s|rys|zob|ul|tys",
    "ru": "стр|рис|гл|ст|п|с|табл|т|ок",
    "sv": "s|kl|kap",
}
# What ends a sentence before a capital letter, but is an abbreviation to sentencex.
_ENDINGS = {
    "de": "mich|ok|mag",
    "en": "me|no|ill|ok|etc",
    "es": "[Nn]o|bien|da|mar|contra|sobre|ante|tras|nos|auto|con|para|entre|etc|km|mm",
    "fr": r"etc|(?<=\ba(?:v|pr?)\.?\s)J\.-C",
    "it": "[Nn]o|su|fa|ma|sia|va|vi|mai|ore|radar|me|po|sa|si|lo|ci|mi|ne|via|li|fin|ce|se|etc|ecc|mq|[ckm]m|kg",
    "nl": "dat|top|me|pas|best|hand|it|ver",
    "pl": "it[pd]|dniem",
    "pt": "etc",
    "ru": r"др|т\.\s?[дпк]|мл?|мин|кг|сек|(?<=\d\s?)г",
    "sv": r"det|med|kan|hon|ut|del|ens|min|sen|ont|ord|etc|osv|m\.m",
}
# What begins a sentence, and is no name after an initial.
_STARTERS = (
    "The|This|That|These|It|She|They|You|If|But|And|Then|Il|Elles?|Ils|Nous|Vous|Cette|Ces|Dans|Pour|Mais|Une|Él|Ella|"
    "Ellos|Este|Esta|Estos|En|Por|Para|Pero|Algun[oa]s|Poi|Ma|Un|Una|Ele|Ela|Já|Em|Mas|Uma|Der|Das|Sie|Wir|Eine?|Dann|"
    "Diese|Het|Hij|Zij|Dit|Dat|Een|Jest|Ona|Он|Она|Они|Это|В|На"
)
_NOT_AFTER = r"(?<![\w.])"
_IN_NAMES = r"\p{Lu}\K\.(?=-\p{Lu}\.)"  # J.-C.
_INITIAL = rf"(?<![\w.°-]|\d\s|\p{{Lu}}\w*\s)\p{{Lu}}\K\.(?=\s+(?!(?:{_STARTERS})\b)\p{{Lu}})"
_BEFORE_SMALL = rf"{_NOT_AFTER}(?:\w{{1,5}}\.)*\w{{1,5}}\K\.(?=\s+\p{{Ll}})"  # t.ex. mellan
_ITEM = r"(?:^\W*|:\s+)(?:\d[\d.]*|\w)\K\.(?=\s)"
_NUMBER = regex.compile(r"[\W_]*(?:\w|\d[\d.]*|[IVXLC]+)\.\s*")  # of an item, "2. "
_APOSTROPHE = regex.compile(r"(?<=\w)'(?=\w)")  # sentencex takes text between two for a quotation
_OPENING = regex.compile(r'(?<=^|[\s(\[])"(?=[^\s"])')
_CLOSING = regex.compile(r'(?<=\S)"(?=$|[\s.,;:!?)\]])')
_OPENED = regex.compile(r"\s([\p{Ps}\p{Pi}„]+\s*)$")
_CLOSED = regex.compile(r"(?<=\S)[)\]”»]+\s*")


def sentence_ends(prose: str, language: str) -> Iterator[int]:
    """Where the sentences of a text end, with the white space after them; the last end is that of the text.

    language: a code such as "en" or "pt-BR". Raises DataError if sentencex is not installed.
    """
    language = base_language(language)
    legible = _legible(prose, language)
    start = 0
    for end in _ends_in_windows(legible, language):
        if end < len(prose):
            if opened := _OPENED.search(legible[max(start, end - 9) : end]):
                end -= len(opened[1])
            elif closed := _CLOSED.match(legible, end):
                end = closed.end()
        last, following = legible[end - 1 : end], legible[end : end + 1]
        within = last == "." and (following.isalnum() or following in tuple("-,;:/"))
        if start < end < len(prose) and not within and not _NUMBER.fullmatch(prose, start, end):
            yield end
            start = end
    if prose:
        yield len(prose)


@cache
def _corrections(language: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Patterns of full stops that end nothing, and of words that end a sentence."""
    names, numbers = (
        "|".join(table[name] for name in ("", language) if name in table) for table in (_BEFORE_NAMES, _BEFORE_NUMBERS)
    )
    stops = [
        rf"{_NOT_AFTER}(?:{names})\K\.{_CAPITAL}",
        rf"{_NOT_AFTER}(?i:{numbers})\K\.(?=\s*(?:\d|[IVXLC]+\b))",
        _ITEM,
        _IN_NAMES,
        *([] if language == "en" else [_INITIAL]),  # sentencex knows more of English
    ]
    endings = rf"{_NOT_AFTER}(?:{_ENDINGS[language]})(?=\.{_CAPITAL})" if language in _ENDINGS else r"(?!)"
    return regex.compile("|".join(stops)), regex.compile(endings)


def _legible(prose: str, language: str) -> str:
    """The text for sentencex, of the same length."""
    stops, endings = _corrections(language)
    prose = regex.sub(r"[^\S\p{ASCII}]", " ", prose)  # after some signs it takes a space for one byte, and panics
    prose = _CLOSING.sub("”", _OPENING.sub("“", _APOSTROPHE.sub("\u2019", prose)))
    prose = endings.sub(lambda found: found[0][: len(found[0]) > 1] + "q" * max(1, len(found[0]) - 1), prose)
    prose = stops.sub(",", prose)
    cased = language != "en" and regex.search(r"\p{Lu}", prose)
    return regex.sub(_BEFORE_SMALL, ",", prose) if cased else prose


def _ends_in_windows(prose: str, language: str) -> Iterator[int]:
    """Where sentences end, by sentencex. Its time grows with the cube of a paragraph, so it reads long ones in windows;
    what it says of the end of a window is not believed, but read again from the last sentence or the middle on."""
    try:
        import sentencex
    except ImportError:
        message = "split=sentence needs sentencex: pip install 'scaleformer[documents]' (or split=paragraph)"
        raise DataError(message) from None
    start = 0
    while len(prose) - start > _WINDOW:
        found = list(accumulate(map(len, sentencex.segment(language, prose[start : start + _WINDOW]))))[:-1]
        yield from (start + end for end in found)
        middle = prose.find(" ", start + _WINDOW // 2, start + _WINDOW) + 1 or start + _WINDOW // 2
        start = max(middle, start + found[-1]) if found else middle
    yield from (start + end for end in accumulate(map(len, sentencex.segment(language, prose[start:]))))
