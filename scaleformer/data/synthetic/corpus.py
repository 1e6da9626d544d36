"""The embedded corpus: seeded documents in two artificial languages with the difficulties of document translation.

Within a segment: verb-final becomes verb-second, adjectives follow their noun, postpositions become prepositions, one
word becomes two (separable verbs, the past) and two become one, articles, adjectives and verbs agree. Across segments,
decided only by an earlier segment and labelled:

* a pronoun takes the gender of the noun that its topic marker introduced (the source has no gender);
* a term has two translations; where the document introduces it, a cue word in the source chooses one (both words become
  one); later mentions have no cue.

Nothing between the deciding and the labelled segment gives the answer away.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from scaleformer.data.synthetic import lexicon as forms
from scaleformer.data.synthetic.lexicon import Lexicon, Noun, Term, pick
from scaleformer.system.schema import Positive, Share, check_fields, shown
from scaleformer.text.documents import Document

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Label:
    """A target word that only an earlier segment determines.

    kind      "pronoun" or "term"
    segment   index of the segment with the word
    distance  segments back to the deciding one (at least 1)
    word      index of the word in the target segment, split at spaces
    right     the correct form
    wrong     the forms that another decision would require; none of them occurs elsewhere in the segment
    """

    kind: str
    segment: int
    distance: int
    word: int
    right: str
    wrong: tuple[str, ...]

    def contrast(self, segment: str) -> list[str]:
        """The target segment with the right form replaced by each wrong one."""
        words = segment.split(" ")
        assert words[self.word] == self.right
        return [" ".join([*words[: self.word], form, *words[self.word + 1 :]]) for form in self.wrong]


@dataclass(frozen=True)
class SyntheticConfig:
    """Settings of the generator; `conf/data/synthetic.yaml` says what each means."""

    seed: int = 1
    language: int = 1
    train: Positive = 4000
    valid: Positive = 100
    test: Positive = 100
    segments: tuple[Positive, Positive] = (1, 12)
    max_distance: Positive = 8
    topics: Share = 0.5
    terms: Share = 0.5

    def __post_init__(self) -> None:
        check_fields(self, "data.synthetic")
        if self.segments[0] > self.segments[1]:
            raise ValueError(f"data.synthetic.segments is {shown(self.segments)}: it must be [fewest, most]")


def generate(config: SyntheticConfig, split: str, documents: int | None = None) -> Iterator[Document]:
    """Documents of a split, with labels; `documents`: their number, if other than configured. Document n does not
    depend on how many are generated. Raises ValueError for an unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r}: the synthetic corpus has {', '.join(SPLITS)}")
    count = getattr(config, split) if documents is None else documents
    low, high = config.segments
    lexicon = Lexicon.build(config.language)
    for index in range(count):
        rng = random.Random(f"scaleformer {config.seed} {split} {low}-{high} {index}")
        length = low + int(rng.random() * (high - low + 1))
        yield _Writer(rng, lexicon, config).document(f"{split}/{index}", length)


class _Event(NamedTuple):
    """The filler of a subject or object slot: an introduction (since = own segment), or a mention that segment `since`
    decides."""

    since: int
    chain: int  # for a subject: index of the topic marker and pronoun
    term: Term | None = None


class _NounPhrase(NamedTuple):
    source: str
    target: str
    noun: Noun
    plural: bool


