"""Batches by tokens and by memory: its estimate against what torch takes, how batches are filled, that results stay."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.measure import read_size
from scaleformer.translation.batches import HELD, MemoryEstimate, runs, token_budget
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP
from tests.runs import make_run

KINDS = ("segment_recall", "scaleformer", "softmax")
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"strategy": "greedy"},
    "beam": {"strategy": "beam", "beam_size": 4, "draft": "none"},
    "sample": {"strategy": "sample", "n_best": 2, "top_p": 0.9},
}
SHAPES = {"a long one": [20], "long ones": [7, 7, 6, 5], "short ones": [2, 2, 1] * 4}


def most_held(work: Callable[[], object]) -> int:
    """Bytes of all tensors at their highest, by torch's own record of what it allocates and frees."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    assert profiler.profiler is not None
    held = highest = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest


def make(name: str) -> Transformer:
    torch.manual_seed(1)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "width": 64, "feedforward": 128, "heads": 4}
    return Transformer(ModelConfig(500, 500, attention={"name": name}, **sizes)).eval()


def sources(segments: list[int]) -> list[list[int]]:
    draw = random.Random(1)
    return [
        [t for _ in range(n) for t in (*(draw.randrange(40, 500) for _ in range(20)), SEP)] + [EOS] for n in segments
    ]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KINDS)
def test_no_more_is_held_than_estimated(name: str, shape: str, search: str) -> None:
    model = make(name)
    config = DecodingConfig(**SEARCHES[search], max_length_ratio=0.1, max_length_offset=2)
    estimate, documents = MemoryEstimate(model, config), sources(SHAPES[shape])
    whole = estimate.extent(documents[0])
    for document in documents[1:]:
        whole = whole.join(estimate.extent(document))
    batch = pad(documents, torch.device("cpu"))
    with torch.inference_mode():
        model.encode(*batch)  # what torch makes once
    held = most_held(lambda: decode(model, *batch, config))
    assert held <= estimate.bytes(whole, len(documents)) / HELD <= 5 * held


def test_the_extent_of_a_document_follows_from_its_segments_and_limits() -> None:
    tokens = [50, 51, 52, SEP, 50, SEP, 50, 51, SEP, EOS]
    estimate = MemoryEstimate(make("softmax"), DecodingConfig(max_length_ratio=2.0, max_length_offset=3))
    extent = estimate.extent(tokens)
    assert (extent.source, extent.segments) == (10, 4)
    assert extent.source_spans[:5] == (4, 6, 9, 10, 10)
    assert extent.target == (9 + 1) + (5 + 1) + (7 + 1) + 1  # a separator after each, `</s>` after all
    assert extent.target_spans[:4] == (10, 16, 24, 25)
    free = MemoryEstimate(
        make("softmax"), DecodingConfig(match_segments=False, max_length_ratio=2.0, max_length_offset=3)
    )
    assert free.extent(tokens).target == 23
    joined = extent.join(estimate.extent([50] * 20 + [SEP, EOS]))
    assert (joined.source, joined.segments, joined.source_spans[:3]) == (22, 4, (21, 22, 22))


@pytest.mark.parametrize("limit", ["7MiB", "14MiB", "1GiB"])
def test_batches_are_filled_up_to_the_limit(limit: str) -> None:
    estimate = MemoryEstimate(make("segment_recall"), DecodingConfig(strategy="greedy", memory_limit=limit))
    documents = dict(enumerate(sources([2, 9, 1, 3, 8, 4, 1, 6])))
    most = read_size(limit)
    assert most is not None
    batches, words = estimate.batches(documents, most)
    assert sorted(place for batch in batches for place in batch) == list(documents)
    needed = []
    for batch in batches:
        extents = [estimate.extent(documents[place]) for place in batch]
        assert [e.source for e in extents] == sorted((e.source for e in extents), reverse=True)
        whole = extents[0]
        for extent in extents[1:]:
            whole = whole.join(extent)
        needed.append(estimate.bytes(whole, len(batch)))
        rest = [place for other in batches for place in other if len(documents[place]) < extents[-1].source]
        if rest:  # the next one did not fit any more
            following = estimate.extent(documents[max(rest, key=lambda place: len(documents[place]))])
            assert estimate.bytes(whole.join(following), len(batch) + 1) > most
    assert max(needed) <= most
    found = re.fullmatch(r"memory: ([\d.]+ MiB) estimated for batches of up to (\d+) documents? \(limit (.*)\)", words)
    assert found is not None
    assert abs((read_size(found[1]) or 0) - max(needed)) < 1 << 19
    assert (int(found[2]), read_size(found[3])) == (max(map(len, batches)), most)


