"""Several corpora: shares, passes, processes, tags, and runs that stop and go on."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.vocabulary import SEP
from tests.data.test_datamodule_resume import VALIDATING, fit

Ids = list[tuple[str, ...]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Corpora `long` and `short`, whose documents bear their names."""
    found = {}
    for name, seed, counts in (("long", 1, (160, 6, 4)), ("short", 2, (70, 4, 3))):
        folder = tmp_path_factory.mktemp(name)
        config = SyntheticConfig(seed=seed, train=counts[0], valid=counts[1], test=counts[2], segments=(1, 5))
        for split in ("train", "valid", "test"):
            lines = [Document(f"{name}-{d.id}", d.source, d.target).to_json() for d in generate(config, split)]
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        found[name] = str(folder)
    return found


def mixed(
    cache: Path,
    folders: dict[str, str],
    long: dict[str, Any] | None = None,
    short: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    **options: Any,
) -> DocumentDataModule:
    entries = {
        "long": {"path": folders["long"], "weight": 3, **(long or {})},
        "short": {"path": folders["short"], "weight": 1, **(short or {})},
    }
    corpora = {name: {k: v for k, v in entry.items() if v is not None} for name, entry in entries.items()}
    settings = {"format": "jsonl", "cache_dir": str(cache), "max_tokens": 60, "batch_tokens": 600, **options}
    return DocumentDataModule(
        DataConfig(corpora=corpora, **settings), TokenizerConfig(**{"vocab_size": 450, **(tokenizer or {})})
    )


def shares(data: DocumentDataModule) -> list[float]:
    return [corpus.share for corpus in data.report.corpora.values()]


def drawn(batches: Ids) -> Counter[str]:
    """Examples by corpus."""
    return Counter(name.split("-")[0] for batch in batches for name in batch)


def epochs_of(data: DocumentDataModule, count: int = 1) -> list[Ids]:
    loader = data.train_dataloader()
    return [[batch.ids for batch in loader] for _ in range(count)]


def of_two_processes(make: Any, count: int = 1) -> list[list[Ids]]:
    """By process what `epochs_of` gives; the two exchange as over a network."""
    barrier, given, found = threading.Barrier(2, timeout=60), [None, None], [None, None]

    def process(rank: int) -> None:
        data = make()

        def everywhere(value: Any) -> list[Any]:
            given[rank] = value
            barrier.wait()
            values = list(given)
            barrier.wait()
            return values

        data.trainer = SimpleNamespace(
            state=SimpleNamespace(fn=None), world_size=2, accumulate_grad_batches=1, global_rank=rank
        )
        data._everywhere = everywhere
        found[rank] = epochs_of(data, count)

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found
    return found


CHOICES = [
    pytest.param({}, {}, id="kept"),
    pytest.param({}, {"long": {"streaming": True}, "window": 90}, id="the first streamed"),
    pytest.param({}, {"short": {"streaming": True}, "window": 40}, id="the second streamed"),
    pytest.param({}, {"streaming": True, "window": 60}, id="both streamed"),
    pytest.param({"sample_alpha": 0.2}, {"window": 60, "join_segments": (1, 3)}, id="sampled and joined"),
]


