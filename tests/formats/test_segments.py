"""Segments of blocks with placeholders, and their restored translations, against values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.formats.blocks import Block, BlockBuilder
from scaleformer.formats.segments import Segment, split_block


def block(text: str) -> Block:
    """A block from text in which [ ... ] is a pair and ^ a single span."""
    builder = BlockBuilder()
    open_pairs: list[int] = []
    for place, character in enumerate(text):
        if character == "[":
            open_pairs.append(place)
            builder.span(f"<{place}>", place, place + 1, place, True)
        elif character == "]":
            pair = open_pairs.pop() if open_pairs else -place
            builder.span(f"</{pair}>", place, place + 1, pair)
        elif character == "^":
            builder.span(f"({place})", place, place + 1)
        else:
            builder.text(character, place)
    built = builder.build()
    assert built is not None
    return built


def only(text: str) -> Segment:
    [segment] = split_block(block(text), "en", "paragraph")
    return segment


@pytest.mark.parametrize(
    ("text", "grain", "wanted"),
    [
        ("One two. Three four.", "sentence", ["One two.", "Three four."]),
        ("One two. Three four.", "paragraph", ["One two. Three four."]),
        ("[All of it.] And [more] of it^.", "sentence", ["All of it.", "And ⟨1⟩more⟨2⟩ of it⟨3⟩."]),
        ("[One. Two.] Three.", "sentence", ["One.", "Two.", "Three."]),
        ("a [b [c]] d", "sentence", ["a ⟨1⟩b ⟨2⟩c⟨3⟩ d"]),
        ("^ 12 ^", "sentence", None),
        ("  spaced \n out  ", "sentence", ["spaced out"]),
        ("^ is a name", "sentence", ["⟨1⟩ is a name"]),
        ("One two.^ Three four.", "sentence", ["One two.⟨1⟩", "Three four."]),
        ("It defaults to ^. Policies need it.", "sentence", ["It defaults to ⟨1⟩.", "Policies need it."]),
        ("\xa0Apart [by these]\xa0", "sentence", ["Apart ⟨1⟩by these⟨2⟩"]),
    ],
)
def test_what_a_model_reads(text: str, grain: str, wanted: list[str] | None) -> None:
    if wanted is None:
        assert BlockBuilder().build() is None
        builder = BlockBuilder()
        builder.text("12 !", 0)
        assert builder.build() is None
    else:
        assert [segment.text for segment in split_block(block(text), "en", grain)] == wanted


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a <b>c</b> d <br/> e", [True, True, False]),
        ("a **b** c __d__", [True] * 4),
        ("see [it `x`](u.md) there", [True, False, True]),
        ("a </i> b <i>", None),
        ("a <b>c <i>d</b> e", [True, False, True]),
    ],
)
def test_tags_and_marks_in_prose_are_pairs(text: str, pairs: list[bool] | None) -> None:
    builder = BlockBuilder()
    builder.text(text, 0)
    built = builder.build()
    assert built is not None
    assert [span.pair is not None for span in built.spans] == (pairs or [False] * len(built.spans))


def test_spans_of_a_text_to_train_on() -> None:
    builder = BlockBuilder("item")
    builder.text("See ", 0)
    builder.span("<b class='x'>", 4, 9, 1, True, shown="<b>")
    builder.text("it", 9)
    builder.span("</b>", 11, 15, 1)
    builder.text(" `a\n b` of \xa0this.", 15)
    built = builder.build()
    assert built is not None
    (segment,) = split_block(built, "en", "paragraph")
    assert segment.text == "See ⟨1⟩it⟨2⟩ ⟨3⟩ of \xa0this."
    assert segment.unmasked == "See <b>it</b> `a b` of \xa0this."
    assert built.kind == "item"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "Use `a. B` here. It isn't Mr. Smith. That's all.",
            ["Use `a. B` here.", "It isn't Mr. Smith.", "That's all."],
        ),
        ("**Bold one.** Then _two._ And *it ends.*", ["Bold one.", "Then _two._", "And *it ends.*"]),
        ("It ends. * Not this.", ["It ends.", "* Not this."]),
        (
            "You'll see ``'^'`` in it. This is one. It isn't ``'x'`` at all. The end.",
            ["You'll see ``'^'`` in it.", "This is one.", "It isn't ``'x'`` at all.", "The end."],
        ),
    ],
)
def test_sentences(text: str, wanted: list[str]) -> None:
    builder = BlockBuilder()
    builder.text(text, 0)
    built = builder.build()
    assert built is not None
    assert [segment.unmasked for segment in split_block(built, "en", "sentence")] == wanted


@given(
    text=st.text(st.sampled_from("aB1 .!?'`\"“”«»()。！\n\t\u00a0\u2029é日ক।؟")) | st.text(),
    language=st.sampled_from(["en", "es", "ja", "bn", "ar", "tlh"]),
)
@settings(max_examples=200, deadline=None)
def test_no_letter_is_lost(text: str, language: str) -> None:
    builder = BlockBuilder()
    builder.text(text, 0)
    built = builder.build()
    segments = split_block(built, language, "sentence") if built else []
    letters = [character for segment in segments for character in segment.text if character.isalpha()]
    assert letters == [character for character in (built.text if built else "") if character.isalpha()]


def test_origins_are_places_in_the_file() -> None:
    found = block("  ab \n [c] d.")
    assert found.text == "ab \ufffcc\ufffc d."
    assert [found.origin(i, i + 1) for i in range(5)] == [(2, 3), (3, 4), (4, 7), (7, 8), (8, 9)]
