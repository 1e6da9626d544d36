"""Several corpora: shares, passes, processes, and runs that stop and resume."""

from __future__ import annotations

from collections import Counter
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch

from scaleformer.data.datamodule import DocumentDataModule
from tests.data.mixtures import drawn, epochs_of, mixed, of_two_processes, shares
from tests.data.test_datamodule_resume import VALIDATING, fit

CHOICES = [
    pytest.param({}, {}, id="kept"),
    pytest.param({}, {"long": {"streaming": True}, "window": 90}, id="the first streamed"),
    pytest.param({}, {"short": {"streaming": True}, "window": 40}, id="the second streamed"),
    pytest.param({}, {"streaming": True, "window": 60}, id="both streamed"),
    pytest.param({}, {"streaming": True, "window": 60, "join_segments": (1, 3)}, id="streamed and joined"),
]


@pytest.mark.parametrize(("tokenizer", "options"), CHOICES)
@pytest.mark.parametrize("processes", [1, 2])
def test_examples_are_drawn_by_weight(
    cache: Path, folders: dict[str, str], processes: int, tokenizer: dict[str, Any], options: dict[str, Any]
) -> None:
    def make() -> DocumentDataModule:
        return mixed(cache, folders, tokenizer=tokenizer, **options)

    found = [epochs_of(make(), 2)] if processes == 1 else of_two_processes(make, 2)
    assert len({tuple(map(len, own)) for own in found}) == 1  # equally many batches in every process
    for epoch in range(2):
        counts = drawn([batch for own in found for batch in own[epoch]])
        assert counts["long"] / counts.total() == pytest.approx(0.75, abs=0.01)
    if "join_segments" not in options:
        seen = {name.split("[")[0] for own in found for batch in own[0] for name in batch}
        assert seen == {f"long-train/{n}" for n in range(160)} | {f"short-train/{n}" for n in range(70)}


