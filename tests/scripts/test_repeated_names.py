"""Identifiers that stand twice in a segment."""

from __future__ import annotations

from scripts.repeated_names import count


def test_names_that_source_and_reference_have_twice() -> None:
    source = "MB_OK, MB_OK, getName, getName, one_two, x_y x_y"
    reference = "MB_OK y MB_OK; getName, getName; one_two; x_y"
    document = {"source": [source], "target": [reference], "hypothesis": ["MB_OK MB_OK getName"]}
    assert count([document]) == (2, 1)
