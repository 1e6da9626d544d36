"""Whole translations: what is translated, and with which peer. The times themselves do not matter here."""

from __future__ import annotations

import pytest
import torch

from scripts.bench_decoding import whole
from scripts.bench_decoding.ctranslate import CTRANSLATE2, CTranslate2
from scripts.bench_training.models import Sizes

TINY = Sizes(1, 8, 8, 2, 30)


class Peer:
    """Takes hardly any time, and records its arguments."""

    def __init__(self, sizes: Sizes, threads: int, precision: str) -> None:
        self.precision = precision
        self.given: list[tuple[tuple[int, ...], int, int]] = []

    def seconds(self, source: torch.Tensor, tokens: int, beams: int) -> float:
        self.given.append((tuple(source.shape), tokens, beams))
        return 2.0


def test_each_system_translates_as_much_as_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    peers: list[Peer] = []

    def make(*given: object) -> Peer:
        peers.append(Peer(*given))  # type: ignore[arg-type]
        return peers[-1]

    monkeypatch.setattr(whole, "CTranslate2", make)
    said: list[str] = []
    rows = list(whole.measure_throughput(["softmax"], TINY, 3, 4, [1, 2], 2, 1, True, said.append))
    assert [peer.precision for peer in peers] == ["float32", "int8"]
    whats = [((3, 4), 4, 1), ((3, 4), 4, 2), ((1, 216), 216, 1)]
    assert peers[0].given == [what for what in whats for _ in range(3)]
    assert [row.system for row in rows] == ["softmax", CTRANSLATE2] * 6
    for row in rows:
        assert row.speed == pytest.approx(row.texts * row.tokens / row.seconds)
        assert row.ratio == pytest.approx(2.0 / row.seconds)
    assert {row.ratio for row in rows if row.system == CTRANSLATE2} == {1.0}


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_peer_writes_the_given_number_of_tokens(precision: str) -> None:
    pytest.importorskip("ctranslate2")
    assert CTranslate2(TINY, 1, precision).seconds(torch.randint(5, 30, (2, 6)), 6, 2) > 0
