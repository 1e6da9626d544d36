"""Batches by memory: what is foreseen against what torch takes, how batches are filled, and that results stay."""

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
from scaleformer.model.transformer import ModelConfig, Transformer
from scaleformer.system.measure import read_size
from scaleformer.translation.batches import pad
from scaleformer.translation.memory_estimate import HELD, Foresight
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP
from tests.runs import make_run

KINDS = ("segment_recall", "scaleformer", "softmax")
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"strategy": "greedy"},
    "beam": {"strategy": "beam", "beam_size": 4},
    "sample": {"strategy": "sample", "n_best": 2, "top_p": 0.9, "repetition_penalty": 1.2},
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
def test_no_more_is_held_than_foreseen(name: str, shape: str, search: str) -> None:
    model = make(name)
    config = DecodingConfig(**SEARCHES[search], max_length_ratio=0.1, max_length_offset=2)
    foresight, documents = Foresight(model, config), sources(SHAPES[shape])
    whole = foresight.extent(documents[0])
    for document in documents[1:]:
        whole = whole.join(foresight.extent(document))
    batch = pad(documents, torch.device("cpu"))
    with torch.inference_mode():
        model.encode(*batch)  # what torch makes once
    held = most_held(lambda: decode(model, *batch, config))
    assert held <= foresight.bytes(whole, len(documents)) / HELD <= 5 * held


def test_the_extent_of_a_document_follows_from_its_segments_and_limits() -> None:
    tokens = [50, 51, 52, SEP, 50, SEP, 50, 51, SEP, EOS]
    foresight = Foresight(make("softmax"), DecodingConfig(max_length_ratio=2.0, max_length_offset=3))
    extent = foresight.extent(tokens)
    assert (extent.source, extent.segments) == (10, 4)
    assert extent.source_spans[:5] == (4, 6, 9, 10, 10)
    assert extent.target == (9 + 1) + (5 + 1) + (7 + 1) + 1  # a separator after each, `</s>` after all
    assert extent.target_spans[:4] == (10, 16, 24, 25)
    free = Foresight(make("softmax"), DecodingConfig(match_segments=False, max_length_ratio=2.0, max_length_offset=3))
    assert free.extent(tokens).target == 23
    joined = extent.join(foresight.extent([50] * 20 + [SEP, EOS]))
    assert (joined.source, joined.segments, joined.source_spans[:3]) == (22, 4, (21, 22, 22))


@pytest.mark.parametrize("limit", ["7MiB", "14MiB", "1GiB"])
def test_batches_are_filled_up_to_the_limit(limit: str) -> None:
    foresight = Foresight(make("segment_recall"), DecodingConfig(strategy="greedy", memory=limit))
    documents = dict(enumerate(sources([2, 9, 1, 3, 8, 4, 1, 6])))
    most = read_size(limit)
    assert most is not None
    batches, words = foresight.batches(documents, most)
    assert sorted(place for batch in batches for place in batch) == list(documents)
    needed = []
    for batch in batches:
        extents = [foresight.extent(documents[place]) for place in batch]
        assert [e.source for e in extents] == sorted((e.source for e in extents), reverse=True)
        whole = extents[0]
        for extent in extents[1:]:
            whole = whole.join(extent)
        needed.append(foresight.bytes(whole, len(batch)))
        rest = [place for other in batches for place in other if len(documents[place]) < extents[-1].source]
        if rest:  # the next one did not fit any more
            following = foresight.extent(documents[max(rest, key=lambda place: len(documents[place]))])
            assert foresight.bytes(whole.join(following), len(batch) + 1) > most
    assert max(needed) <= most
    found = re.fullmatch(r"memory: ([\d.]+ MiB) foreseen for batches of up to (\d+) documents? \(limit (.*)\)", words)
    assert found is not None
    assert abs((read_size(found[1]) or 0) - max(needed)) < 1 << 19
    assert (int(found[2]), read_size(found[3])) == (max(map(len, batches)), most)


def test_long_documents_stand_beside_each_other() -> None:
    """By source tokens each of them would stand alone."""
    documents = dict(enumerate(sources([500] * 6)))
    config = DecodingConfig(strategy="greedy", memory="368MiB")
    assert config.memory_bytes == 368 << 20
    sizes = {}
    for name in ("segment_recall", "softmax"):
        batches, _ = Foresight(make(name), config).batches(documents, config.memory_bytes)
        sizes[name] = max(map(len, batches))
    assert sizes["segment_recall"] > sizes["softmax"] >= 1


def test_a_limit_that_a_document_alone_exceeds_is_refused() -> None:
    foresight = Foresight(make("softmax"), DecodingConfig(strategy="greedy", memory="1MiB"))
    documents = dict(enumerate(sources([2, 40])))
    with pytest.raises(ValueError, match=r"decoding.memory=1MiB: a document of 841 source tokens alone") as error:
        foresight.batches(documents, 1 << 20)
    assert "\n" not in str(error.value)
    asked = re.search(r"set decoding.memory=(\S+) or more", str(error.value))
    assert asked is not None
    foresight.batches(documents, read_size(asked[1]) or 0)  # what it says to type is enough


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("name", KINDS)
def test_translations_are_the_same(tmp_path: Path, name: str, search: str, capsys: pytest.CaptureFixture[str]) -> None:
    translator = Translator.load(make_run(tmp_path / "run", attention={"name": name}), "cpu")
    documents = [["the cat sees", "it runs"], ["a dog"], [""], ["a house", "a tree", "a cat"] * 3]
    settings = SEARCHES[search]
    alone = [translator.translate_documents([one], **settings)[0] for one in documents]
    for memory in ("5MiB", "1GiB"):
        found = translator.translate_documents(documents, memory=memory, progress=lambda *_: None, **settings)
        assert [t.segments for t in found] == [t.segments for t in alone]
        for one, wanted in zip(found, alone, strict=True):
            assert one.hypotheses[0].log_probability == pytest.approx(wanted.hypotheses[0].log_probability, abs=1e-4)
        assert capsys.readouterr().err.count("memory: ") == 1


def test_two_passes_have_no_such_limit(tmp_path: Path) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    with pytest.raises(ValueError, match=r"decoding.memory=1GiB: mode=two-pass .* set decoding.memory=null"):
        translator.translate([["a dog"]], mode="two-pass", memory="1GiB")


@pytest.mark.parametrize("memory", ["much", "0", "-1GiB", "2 XiB", True, 1.5, ""])
def test_what_is_no_size_is_refused(memory: object) -> None:
    with pytest.raises(ValueError, match=r"memory=.*\(wanted a size as 2GiB or 512MiB, or null\)"):
        DecodingConfig(memory=memory)  # type: ignore[arg-type]
