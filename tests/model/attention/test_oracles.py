"""Every attention is right by somebody else's code too: its packages where they are installed, else what they said."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from scaleformer.model.attention import MECHANISMS
from tests.model.attention.oracles import hugging_face, packages, patterns, written_out  # noqa: F401
from tests.model.attention.oracles.comparison import CASES, NUMBERS, Case, errors, ours, results

PAGE = Path(__file__).parents[3] / "docs" / "oracles.md"
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@each_case
def test_somebody_else_gets_the_same(case: Case) -> None:
    pytest.importorskip(case.module, reason=f"{case.package} is of the extra `oracle`")
    assert max(errors(results(case, ours), results(case, case.theirs))) < case.tolerance


@pytest.mark.parametrize("case", [case for case in CASES if case.package != "torch"], ids=lambda case: case.id)
def test_somebody_else_got_the_same(case: Case) -> None:
    found = results(case, ours)
    with safe_open(NUMBERS, framework="pt") as file:
        kept = {name: file.get_tensor(f"{case.id} {name}") for name in found}
    assert max(errors(found, kept)) < max(case.tolerance, 1e-6)  # kept in float32


def test_every_site_of_every_mechanism_has_its_row() -> None:
    rows = {(case.name or case.choice, case.site) for case in CASES}
    assert rows == {(name, site) for name, mechanism in MECHANISMS.items() for site in mechanism.sites}
    page = PAGE.read_text(encoding="utf-8")
    for case in CASES:
        assert f"| `{case.choice}` | {case.site} | " in page, "python -m tests.model.attention.oracles writes it anew"


def test_a_wrong_weight_is_found() -> None:
    case = next(case for case in CASES if case.id == "sparse-encoder")
    wrong = results(case, lambda attention, x, memory, layout: 1.001 * ours(attention, x, memory, layout))
    assert min(errors(wrong, results(case, case.theirs))) > case.tolerance
