"""The pages hold together: links, anchors and footnotes lead somewhere, files named exist, and no page is an orphan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")), *DOCS]
LOG = [page for page in DOCS if page.parent.name == "log" and page.name != "README.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:scaleformer|tests|conf|scripts|docs|data)/[\w./-]+\.(?:py|yaml|md|png))`")


def prose(page: Path) -> str:
    """The page without fenced and indented code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    footnote = r"(?<!\]:)"  # an indented line continues the footnote before it
    return re.sub(rf"(?:\A|\n\n){footnote}(?:    .*\n?)+", "\n\n", text)


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """(file, anchor) of the links of a page into the repository."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    targets = [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    parts = [target.partition("#") for target in targets]
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in parts]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to #{anchor} of {name(target)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_footnote_has_its_text(page: Path) -> None:
    marks = re.findall(r"\[\^(\w+)\](:?)", prose(page))
    assert {mark for mark, colon in marks if colon} == {mark for mark, colon in marks if not colon}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_named_exists(page: Path) -> None:
    if page.name != "CHANGELOG.md":  # which tells of what is gone, too
        named = [file for file in NAMED.findall(page.read_text(encoding="utf-8")) if "NAME" not in file]
        assert not [file for file in named if not (ROOT / file).exists()]


def test_every_page_named_in_code_exists() -> None:
    files = [file for folder in ("scaleformer", "conf") for file in (ROOT / folder).rglob("*.[py]*") if file.is_file()]
    texts = [file.read_text(encoding="utf-8") for file in [*files, ROOT / "Makefile"] if file.suffix != ".pyc"]
    named = {page for text in texts for page in re.findall(r"\bdocs/[\w./-]+\.(?:md|png)", text)}
    assert "docs/scaling.md" in named
    assert not [page for page in sorted(named) if not (ROOT / page).exists()]


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_no_page_is_an_orphan(start: str) -> None:
    reached, new = set(), {ROOT / start}
    while new:
        reached |= new
        new = {target for page in new for target, _ in links(page) if target.suffix == ".md"} - reached
    assert not [name(page) for page in DOCS if page not in reached | {ROOT / "docs/index.md"}]


def test_the_index_has_every_page_but_the_entries_of_the_log() -> None:
    listed = {target for target, _ in links(ROOT / "docs/index.md")}
    assert {page for page in DOCS if page not in LOG} - listed == {ROOT / "docs/index.md"}


@pytest.mark.parametrize("page", LOG, ids=name)
def test_every_entry_of_the_log_has_its_five_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Question", "Change", "Command", "Result", "Decision"]
    assert text.startswith(f"# {int(page.name[:3])}. ")


def test_the_log_is_numbered_without_gaps_and_its_index_has_every_entry() -> None:
    assert [int(page.name[:3]) for page in LOG] == list(range(1, len(LOG) + 1))
    listed = [target for target, _ in links(ROOT / "docs/log/README.md") if target in LOG]
    assert listed == LOG
