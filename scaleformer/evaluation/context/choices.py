"""Files of choices: classes of target words that compete, such as tú and vosotros for English "you"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import regex
import yaml

from scaleformer.system.errors import DataError
from scaleformer.system.schema import NonEmpty, check_type, from_mapping, listed, shown
from scaleformer.text.words import phrase

SHIPPED = Path(__file__).parent / "shipped_choices"


@dataclass(frozen=True)
class When:
    """Where classes compete: the source segment has one of the words of `source`, and none of `without`."""

    source: NonEmpty[str]
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Classes of target words that compete; words and phrases, case ignored.

    classes  name -> its forms; no form is in two classes
    swap     form -> the form of another class that can stand in its place
    """

    name: str
    when: When
    classes: Mapping[str, tuple[str, ...]]
    swap: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> dict[str, regex.Pattern[str]]:
        """Of each class, and of the words of the source and of the swap, by names that no class has."""
        own = {" source": self.when.source, " without": self.when.without, " swap": self.swap}
        return {name: _any_of(forms) for name, forms in {**own, **self.classes}.items()}

    def competes(self, source: str) -> bool:
        """Whether the classes compete in the translation of a segment."""
        has = self._patterns[" source"].search(source), self._patterns[" without"].search(source)
        return has[0] is not None and has[1] is None

    def used(self, target: str) -> tuple[str, ...]:
        """The classes that a text has forms of."""
        return tuple(name for name in self.classes if self._patterns[name].search(target))

    def swapped(self, target: str) -> str | None:
        """A text of one class with the forms of another one; None where a form has none to stand in its place."""
        forms = {form.casefold(): other for form, other in self.swap.items()}

        def other(match: regex.Match[str]) -> str:
            form = forms[match[0].casefold()]
            return form[:1].upper() + form[1:] if match[0][:1].isupper() else form

        changed = self._patterns[" swap"].sub(other, target)
        before, after = self.used(target), self.used(changed)
        return changed if len(before) == len(after) == 1 and before != after else None


def read_choices(name: str) -> list[Choice]:
    """The choices of a YAML file, or of a shipped one by its name, such as en-es/you:

        you:
          when: {source: [you, your], without: []}
          singular: [tú, te, ti]
          plural: [vosotros, os]
          swap: {te: os, os: te}

    `without` and `swap` may be left out. Raises DataError with the file and the choice.
    """
    path = Path(name)
    if not path.is_file() and (shipped := SHIPPED / f"{name}.yaml").is_file():
        path = shipped
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not content:
            raise ValueError("wanted names of choices, each with when: {source: [WORD, ...]} and classes of words")
        return [_choice(str(key), value) for key, value in content.items()]
    except OSError as error:
        known = ", ".join(sorted(str(p.relative_to(SHIPPED).with_suffix("")) for p in SHIPPED.rglob("*.yaml")))
        raise DataError(f"{name}: {error.strerror}: wanted a file of choices, or one of {known}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None


def _choice(name: str, value: Any) -> Choice:
    if not isinstance(value, dict) or not isinstance(value.get("when"), dict):
        raise ValueError(f"{name}: wanted when: {{source: [WORD, ...]}} and classes of words")
    when = from_mapping(When, {key: tuple(listed(words)) for key, words in value["when"].items()}, f"{name}.when")
    classes = {str(key): tuple(listed(forms)) for key, forms in value.items() if key not in ("when", "swap")}
    check_type(f"{name}.swap", swap := value.get("swap") or {}, dict[str, str])
    if not classes:
        raise ValueError(f"{name}: no class of words")
    owner: dict[str, str] = {}
    for own, forms in classes.items():
        check_type(f"{name}.{own}", forms, NonEmpty[str])
        for form in map(str.casefold, forms):
            if owner.setdefault(form, own) != own:
                raise ValueError(f"{name}: {shown(form)} is in {owner[form]} and in {own}")
    return Choice(name, when, classes, swap)


def _any_of(forms: Iterable[str]) -> regex.Pattern[str]:
    """A pattern that finds any of the forms as whole words, the longest first; nothing without forms."""
    found = [phrase(form).pattern for form in sorted(forms, key=len, reverse=True)]
    return regex.compile("|".join(found) or r"(?!)", regex.V1 | regex.IGNORECASE)
