"""The paper's algorithms against the sums that they compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scripts.bench_attention.paper import algorithm_1, algorithm_2, paper_attention
from tests.ops.inputs import make_inputs
from tests.ops.kernel.naive import dense_attention
from tests.scripts.bench_attention.printed import algorithm_2_printed

LENGTHS = [(1, 1), (6, 6), (12, 12), (4, 15), (15, 4), (1, 9), (9, 1)]
HORIZON = 3


def relative_sums(fq: Tensor, frel: Tensor, v: Tensor) -> Tensor:
    """S^rel V by the definition."""
    distance = torch.arange(v.shape[-2]) - torch.arange(fq.shape[-2])[:, None]
    return torch.einsum("bhid,ijd,bhje->bhie", fq, frel[distance.clamp(-HORIZON, HORIZON) + HORIZON], v)


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_algorithm_1(lengths: tuple[int, int]) -> None:
    x = make_inputs(*lengths).detached()
    torch.testing.assert_close(algorithm_1(x.q, x.k, x.v), (x.q @ x.k.transpose(-1, -2)).tril() @ x.v)


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_algorithm_2_corrected(lengths: tuple[int, int]) -> None:
    x = make_inputs(*lengths, horizon=HORIZON).detached()
    assert x.rel is not None
    torch.testing.assert_close(algorithm_2(x.q, x.rel, x.v), relative_sums(x.q, x.rel, x.v))


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_algorithm_2_as_printed_in_2021_loses_the_last_keys(lengths: tuple[int, int]) -> None:
    x = make_inputs(*lengths, horizon=HORIZON).detached()
    assert x.rel is not None
    lost = x.v[:, :, lengths[0] + HORIZON :].sum(2, keepdim=True)
    expected = relative_sums(x.q, x.rel, x.v) - (x.q @ x.rel[-1])[..., None] * lost
    torch.testing.assert_close(algorithm_2_printed(x.q, x.rel, x.v, edition=2021), expected)


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_algorithm_2_as_printed_in_2023_counts_a_key_twice(lengths: tuple[int, int]) -> None:
    x = make_inputs(*lengths, horizon=HORIZON).detached()
    assert x.rel is not None
    twice = torch.nn.functional.pad(x.v[:, :, HORIZON - 1 :], (0, 0, 0, 20))[:, :, : lengths[0]]
    expected = relative_sums(x.q, x.rel, x.v) + (x.q @ x.rel[-1])[..., None] * twice
    torch.testing.assert_close(algorithm_2_printed(x.q, x.rel, x.v), expected)


def test_there_are_two_editions() -> None:
    x = make_inputs(2, 2, horizon=1).detached()
    assert x.rel is not None
    with pytest.raises(ValueError, match="edition is 2022: choose 2021 or 2023"):
        algorithm_2_printed(x.q, x.rel, x.v, edition=2022)


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_paper_attention(causal: bool, lengths: tuple[int, int]) -> None:
    x = make_inputs(*lengths, horizon=HORIZON).detached()
    assert x.rel is not None
    out = paper_attention(x.q, x.k, x.v, x.rel, causal=causal)
    torch.testing.assert_close(out, dense_attention(x.q, x.k, x.v, x.rel, causal=causal))
