"""Placeholders of programs in a source and its translation."""

from __future__ import annotations

import pytest

from scaleformer.text.placeholders import keeps_placeholders


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("%s of {x}", "{x} de %s", True),
        ("%s", "%s %s", False),
        ("{x}", "{y}", False),
        ("$1 file", "$1 fichero por $2", False),
        ("5 dollars", "$5", True),  # the source has no placeholder of this style
        (":name", ": name", False),
        ("<0>a</0>", "<0>b", False),
        ("__x__", "__y__", True),
        ("plain", "llano", True),
        ("See $t(common.name).", "Vea $t(common.name).", True),
        ("See $t(common.name).", "Vea $t(común.nombre).", False),
        ("@:common.hello there", "@:común.hola", False),
    ],
)
def test_what_the_source_has_is_kept(source: str, target: str, kept: bool) -> None:
    assert keeps_placeholders(source, target) is kept


@pytest.mark.parametrize(
    ("flag", "source", "target", "kept"),
    [
        ("c-format", "done", "100% de", False),
        ("c-format", "100%% done", "100%% de", True),
        ("objc-format", "%@", "%d", False),
        ("python-format", "%(a)s", "%(b)s", False),
        ("kde-format", "done", "100% de", True),
        ("qt-format", "%1", "%2", False),
        ("ruby-format", "%<a>d", "%<b>d", False),
        ("java-format", "{0,number}", "{0}", False),
        ("lisp-format", "~a", "~s", False),
        ("c-format", "__x__", "__y__", False),
        ("icu", "# {a}", "{a} #", True),
        ("icu", "{a}", "l'{a}", False),
        ("icu", "{a}", "l’{a}", True),
        ("icu", "'{'a'}'", "'{'b'}'", True),
    ],
)
def test_what_the_flag_says_is_kept(flag: str, source: str, target: str, kept: bool) -> None:
    assert keeps_placeholders(source, target, [flag]) is kept