@pytest.mark.parametrize(("tokenizer", "options"), CHOICES)
@pytest.mark.parametrize("processes", [1, 2])
def test_examples_are_drawn_by_the_weights(
    cache: Path, folders: dict[str, str], processes: int, tokenizer: dict[str, Any], options: dict[str, Any]
) -> None:
    def make() -> DocumentDataModule:
        return mixed(cache, folders, tokenizer=tokenizer, **options)

    found = [epochs_of(make(), 2)] if processes == 1 else of_two_processes(make, 2)
    assert len({tuple(map(len, own)) for own in found}) == 1  # as many batches everywhere
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
    said = [line for line in caplog.messages if "begin anew" in line]
    assert said == [
        f"corpora begin anew; so often each was read whole: long {n}, short {int(n * times / 2)}" for n in (1, 2)
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
        pytest.param({}, {"long": {"streaming": True}, "window": 60, "word_dropout": 0.2}, {}, id="one streamed"),
        pytest.param({}, {"streaming": True, "window": 60, "num_workers": 2}, {}, id="streamed by two workers"),
        pytest.param({"sample_alpha": 0.2}, {"window": 60, "join_segments": (1, 3)}, {}, id="sampled and joined"),
    ],
)
def test_runs_go_on_with_the_very_next_batch(
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
        assert fit(make(), steps, None, checkpoint, **trainer) == whole[done:]


def test_two_processes_go_on_too(cache: Path, folders: dict[str, str]) -> None:
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


def test_changed_corpora_go_on_with_the_next_epoch(cache: Path, tmp_path: Path, folders: dict[str, str]) -> None:
    fit(mixed(cache, folders), 3, tmp_path)
    state = torch.load(tmp_path / "step=3.ckpt", weights_only=True)["DocumentDataModule"]
    for changed in ({"short": {"weight": 2}}, {"short": {"tag": "x"}}, {"batch_tokens": 500}):
        data = mixed(cache, folders, **changed)
        data.load_state_dict(state)
        with pytest.warns(UserWarning, match="settings changed since the checkpoint was written inside epoch 0"):
            loader = data.train_dataloader()
        assert loader.position == (1, 0, 0)
        assert drawn([batch.ids for batch in loader])["short"] > 0


def test_tags_stand_before_every_example(cache: Path, folders: dict[str, str]) -> None:
    data = mixed(cache, folders, {"tag": "<2es>"}, {"tag": "bible"}, max_tokens=40)
    tags = data.source_tokenizer.tags
    assert list(tags) == ["2es", "bible"]
    assert {name: part.tag for name, part in data.parts.items()} == {"long": tags["2es"], "short": tags["bible"]}
    plain = mixed(cache, folders, max_tokens=40)
    assert plain.source_tokenizer.tags == {}
    cut = 0
    loaders = [data.train_dataloader(), data.val_dataloader()]
    for batch in (batch for loader in loaders for batch in loader):
        for name, tokens, segments in zip(batch.ids, batch.source.tolist(), batch.source_segments, strict=True):
            assert tokens[0] == tags["2es" if name.startswith("long") else "bible"]
            assert not set(tokens[1:]) & set(tags.values())
            assert segments[: tokens.index(SEP) + 1].eq(0).all()
            cut += "[" in name and not name.split("[")[1].startswith("0")
        assert not set(batch.target_output.flatten().tolist()) & set(tags.values())
    assert cut > 0
    assert max(split.longest_source for split in data.report.splits.values()) == 40


def test_a_tag_of_a_single_corpus(cache: Path, folders: dict[str, str]) -> None:
    def make(**options: Any) -> DocumentDataModule:
        path = folders["short"]
        config = DataConfig(format="jsonl", path=path, cache_dir=str(cache), max_tokens=60, batch_tokens=600, **options)
        return DocumentDataModule(config, TokenizerConfig(vocab_size=400, joint=False))

    tagged, plain = make(tag="bt"), make()
    (tag,) = tagged.source_tokenizer.tags.values()
    assert tagged.target_tokenizer.hash == plain.target_tokenizer.hash
    assert tagged.source_tokenizer.hash != plain.source_tokenizer.hash
    for batch in [*tagged.train_dataloader(), *tagged.val_dataloader()]:
        assert batch.source[:, 0].eq(tag).all()
    streamed = make(tag="bt", streaming=True)
    assert all(batch.source[:, 0].eq(tag).all() for batch in streamed.train_dataloader())
    known = DocumentDataModule(make(tag="other").config, tokenizers=tagged.tokenizers)
    with pytest.raises(ValueError, match=r"data\.tag=other: .* has no such piece: its tags are bt$"):
        known.prepare_data()
    known = DocumentDataModule(make(tag="other").config, tokenizers=plain.tokenizers)
    with pytest.raises(ValueError, match=r"data\.tag=other: .* has no such piece: it has no tags$"):
        known.prepare_data()


def test_tokenizers_and_documents_of_all(cache: Path, folders: dict[str, str]) -> None:
    data = mixed(cache, folders)
    names = [document.id for document in data.documents("test")]
    assert [name.split("/")[0] for name in names] == ["long"] * 4 + ["short"] * 3
    assert list(data.report.splits) == ["long: train", "long: valid", "short: train", "short: valid"]
    batches = list(data.val_dataloader())
    assert len(batches) == len(data.val_dataloader())
    assert all(name.startswith(batch.corpus) for batch in batches for name in batch.ids)
    assert {batch.corpus for batch in batches} == {"long", "short"}
    assert set(data.fingerprint()) == {"train", "valid", "test"}


def test_any_formats_together(cache: Path, folders: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one two\n\nthree four\n")
    (tmp_path / "train.es").write_text("uno dos\n\ntres cuatro\n")
    text = {"format": "text", "path": str(tmp_path), "source_suffix": "en", "target_suffix": "es"}
    synthetic = {"format": "synthetic", "path": None, "synthetic": {"train": 20, "valid": 1, "test": 1}}
    data = mixed(cache, folders, text, synthetic)
    (epoch,) = epochs_of(data)
    counts = Counter("text" if name.split("-")[0].startswith("train.") else "rest" for b in epoch for name in b)
    assert counts.total() > 4
    assert set(data.parts) == {"long", "short"}


def test_mistakes_are_told_in_one_line(cache: Path, folders: dict[str, str], tmp_path: Path) -> None:
    def refused(kind: type[Exception], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match) as error:
            mixed(cache, folders, **options).train_dataloader()
        assert "\n" not in str(error.value)

    for weight in (0, -1.5):
        refused(ValueError, rf"data\.corpora\.long\.weight={weight}: wanted a number above 0", long={"weight": weight})
    refused(ValueError, r"data\.corpora\.short\.weight is missing: long has a weight", short={"weight": None})
    refused(ValueError, r"data\.corpora\.long\.wieght: no such setting \(did you mean", long={"wieght": 1})
    refused(ValueError, r"data\.corpora\.long\.max_tokens: no such setting", long={"max_tokens": 1})
    refused(ValueError, r"data\.corpora\.long\.path=3: wanted str", long={"path": 3})
    refused(ValueError, r"data\.corpora\.long: data\.format='x': choose one of", long={"format": "x"})
    refused(ValueError, r"long: data\.tag='sep': <sep> is a piece already", long={"tag": "sep"})
    refused(ValueError, r"long: data\.tag='0x41': <0x41> is a piece already", long={"tag": "0x41"})
    refused(ValueError, r"long: data\.tag='a b': wanted a letter or digit", long={"tag": "a b"})
    refused(ValueError, r"data\.path='x': every corpus of data\.corpora has its own", path="x")
    refused(ValueError, r"data\.tag='x': every corpus of data\.corpora has its own", tag="x")
    refused(ValueError, r"data\.temperature=2\.0: it makes weights where no corpus has one", temperature=2.0)
    refused(ValueError, r"data\.temperature=0\.0: wanted a number above 0", temperature=0.0)
    streamed = {"long": {"weight": None, "streaming": True}, "short": {"weight": None}}
    refused(ValueError, r"data\.corpora\.long\.weight is missing: it is streamed", **streamed)
    for name in ("Long", "a b", "", "../x"):
        entries = {"long": {"path": "a"}, name: {"path": "b"}}
        with pytest.raises(ValueError, match=r"data\.corpora: .*(are one name where case is ignored|is no name)"):
            DataConfig(format="jsonl", corpora=entries)
    (tmp_path / "test.jsonl").write_text(Document("a", ("x",), ("y",)).to_json() + "\n")
    refused(DataError, r"^data\.corpora\.short: .*: no 'train' split; present: test", short={"path": str(tmp_path)})
    refused(DataError, r"^data\.corpora\.short: .*none: no such file or folder", short={"path": str(tmp_path / "none")})
    with pytest.raises(ValueError, match=r"data\.corpora\.a='x': it is a group of settings"):
        DataConfig(format="jsonl", corpora={"a": "x"})
