"""Codes of languages: those of ISO 639, with a region or script after them, such as en, pt-BR or tlh."""

from __future__ import annotations

import re

TWO_LETTERS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_CODE = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*")


def base_language(code: str) -> str:
    """The language of a code without region and script, in small letters: "pt" of "pt-BR" and "pt_BR"."""
    return re.split("[-_]", code, maxsplit=1)[0].lower()


def is_code(code: str) -> bool:
    """Whether a text is a code of ISO 639: two letters, or any three."""
    base = base_language(code)
    return bool(_CODE.fullmatch(code)) and (len(base) == 3 or base in TWO_LETTERS.split())


def check_code(name: str, code: str) -> None:
    """Raise ValueError unless the code, a setting of this name, is one of ISO 639: two letters, or three."""
    if not is_code(code):
        raise ValueError(f"{name} is {code!r}: it must be a code of ISO 639, such as en, de or pt-BR")