def test_without_streaming_a_pass_has_every_example_once(
    cache: Path, folders: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The corpus that lasts longest makes the epoch; the other one goes on where it stood."""
    caplog.set_level("INFO", "scaleformer")
    weighted = {"long": {"weight": 1.0}, "short": {"weight": 1.0}}
    data = mixed(cache, folders, **weighted)
    sizes = {name: split.examples for name, split in data.report.splits.items() if name.endswith("train")}
    first, second = (Counter(name for batch in epoch for name in batch) for epoch in epochs_of(data, 2))
    both = first + second
    for epoch in (first, second):
        assert all(epoch[name] == 1 for name in epoch if name.startswith("long"))
        counts = Counter(name.split("-")[0] for name in epoch.elements())
        assert counts["long"] == counts["short"] == sizes["long: train"]
    times = 2 * sizes["long: train"] / sizes["short: train"]
    assert {both[name] for name in both if name.startswith("short")} <= {int(times), int(times) + 1}
    said = [line for line in caplog.messages if "complete passes" in line]
    assert said == [
        f"starting again with a corpus; complete passes so far: long {n}, short {int(n * times / 2)}" for n in (1, 2)
    ]
    report = data.trained_report
    assert report is not None
    assert report.corpora["long"].examples == 2 * sizes["long: train"]
    assert report.corpora["long"].epochs == 2
    assert report.corpora["short"].epochs == pytest.approx(times)
    assert report.to_dict()["corpora"]["short"]["share"] == 0.5


def test_weights_by_size_and_temperature(cache: Path, folders: dict[str, str]) -> None:
    without = {"long": {"weight": None}, "short": {"weight": None}}
    data = mixed(cache, folders, **without)
    sizes = [split.examples for name, split in data.report.splits.items() if name.endswith("train")]
    assert shares(data) == pytest.approx([size / sum(sizes) for size in sizes])
    (epoch,) = epochs_of(data)
    assert sorted(drawn(epoch).values()) == sorted(sizes)  # each once
    flat = mixed(cache, folders, **without, temperature=5.0)
    roots = [size**0.2 for size in sizes]
    assert shares(flat) == pytest.approx([root / sum(roots) for root in roots])


@pytest.mark.parametrize("options", [{}, {"streaming": True, "window": 60}], ids=["kept", "streamed"])
def test_workers_change_nothing(cache: Path, folders: dict[str, str], options: dict[str, Any]) -> None:
    assert epochs_of(mixed(cache, folders, **options), 2) == epochs_of(
        mixed(cache, folders, **options, num_workers=2), 2
    )


@pytest.mark.parametrize(
    ("tokenizer", "options", "trainer"),
    [
        pytest.param({}, {"multi_resolution": True}, VALIDATING, id="kept"),
        pytest.param({}, {"long": {"streaming": True}, "window": 60}, {}, id="one streamed"),
        pytest.param({}, {"streaming": True, "window": 60, "num_workers": 2}, {}, id="streamed by two workers"),
        pytest.param({}, {"streaming": True, "window": 60, "join_segments": (1, 3)}, {}, id="streamed and joined"),
    ],
)
def test_runs_resume_with_the_very_next_batch(
    cache: Path,
    tmp_path: Path,
    folders: dict[str, str],
    tokenizer: dict[str, Any],
    options: dict[str, Any],
    trainer: dict[str, Any],
) -> None:
    def make() -> DocumentDataModule:
        return mixed(cache, folders, {"tag": "a", **options.get("long", {})}, tokenizer=tokenizer, **rest)

    rest = {name: value for name, value in options.items() if name != "long"}
    loader = make().train_dataloader()
    epochs = [[batch.source.tolist() for batch in loader] for _ in range(3)]
    length = len(epochs[0])
    steps = length + len(epochs[1]) + 3
    whole = fit(make(), steps, tmp_path, **trainer)
    assert whole == (epochs[0] + epochs[1] + epochs[2])[:steps]
    for done in (1, length // 2, length - 1, length, length + 1, length + len(epochs[1])):
        checkpoint = tmp_path / f"step={done}.ckpt"
        assert fit(make(), min(done + 4, steps), None, checkpoint, **trainer) == whole[done : done + 4]


def test_workers_end_with_the_loop_that_is_left(cache: Path, folders: dict[str, str]) -> None:
    """Not when the garbage collector comes to them."""
    others = set(active_children())
    data = mixed(cache, folders, streaming=True, window=60, num_workers=2)
    batches = iter(data.train_dataloader())
    next(batches)
    assert set(active_children()) - others
    del batches
    assert not set(active_children()) - others


def test_two_processes_resume(cache: Path, folders: dict[str, str]) -> None:
    """Each at its own place: rank 0 saves those of both."""
    states: list[Any] = []

    def make() -> DocumentDataModule:
        data = mixed(cache, folders, streaming=True, window=40)
        if states:
            data.load_state_dict(states[0])
        return data

    whole = of_two_processes(make)
    stop = len(whole[0][0]) // 2
    original = DocumentDataModule.train_dataloader

    def stopping(data: DocumentDataModule) -> Any:
        loader = original(data)

        def some() -> Any:
            for number, batch in enumerate(loader, 1):
                yield batch
                if number == stop:
                    break
            if data.trainer.global_rank == 0:  # type: ignore[union-attr]
                states.append(data.state_dict())

        return some()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentDataModule, "train_dataloader", stopping)
        begun = of_two_processes(make)
    rest = of_two_processes(make)
    for rank in range(2):
        assert begun[rank][0] + rest[rank][0] == whole[rank][0]


def test_changed_corpora_continue_with_the_next_epoch(cache: Path, tmp_path: Path, folders: dict[str, str]) -> None:
    fit(mixed(cache, folders), 3, tmp_path)
    state = torch.load(tmp_path / "step=3.ckpt", weights_only=True)["SeveralCorpora"]
    for changed in ({"short": {"weight": 2}}, {"short": {"tag": "x"}}, {"batch_tokens": 500}):
        data = mixed(cache, folders, **changed)
        data.load_state_dict(state)
        with pytest.warns(UserWarning, match="settings changed since the checkpoint was written inside epoch 0"):
            loader = data.train_dataloader()
        assert loader.position == (1, 0, 0)
        assert drawn([batch.ids for batch in loader])["short"] > 0
