"""docs/configuration.md says what conf/ says, all of it, and a stale page is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scaleformer.cli.help import described_settings
from scripts.pages import configuration
from scripts.pages.configuration import CONF, PAGE, main, page


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def test_the_page_is_fresh(text: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == text, "python -m scripts.pages.configuration"


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_every_setting_is_there(path: Path, text: str) -> None:
    folder = path.relative_to(CONF).parent.as_posix()
    prefix = "" if folder in (".", "commands", "experiment") else f"{folder.replace('/', '.')}."
    settings = described_settings(path.read_text(encoding="utf-8"))
    assert not [s.name for s in settings if s.value and f"| `{prefix}{s.name}` | `{s.value}` |" not in text]


def test_rows_have_type_and_comment_and_markup_is_escaped(text: str) -> None:
    assert "| `tokenizer.model_type` | `unigram` | one of unigram, bpe | unigram \\[Kudo 2018\\] \\| bpe " in text
    assert "| `data.max_ratio` | `null` | float of at least 1 or null | leave out" in text
    rows = [line for line in text.splitlines() if re.match(r"\| `[\w.]+` \| .* \| .* \| ", line)]
    assert len(rows) > 400
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_a_stale_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configuration, "ROOT", tmp_path)
    monkeypatch.setattr(configuration, "PAGE", tmp_path / "page.md")
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "page.md").write_text("old", encoding="utf-8")
    assert main(["--check"]) == 1
    assert "write it anew by python -m scripts.pages.configuration" in capsys.readouterr().out
