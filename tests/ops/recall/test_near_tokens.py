"""The tokens that decoding keeps whole, against lists of them."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.recall.near_tokens import NearTokens

Row = list[tuple[int, float]]  # a token: its segment and the number that stands in its columns


def filled(columns: list[torch.Tensor], row: int, held: Row) -> bool:
    """Whether the columns of a row begin with what is held."""
    numbers = torch.tensor([number for _, number in held], dtype=torch.double)
    return all((column[row, :, : len(held)] == numbers[:, None]).all() for column in columns)


@pytest.mark.parametrize("near", [0, 1, 3])
def test_rows_hold_what_lists_hold(near: int) -> None:
    """Three rows whose segments grow at different times; more tokens than there is room for at first."""
    generator = torch.Generator().manual_seed(near)
    state = NearTokens.none(3, 2, (4, 3, 1), torch.zeros((), dtype=torch.double))
    held: list[Row] = [[], [], []]
    segment = torch.zeros(3, dtype=torch.long)
    for step in range(300):
        if step:
            segment = segment + torch.randint(0, 60, (3,), generator=generator).clamp(57) - 57  # 0 mostly, 1, 2
        rows = (segment > state.segment).nonzero().flatten()
        if len(rows):
            before = [list(row) for row in held]
            leaving = state.begin(segment, rows, near)
            for place, row in enumerate(rows.tolist()):
                gone = [token for token in held[row] if token[0] < int(segment[row]) - near]
                held[row] = held[row][len(gone) :]
                assert int(leaving.gone[place]) == len(gone) == int(leaving.real[place].sum())
                assert int(leaving.length[place]) == len(before[row])
                assert leaving.real[place, : len(gone)].all()
                assert leaving.numbers[place, : len(gone)].tolist() == [number for number, _ in gone]
                assert filled(leaving.columns, place, gone)
            assert leaving.real.shape[1] == int(leaving.gone.max())
        number = float(torch.randn((), generator=generator))
        state.append(*(torch.full((3, 2, width), number) for width in (4, 3, 1)))
        for row in range(3):
            held[row].append((int(segment[row]), torch.tensor(number, dtype=torch.float).double().item()))
        assert state.length.tolist() == [len(row) for row in held]
        assert state.most >= max(len(row) for row in held)
        for row, tokens in enumerate(held):
            assert filled(state.used(), row, tokens)
            assert state.numbers[row, : len(tokens)].tolist() == [number for number, _ in tokens]
            assert state.offset()[row, : len(tokens)].tolist() == list(range(1 - len(tokens), 1))
            assert (state.offset()[row, len(tokens) :] > 0).all()
            distance = [max(number - int(segment[row]), -near) for number, _ in tokens]
            assert state.distance(near)[row, : len(tokens)].tolist() == distance


def test_rows_are_taken_along() -> None:
    state = NearTokens.none(2, 1, (2,), torch.zeros(()))
    state.begin(torch.tensor([0, 4]), torch.tensor([0, 1]), near=1)
    state.append(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))
    again = state.reorder(torch.tensor([1, 1, 0]))
    assert again.used()[0][:, 0, 0].tolist() == [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    assert again.segment.tolist() == [4, 4, 0]
    assert again.numbers[:, 0].tolist() == [4, 4, 0]
    again.append(torch.zeros(3, 1, 2))
    assert state.length.tolist() == [1, 1]  # what the others do does not reach it
