"""The choice of `algorithm="auto"`, and that the operators follow it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from scaleformer.ops import Choice, choose_algorithm, relative_kernel_attention
from scaleformer.ops.common import choice
from scaleformer.ops.common.choice import MECHANISMS, wants_gradients
from scaleformer.ops.recall.attention import segment_recall_attention

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
each_case = pytest.mark.parametrize(
    "case",
    [{"causal": True}, {"causal": False}, {"relative": False}],
    ids=["causal", "bidirectional", "without-positions"],
)


def border_of(choose: Callable[[int, int], Choice]) -> int:
    """The length from which on the linear algorithm is chosen. Checks every sixteenth length up to 2,048 and those next
    to the border: no shorter length takes it, and every longer one does."""
    border = 1 + bisect_left(range(1, 2049), True, key=lambda n: choose(n, n).algorithm == "linear")
    for n in (*range(1, 2049, 16), border - 1, border, border + 1):
        assert choose(n, n).algorithm == ("quadratic" if n < border else "linear")
    return border


@each_mechanism
@each_case
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_all_scores_up_to_a_length_and_none_beyond(mechanism: str, case: dict[str, bool], backward: bool) -> None:
    def choose(queries: int, keys: int) -> Choice:
        return choose_algorithm(mechanism, queries, keys, 64, rows=8, backward=backward, **case)

    border = border_of(choose) - 1  # the last length with all scores
    assert 64 <= border <= 1000
    assert choose(border // 4, 4 * border).algorithm == "quadratic"  # by the product of the lengths
    assert choose(border, 4 * border).algorithm == "linear"


@each_mechanism
@each_case
def test_all_scores_serve_less_long_with_more_rows_and_narrower_heads(mechanism: str, case: dict[str, bool]) -> None:
    def border(width: int = 64, rows: int = 8, backward: bool = True) -> int:
        options = {"width": width, "rows": rows, "backward": backward, **case}
        return border_of(lambda queries, keys: choose_algorithm(mechanism, queries, keys, **options))  # type: ignore[arg-type]

    if mechanism == "scaleformer":  # for some others the quadratic form serves longer texts with gradients
        assert border(backward=False) > border()
    assert border(rows=512) <= border(rows=64) <= border()
    assert border(width=16) < border()


def test_the_device_of_the_tensors_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {case: 2 * (choice._Cost(1, 0, 0),) for case in ("causal", "bidirectional", "without positions")}
    monkeypatch.setitem(choice._COSTS, "cuda", {"scaleformer": nothing})
    chosen = [choose_algorithm("scaleformer", 64, 64, 64, device=kind).algorithm for kind in ("cpu", "cuda", "xpu")]
    assert chosen == ["quadratic", "linear", "linear"]


@each_mechanism
@each_case
def test_on_a_gpu_all_scores_serve_longer_texts_but_not_more_memory(mechanism: str, case: dict[str, bool]) -> None:
    def choose(length: int, rows: int, device: str = "cuda", backward: bool = True) -> str:
        return choose_algorithm(
            mechanism, length, length, 64, rows=rows, device=device, backward=backward, **case
        ).algorithm

    assert choose(1500, 8) == choose(700, 128) == "quadratic"
    assert choose(1500, 8, "cpu") == "linear"
    assert choose(4096, 4) == "linear"
    assert choose(2897, 8) == choose(725, 128) == choose(363, 512) == "linear"  # 2^26 scores and a few more
    assert choose(363, 512, backward=False) == choose(512, 1024, backward=False) == "quadratic"
    assert choose(513, 1024, backward=False) == "linear"  # 2^28 and a few more


def test_a_choice_by_memory_in_words() -> None:
    reason = choose_algorithm("scaleformer", 4096, 4096, 64, rows=8, device="cuda").reason
    assert "is beyond the 2,896 up to which there are at most 67,108,864 scores (scaleformer" in reason


def test_a_choice_in_words() -> None:
    text = str(choose_algorithm("segment_recall", 100, 100, 64, rows=8, causal=True))
    assert text.startswith("quadratic: a mean length of 100 is within the ")
    assert text.endswith("(segment_recall, causal, forward and backward, 8 rows of width 64)")
    assert "is beyond the" in choose_algorithm("scaleformer", 4096, 4096, 64).reason


def test_an_unknown_mechanism() -> None:
    with pytest.raises(ValueError, match="mechanism is 'softmax': it must be one of scaleformer, segment_recall"):
        choose_algorithm("softmax", 10, 10, 64)


def test_gradients_are_foreseen() -> None:
    x = torch.zeros(1, requires_grad=True)
    assert wants_gradients(None, x)
    assert not wants_gradients(None, x.detach())
    with torch.no_grad():
        assert not wants_gradients(x)


@each_mechanism
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("length", [20, 700])
def test_the_operators_take_it(mechanism: str, length: int, gradients: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, length, 8, generator=generator).requires_grad_(gradients) for _ in range(3))
    rel, log_gate = torch.randn(7, 8, generator=generator), torch.randn(2, 5, generator=generator)
    segments = (torch.arange(length) // 9).unsqueeze(0)
    salience, recency = torch.randn(1, 2, length, generator=generator), torch.ones(2)
    calls: dict[str, Callable[..., Tensor]] = {
        "scaleformer": partial(relative_kernel_attention, q, k, v, rel),
        "segment_recall": partial(
            segment_recall_attention, q, k, v, rel, log_gate, salience, recency, segments, segments
        ),
    }
    choice = choose_algorithm(mechanism, length, length, 8, rows=2, backward=gradients)
    assert choice.algorithm == ("quadratic" if length == 20 else "linear")
    call = calls[mechanism]
    torch.testing.assert_close(call(), call(algorithm=choice.algorithm), rtol=0, atol=0)
