"""The commands of docs/public-models.md, on small models with random weights."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from scaleformer.checkpoints.model_file import load_model
from scaleformer.translation.translator import Translator
from tests.commands.calls import run_command
from tests.public_models import CODES, SEARCH, lines, make
from tests.server.running import running

PAGE = Path(__file__).parents[1] / "docs" / "public-models.md"
COMMANDS = re.findall(r"^    (scaleformer (\w+) .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
SMALL = {
    "train": [
        *("trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.precision=32-true", "test.enabled=false"),
        *("schedule.warmup_steps=1", "callbacks.validation_bleu.examples=0", "data.cache_dir=cache"),
    ],
    "evaluate": ["ter=false", "decoding.max_length_ratio=0.5"],
    "translate": ["decoding.max_length_ratio=0.5"],
}


def test_every_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "opus-mt-en-es", "marian")
    make(tmp_path / "nllb-200", "nllb")
    source, target = lines(60)
    (tmp_path / "corpus").mkdir()
    for split, (first, last) in {"train": (0, 40), "valid": (40, 50), "test": (50, 60)}.items():
        rows = [{"id": str(n), "source": source[n : n + 5], "target": target[n : n + 5]} for n in range(first, last, 5)]
        (tmp_path / "corpus" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "page.md").write_text(f"# {source[0]}\n\n{source[1]} See `x = 1`.\n")
    assert [name for _, name in COMMANDS][:5] == ["translate", "translate", "evaluate", "train", "translate"]
    for command, name in COMMANDS:
        code, _, err = run_command(monkeypatch, capsys, name, *shlex.split(command)[2:], *SMALL.get(name, []))
        assert code == 0, f"{command}\n{err}"
    for name in ("page.es.md", "page.fr.md", "page.new.md"):
        assert "`x = 1`" in (tmp_path / name).read_text()
    assert (tmp_path / "runs/adapted/checkpoints/best.ckpt").is_file()


def test_a_corpus_has_to_be_named(tmp_path: Path, monkeypatch, capsys) -> None:
    make(tmp_path / "model", "marian")
    code, _, err = run_command(monkeypatch, capsys, "evaluate", f"checkpoint={tmp_path / 'model'}")
    assert code == 1
    assert "error: the checkpoint names no corpus: choose one with data=jsonl data.path=DIR" in err


@pytest.mark.parametrize("kind", ["tagged", "nllb"])
def test_a_server_translates_into_every_language_of_a_model(kind: str, tmp_path: Path) -> None:
    make(tmp_path / kind, kind, **({"init_std": 1.0} if kind == "tagged" else {}))
    texts = lines(20, seed=5)[0]
    loaded = load_model(tmp_path / kind)
    tags = ["es", "fr"] if kind == "tagged" else ["eng_Latn-fra_Latn", "eng_Latn-deu_Latn"]
    wanted = [Translator(loaded, SEARCH, tag).translate([texts], mode="segment")[0] for tag in tags]
    assert wanted[0] != wanted[1]
    with running(Translator(loaded, SEARCH, tags[1])) as server:
        assert server.client.get("/health").json()["tags"] == (["es", "fr"] if kind == "tagged" else CODES)
        for tag, expected in zip(tags, wanted, strict=True):
            options = {"tag": tag, "mode": "segment"}
            [found] = server.post(documents=[{"source": texts}], options=options).json()["documents"]
            assert found["target"] == expected
        refused = server.post(documents=[{"source": texts}], options={"tag": "xx"})
        assert refused.status_code == 422
        assert "tag=xx: the model knows no such tag" in refused.text


@pytest.mark.parametrize("kind", ["tagged", "nllb"])
def test_a_tag_stands_before_every_segment_in_training(kind: str, tmp_path: Path) -> None:
    from scaleformer.data.tokenizer_import import tagged
    from tests.public_models import TAGS

    make(tmp_path / kind, kind)
    loaded = load_model(tmp_path / kind)
    source, target = tagged(loaded.source_tokenizer, loaded.target_tokenizer, TAGS[kind])
    names = {token: name for name, token in source.tags.items()}
    segments = source.encode_segments(lines(3)[0])
    assert [names[token] for token in segments if token in names] == [
        TAGS[kind].split("-")[0] + "-" * (kind == "nllb")
    ] * 3
    assert ("fra_Latn-" in {names.get(token) for token in target.encode("x")}) == (kind == "nllb")
