"""The synthetic corpus: its grammar and labels, derived independently from the text and the word lists."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from scaleformer.data.synthetic.corpus import Label, SyntheticConfig, generate
from scaleformer.data.synthetic.lexicon import (
    ADJECTIVE_ENDINGS,
    ADJECTIVE_PLURAL,
    ARTICLES,
    AUXILIARIES,
    CUES,
    PAST,
    PLURAL_ARTICLE,
    PRONOUN_FORMS,
    PRONOUNS,
    SOURCE_PLURAL,
    TARGET_PLURAL,
    TOPIC_MARKERS,
    VERB_ENDINGS,
    Lexicon,
)
from scaleformer.text.documents import Document

CONFIG = SyntheticConfig(train=150, valid=20, test=20)
LEXICON = Lexicon.build(CONFIG.language)
NOUNS = {noun.source: noun for noun in LEXICON.nouns}
TERMS = {term.source: term for term in LEXICON.terms}


class Reader:
    """Translates by rule, segment after segment, and notes what earlier segments decided."""

    def __init__(self) -> None:
        self.genders: dict[str, tuple[int, int]] = {}  # pronoun -> gender, segment of the topic
        self.choices: dict[str, tuple[int, int]] = {}  # term -> choice, segment of the latest cue

    def translate(self, index: int, source: str) -> tuple[str, list[Label]]:
        words = source.split(" ")
        assert words.pop() == "."
        labels = []
        adverb = next((a for a in LEXICON.adverbs if " ".join(words[: a.source.count(" ") + 1]) == a.source), None)
        if adverb:
            words = words[adverb.source.count(" ") + 1 :]
        plural = False
        if words[0] in PRONOUNS:
            gender, segment = self.genders[words.pop(0)]
            subject = PRONOUN_FORMS[gender]
            others = tuple(form for form in PRONOUN_FORMS if form != subject)
            labels.append(("pronoun", index - segment, subject, others))
        else:
            marker = words.pop(0) if words[0] in TOPIC_MARKERS else None
            subject, plural, gender = self.noun_phrase(words)
            if marker:
                self.genders[PRONOUNS[TOPIC_MARKERS.index(marker)]] = gender, index
        stem = words.pop()
        verb = next(v for v in LEXICON.verbs if stem in (v.source, v.source + PAST))
        place = ""
        if adposition := next((a for a in LEXICON.adpositions if a.source in words), None):
            place = f"{adposition.target} {self.noun_phrase(words)[0]}"
            assert words.pop(0) == adposition.source
        if words[0] in TERMS:
            term = TERMS[words.pop(0)]
            if words:
                self.choices[term.source] = CUES.index(words.pop(0)), index
            choice, segment = self.choices[term.source]
            object_ = term.targets[choice]
            if segment < index:
                labels.append(("term", index - segment, object_, (term.targets[1 - choice],)))
        else:
            object_ = self.noun_phrase(words)[0]
        assert words == []
        past = stem == verb.source + PAST
        finite = AUXILIARIES[plural] if past else verb.stem + VERB_ENDINGS[plural]
        last = verb.participle if past else verb.particle
        order = [adverb.target, finite, subject] if adverb else [subject, finite]
        target = " ".join(word for word in [*order, object_, place, last, "."] if word)
        return target, [Label(k, index, d, target.split().index(r), r, w) for k, d, r, w in labels]

    def noun_phrase(self, words: list[str]) -> tuple[str, bool, int]:
        adjective = next((a for a in LEXICON.adjectives if a.source == words[0]), None)
        if adjective:
            words.pop(0)
        word = words.pop(0)
        plural = word not in NOUNS
        noun = NOUNS[word.removesuffix(SOURCE_PLURAL) if plural else word]
        target = f"{PLURAL_ARTICLE if plural else ARTICLES[noun.gender]} {noun.target}{TARGET_PLURAL if plural else ''}"
        if adjective:
            target += f" {adjective.target}{ADJECTIVE_PLURAL if plural else ADJECTIVE_ENDINGS[noun.gender]}"
        return target, plural, noun.gender


@pytest.mark.parametrize("segments", [None, (60, 60)], ids=["trained lengths", "60 segments"])
def test_text_and_labels_follow_from_the_source(segments: tuple[int, int] | None) -> None:
    config = CONFIG if segments is None else replace(CONFIG, train=10, segments=segments)
    for document in generate(config, "train"):
        reader = Reader()
        found = []
        for index, (source, target) in enumerate(zip(document.source, document.target, strict=True)):
            expected, labels = reader.translate(index, source)
            assert target == expected
            found += labels
        assert list(document.labels) == found


def test_only_the_deciding_segment_decides() -> None:
    """Since the deciding segment: no other topic for that pronoun, no mention of that pronoun or term."""
    for document in generate(replace(CONFIG, segments=(40, 40)), "train", 20):
        for label in document.labels:
            words = [segment.split() for segment in document.source]
            between = {w for s in words[label.segment - label.distance + 1 : label.segment] for w in s}
            own, deciding = set(words[label.segment]), set(words[label.segment - label.distance])
            if label.kind == "pronoun":
                chain = next(c for c, pronoun in enumerate(PRONOUNS) if pronoun in own)
                assert TOPIC_MARKERS[chain] in deciding
                assert not {TOPIC_MARKERS[chain], PRONOUNS[chain]} & between
            else:
                term = next(t for t in TERMS.values() if t.source in own)
                assert term.source in deciding
                assert deciding & set(CUES)
                assert term.source not in between
                assert not own & set(CUES)


def test_terms_keep_their_translation_within_a_document_and_vary_between() -> None:
    choices: dict[str, set[int]] = {source: set() for source in TERMS}
    for document in generate(replace(CONFIG, segments=(40, 40)), "train", 30):
        text = " ".join(document.target).split()
        for term in TERMS.values():
            used = {choice for choice in (0, 1) if term.targets[choice] in text}
            assert len(used) < 2
            choices[term.source] |= used
    assert all(used == {0, 1} for used in choices.values())


def test_contrast_and_forms() -> None:
    for document in generate(CONFIG, "valid"):
        for label in document.labels:
            segment = document.target[label.segment]
            assert segment.split().count(label.right) == 1
            assert not set(segment.split()) & set(label.wrong)
            assert 1 <= label.distance <= min(CONFIG.max_distance, label.segment)
            for text, wrong in zip(label.contrast(segment), label.wrong, strict=True):
                assert text.split()[label.word] == wrong
                assert text.replace(wrong, label.right) == segment


def test_all_distances_and_answers_occur() -> None:
    labels = [label for d in generate(SyntheticConfig(), "train", 1000) for label in d.labels]
    for kind in ("pronoun", "term"):
        distances = Counter(label.distance for label in labels if label.kind == kind)
        assert set(distances) == set(range(1, 9))
        assert distances[1] > distances[8] > 5
    forms = Counter(label.right for label in labels if label.kind == "pronoun")
    assert set(forms) == set(PRONOUN_FORMS)
    assert max(forms.values()) < 1.4 * min(forms.values())


def text_of(documents: list[Document]) -> str:
    return "\n".join(document.to_json() for document in documents)


def test_same_text_on_every_machine_and_python() -> None:
    """The digest was taken once: the numbers of the pages hold only for these very documents."""
    digest = hashlib.sha256(text_of(list(generate(CONFIG, "test"))).encode()).hexdigest()
    assert digest[:16] == "a56fd4eb259f0fbe"


def test_splits_and_seeds_differ_and_counts_extend() -> None:
    train, valid, test = (list(generate(CONFIG, split)) for split in ("train", "valid", "test"))
    assert [len(train), len(valid), len(test)] == [150, 20, 20]
    long = {segments for d in train if len(segments := d.source) > 1}
    assert not long & {d.source for d in (*valid, *test)}
    assert list(generate(CONFIG, "test", 30))[:20] == test
    assert list(generate(SyntheticConfig(seed=2), "test", 20)) != test
    assert {len(d.source) for d in train} == set(range(1, 13))


def test_words_are_distinct() -> None:
    for seed in range(3):
        lexicon = Lexicon.build(seed)
        source = [n.source + s for n in lexicon.nouns for s in ("", SOURCE_PLURAL)]
        source += [v.source + s for v in lexicon.verbs for s in ("", PAST)]
        source += [a.source for a in lexicon.adjectives] + [t.source for t in lexicon.terms]
        source += [w for p in (*lexicon.adverbs, *lexicon.adpositions) for w in p.source.split()]
        source += [*TOPIC_MARKERS, *PRONOUNS, *CUES]
        target = [n.target + s for n in lexicon.nouns for s in ("", TARGET_PLURAL)]
        target += [v.stem + s for v in lexicon.verbs for s in VERB_ENDINGS] + [v.participle for v in lexicon.verbs]
        target += [v.particle for v in lexicon.verbs if v.particle]
        target += [a.target + s for a in lexicon.adjectives for s in (*ADJECTIVE_ENDINGS, ADJECTIVE_PLURAL)]
        target += [t for term in lexicon.terms for t in term.targets]
        target += [w for p in (*lexicon.adverbs, *lexicon.adpositions) for w in p.target.split()]
        target += [*ARTICLES, PLURAL_ARTICLE, *PRONOUN_FORMS, *AUXILIARIES]
        for words in (source, target):
            assert all(one != other for one, other in pairwise(sorted(words)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segments": (0, 3)}, "segments"),
        ({"segments": (4, 3)}, "segments"),
        ({"max_distance": 0}, "max_distance"),
        ({"topics": 1.5}, "topics"),
        ({"test": 0}, "test"),
    ],
    ids=["none", "swapped", "distance", "share", "no documents"],
)
def test_settings_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=rf"data\.synthetic\.{message} is "):
        SyntheticConfig(**options)  # type: ignore[arg-type]


def test_unknown_split() -> None:
    with pytest.raises(ValueError, match="the synthetic corpus has train, valid, test"):
        next(generate(CONFIG, "dev"))
