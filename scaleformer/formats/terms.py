"""Terms in a file: a source form, a tab and its target form on each line."""

from __future__ import annotations

from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.terms import Term


def read_terms(path: str) -> dict[str, str]:
    """Source and target forms from a file: a source form, a tab and its target form per line; blank lines are skipped.

    Raises DataError with file and line, also for a source form with two different targets.
    """
    found: dict[str, str] = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        forms = [form.strip() for form in line.split("\t")]
        if len(forms) != 2:
            raise DataError(f"{path}:{number}: {len(forms) - 1} tabs, wanted a source form, a tab and its target form")
        try:
            term = Term(*forms)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        if found.setdefault(term.source, term.target) != term.target:
            raise DataError(
                f"{path}:{number}: {shown(term.source)} has the target form {shown(found[term.source])} on an earlier "
                "line: keep one target form per source form"
            )
    if not found:
        raise DataError(f"terms={path}: no terms: write a source form, a tab and its target form on each line")
    return found
