"""The arithmetic of docs/scaling.md, by hand, and that the page has the tables as the script prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import scaling

PAGE = Path(__file__).parents[2] / "docs/scaling.md"


def test_paces_follow_from_the_measured_steps() -> None:
    assert scaling.pairs_a_second(31.2) == pytest.approx(16_384 / 0.0312)
    small = 6 * (2 * 6 * (6 * 256**2 + 2 * 256 * 1024) + 256 * 8000)  # FLOP of a pair, entry 59
    base = 6 * (2 * 6 * (6 * 512**2 + 2 * 512 * 2048) + 512 * 32_000)
    assert scaling.pace_of_base(1000.0) == pytest.approx(1000 * small / base)
    assert scaling.gpu_hours(10**10, 232_000) == pytest.approx(11.973, rel=1e-3)


def test_weights_are_those_of_the_presets() -> None:
    assert scaling.parameters(scaling.SMALL) == pytest.approx(13.2e6, rel=0.01)  # entry 50
    assert scaling.parameters(scaling.BASE) == pytest.approx(60e6, rel=0.02)


def test_tables_hold_the_numbers_worked_out_by_hand() -> None:
    steps = scaling.step_table().splitlines()[2]
    assert [cell.strip() for cell in steps.split("|")[1:-1]] == ["512", "1,050,256", "321,255", "17%", "226,967"]
    one, _, many = scaling.cost_table().splitlines()[2:]
    assert [cell.strip() for cell in one.split("|")[1:-1]] == ["1", "with", "12", "12", "55", "55"]
    # 10^10 / (133,500 x 0.9) s is 23.1 hours of one GPU
    assert [cell.strip() for cell in many.split("|")[1:-1]][:4] == ["64", "without", "0.36", "23"]
    assert "42 GB" in scaling.data_table()  # 4.17 bytes a token
    assert "22 GB" in scaling.data_table()  # 2 bytes a token, 16 a segment


def test_the_page_has_these_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for table in (scaling.step_table(), scaling.cost_table(), scaling.exchange_table(), scaling.data_table()):
        assert table in text, table
