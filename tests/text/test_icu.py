"""Where the text of ICU messages stands, by hand."""

from __future__ import annotations

import pytest

from scaleformer.text.icu import inner_messages


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", [""]),
        ("It's {name}, {n, number} and 'quoted'", ["It's {name}, {n, number} and 'quoted'"]),
        ("{n, plural, one {# file} other {# files}}", ["# file", "# files"]),
        ("{ n,selectordinal,offset:1 =1{first}two {#nd} }.", ["first", "#nd"]),
        ("{g, select, a {{n, plural, other {x}}} other {y}}", ["x", "y"]),
        ("{n, plural, other {it's '{'not'}' {k} ''{x}''}} ", ["it's '{'not'}' {k} ''{x}''"]),
        ("{a, select, other {x}} {b, select, other {y}}", ["x", "y"]),
        ("You have {n, plural, other {#}}", None),
        ("{n, plural, other {#}} files", None),
        ("{a, select, other {all {n, plural, other {#}}}}", None),
        ("{n, plural, other {#}", None),
        ("{n, plural, other {#}}}", None),
        ("{n, plural, other # {x}}", None),
        ("{n, plural, other {x} y}", None),
        ("{0,choice,0#no files|1#one file}", None),
    ],
)
def test_messages_by_hand(text: str, messages: list[str] | None) -> None:
    places = inner_messages(text)
    assert (places if places is None else [text[slice(*place)] for place in places]) == messages


@pytest.mark.parametrize(
    "part", ["{", "}", "'{", "''", "{n, plural,", "{n, plural, other {", "{n, plural, other {x}} ", "{ "]
)
def test_hostile_messages_take_linear_time(part: str) -> None:
    text = part * 20_000
    assert all(0 <= start <= stop <= len(text) for start, stop in inner_messages(text) or [])
