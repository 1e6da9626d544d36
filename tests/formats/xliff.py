"""XLIFF files for tests."""

from __future__ import annotations

ONE = """<?xml version='1.0' encoding="UTF-8" standalone='no'?>
<!-- a comment --><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:f="urn:f">
<file original='a.html' source-language="en" target-language="es" datatype="x"><body>{}</body></file></xliff>
"""
TWO = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="es">
 <file id="f1"><unit id="u">{}</unit></file>
</xliff>"""


def one(*units: str) -> str:
    return ONE.format("".join(units))


def two(*segments: str) -> str:
    return TWO.format("".join(segments))


def unit(source: str, target: str = "", attributes: str = "") -> str:
    return f"<trans-unit id='1'{attributes}><source>{source}</source>{target}</trans-unit>"


#: sources with the inline elements of each version
INLINE_1 = (
    'See <g id="1" ctype="bold">the <x id="2"/>big</g> <bpt id="3" rid="9">&lt;b&gt;</bpt>file<ept id="4" rid="9">'
    '&lt;/b&gt;</ept> <bx id="5"/>and<ex id="5"/> <ph id="6">{0}</ph>, <it id="7" pos="open">x</it> '
    '<mrk mtype="term">word</mrk> <mrk mtype="protected">Kept <x id="8"/></mrk> <f:other>raw</f:other> end.'
)
INLINE_2 = (
    'See <pc id="1">the <ph id="2"/>big</pc> <sc id="3"/>file<ec startRef="3"/> <cp hex="0007"/> and '
    '<mrk id="m1" type="term">word</mrk> <sm id="m2" type="x"/>here<em startRef="m2"/> <mrk id="m3" translate="no">Kept'
    "</mrk> end."
)