class _Writer:
    """Writes one document."""

    def __init__(self, rng: random.Random, lexicon: Lexicon, config: SyntheticConfig) -> None:
        self.rng = rng
        self.lexicon = lexicon
        self.config = config
        self.choices: dict[Term, int] = {}  # fixed for the document once chosen
        self.antecedents: dict[int, Noun] = {}

    def document(self, name: str, length: int) -> Document:
        subjects, objects = self.schedule(length)
        source, target, labels = [], [], []
        for i in range(length):
            first, second, found = self.segment(i, subjects.get(i), objects.get(i))
            source.append(first)
            target.append(second)
            labels += found
        return Document(name, tuple(source), tuple(target), tuple(labels))

    def schedule(self, length: int) -> tuple[dict[int, _Event], dict[int, _Event]]:
        """The events in the subject and object slots of each segment: introductions, each with one later mention."""
        subjects: dict[int, _Event] = {}
        objects: dict[int, _Event] = {}
        busy_chains = [-1] * len(forms.TOPIC_MARKERS)  # a chain takes a new topic only after its pronoun has been used
        busy_terms: dict[Term, int] = {}
        for i in range(length):
            free_chains = [c for c, until in enumerate(busy_chains) if until < i]
            if i not in subjects and free_chains and self.rng.random() < self.config.topics:
                chain = pick(self.rng, free_chains)
                if mention := self.later(i, length, subjects):
                    subjects[i] = subjects[mention] = _Event(i, chain)
                    busy_chains[chain] = mention
            free_terms = [t for t in self.lexicon.terms if busy_terms.get(t, -1) < i]
            if i not in objects and free_terms and self.rng.random() < self.config.terms:
                term = pick(self.rng, free_terms)
                if mention := self.later(i, length, objects):
                    objects[i] = objects[mention] = _Event(i, 0, term)
                    busy_terms[term] = mention
        return subjects, objects

    def later(self, i: int, length: int, taken: dict[int, _Event]) -> int | None:
        """A free segment after i at a log-uniform distance; None if a few draws find none."""
        farthest = min(self.config.max_distance, length - 1 - i)
        for _ in range(4 if farthest > 0 else 0):
            distance = int(math.exp(self.rng.random() * math.log(farthest + 1)))
            if i + distance not in taken:
                return i + distance
        return None

    def segment(self, i: int, subject: _Event | None, object_: _Event | None) -> tuple[str, str, list[Label]]:
        """Source text, target text and labels of segment i."""
        rng = self.rng
        labels: list[tuple[str, int, str, tuple[str, ...]]] = []  # kind, distance, right, wrong
        plural = False
        if subject is not None and subject.since < i:
            gender = self.antecedents[subject.chain].gender
            source_subject, target_subject = forms.PRONOUNS[subject.chain], forms.PRONOUN_FORMS[gender]
            labels.append(("pronoun", i - subject.since, target_subject, _others(forms.PRONOUN_FORMS, gender)))
        else:
            phrase = self.noun_phrase(singular=subject is not None)
            source_subject, target_subject, plural = phrase.source, phrase.target, phrase.plural
            if subject is not None:
                source_subject = f"{forms.TOPIC_MARKERS[subject.chain]} {source_subject}"
                self.antecedents[subject.chain] = phrase.noun
        if object_ is None:
            phrase = self.noun_phrase()
            source_object, target_object = phrase.source, phrase.target
        else:
            assert object_.term is not None
            choice = self.choices.setdefault(object_.term, int(rng.random() * 2))
            source_object, target_object = object_.term.source, object_.term.targets[choice]
            if object_.since == i:
                source_object += f" {forms.CUES[choice]}"
            else:
                labels.append(("term", i - object_.since, target_object, _others(object_.term.targets, choice)))
        place = ("", "")
        if rng.random() < 0.3:
            adposition, phrase = pick(rng, self.lexicon.adpositions), self.noun_phrase()
            place = (f"{phrase.source} {adposition.source}", f"{adposition.target} {phrase.target}")
        adverb = pick(rng, self.lexicon.adverbs) if rng.random() < 0.4 else None
        verb = pick(rng, self.lexicon.verbs)
        past = rng.random() < 0.4
        source = [adverb.source if adverb else "", source_subject, place[0], source_object]
        source.append(verb.source + (forms.PAST if past else ""))
        finite = forms.AUXILIARIES[plural] if past else verb.stem + forms.VERB_ENDINGS[plural]
        opening = [adverb.target, finite, target_subject] if adverb else [target_subject, finite]
        target = [*opening, target_object, place[1], verb.participle if past else verb.particle]
        text = _join(target)
        words = text.split(" ")
        found = [Label(kind, i, d, words.index(right), right, wrong) for kind, d, right, wrong in labels]
        return _join(source), text, found

    def noun_phrase(self, singular: bool = False) -> _NounPhrase:
        rng = self.rng
        noun = pick(rng, self.lexicon.nouns)
        plural = not singular and rng.random() < 0.3
        adjective = pick(rng, self.lexicon.adjectives) if rng.random() < 0.35 else None
        source = noun.source + (forms.SOURCE_PLURAL if plural else "")
        article = forms.PLURAL_ARTICLE if plural else forms.ARTICLES[noun.gender]
        target = f"{article} {noun.target}" + (forms.TARGET_PLURAL if plural else "")
        if adjective:
            source = f"{adjective.source} {source}"
            target += f" {adjective.target}{forms.ADJECTIVE_PLURAL if plural else forms.ADJECTIVE_ENDINGS[noun.gender]}"
        return _NounPhrase(source, target, noun, plural)


def _others(forms: tuple[str, ...], index: int) -> tuple[str, ...]:
    return (*forms[:index], *forms[index + 1 :])


def _join(parts: list[str]) -> str:
    return " ".join(part for part in parts if part) + " ."