def test_long_documents_stand_beside_each_other() -> None:
    """By source tokens each of them would stand alone."""
    documents = dict(enumerate(sources([500] * 6)))
    config = DecodingConfig(strategy="greedy", memory_limit="368MiB")
    assert config.memory_limit_bytes == 368 << 20
    sizes = {}
    for name in ("segment_recall", "softmax"):
        batches, _ = MemoryEstimate(make(name), config).batches(documents, config.memory_limit_bytes)
        sizes[name] = max(map(len, batches))
    assert sizes["segment_recall"] > sizes["softmax"] >= 1


def test_a_limit_that_a_document_alone_exceeds_is_refused() -> None:
    estimate = MemoryEstimate(make("softmax"), DecodingConfig(strategy="greedy", memory_limit="1MiB"))
    documents = dict(enumerate(sources([2, 40])))
    with pytest.raises(ValueError, match=r"decoding.memory_limit=1MiB: a document of 841 source tokens alone") as error:
        estimate.batches(documents, 1 << 20)
    assert "\n" not in str(error.value)
    wanted = re.search(r"set decoding.memory_limit=(\S+) or more", str(error.value))
    assert wanted is not None
    estimate.batches(documents, read_size(wanted[1]) or 0)  # what it says to type is enough


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("name", KINDS)
def test_translations_are_the_same(tmp_path: Path, name: str, search: str, capsys: pytest.CaptureFixture[str]) -> None:
    translator = Translator.load(make_run(tmp_path / "run", attention={"name": name}), "cpu")
    documents = [["the cat sees", "it runs"], ["a dog"], [""], ["a house", "a tree", "a cat"] * 3]
    settings = SEARCHES[search]
    alone = [translator.translate_documents(translator.request([one], **settings))[0] for one in documents]
    for memory in ("5MiB", "1GiB"):
        found = translator.translate_documents(
            translator.request(documents, memory_limit=memory, **settings), Listener(progress=lambda *_: None)
        )
        assert [t.segments for t in found] == [t.segments for t in alone]
        for one, wanted in zip(found, alone, strict=True):
            assert one.hypotheses[0].log_probability == pytest.approx(wanted.hypotheses[0].log_probability, abs=1e-4)
        assert capsys.readouterr().err.count("memory: ") == 1


def test_drafts_know_no_such_limit(tmp_path: Path) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    with pytest.raises(ValueError, match=r"decoding.draft is segments: .* and memory_limit=null"):
        translator.translate([["a dog"]], draft="segments", strategy="greedy", memory_limit="1GiB")


@pytest.mark.parametrize("memory", ["much", "0", "-1GiB", "2 XiB", True, 1.5, ""])
def test_what_is_no_size_is_refused(memory: object) -> None:
    with pytest.raises(ValueError, match=r"decoding\.memory_limit is .*: it must be (a size as 2GiB|a str or float)"):
        DecodingConfig(memory_limit=memory)  # type: ignore[arg-type]


def test_batches_of_a_budget():
    assert list(token_budget({0: 3, 1: 9, 5: 4, 7: 2}, 9)) == [[1], [5, 0], [7]]
    assert list(token_budget({0: 20, 1: 1}, 9)) == [[0], [1]]
    assert list(token_budget({}, 9)) == []


def test_runs_keep_the_order_and_hold_one_at_least() -> None:
    assert list(runs(zip("abcde", [3, 2, 9, 1, 4], strict=True), 5)) == [["a", "b"], ["c"], ["d", "e"]]
    assert list(runs([], 5)) == []
