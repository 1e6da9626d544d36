"""The site: pages of the whole repository with its folders, lists as forges read them, docstrings as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import markdown
import pytest
from markdown_it import MarkdownIt

from scripts.pages.docstrings import as_markdown

pytest.importorskip("mkdocs", reason="pip install 'scaleformer[docs]'")

from mkdocs.commands.build import build
from mkdocs.config import load_config

from scripts.pages.site import API, OUTSIDE, ROOT, with_deep_lists

PAGES = [*OUTSIDE, *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))]
COLUMNS = """\
What it is.

q       queries
k, v    keys
        and values
long_nm as wide as the column
much_longer
        in a line of its own
one,    of two,
two     together
Raises ValueError for others.

    s = q . k
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    build(config)
    return folder


def test_every_page_is_there(site: Path) -> None:
    index = {"README.md": "index.html"}
    for page in PAGES:
        name = re.sub(r"README\.md$", "index.html", page).removesuffix(".md").removesuffix(".html") + ".html"
        assert (site / index.get(page, name)).is_file(), page
    assert all((site / f"api/{name}.html").is_file() for name in API)


def test_links_between_pages_and_to_files_are_those_of_the_repository(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:|//", target):
                assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in (site / "index.html", site / "docs/attention.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page.read_text())
        assert not loaded


def test_the_interface_is_explained(site: Path) -> None:
    text = (site / "api/ops.html").read_text(encoding="utf-8")
    assert 'id="scaleformer.ops.segment_recall_attention"' in text
    assert "<code>log_gate</code>: (H, 2N+3)" in text


@pytest.mark.parametrize("page", PAGES)
def test_lists_are_those_of_commonmark(page: str) -> None:
    """As many items and tables as on a forge."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^\[\^\w+\]:.*(?:\n    .*)*", "", text, flags=re.MULTILINE)  # of which CommonMark knows none
    wanted = MarkdownIt().enable("table").render(text)
    made = markdown.markdown(with_deep_lists(text), extensions=["tables", "sane_lists", "pymdownx.superfences"])
    for tag in ("<li>", "<td", "<ol", "<ul>"):
        assert made.count(tag) == wanted.count(tag), tag


def test_lists_are_indented_for_python_markdown() -> None:
    text = "Text:\n* one\n  more\n\n  para\n  1. in\n     it\n\n* two\n\nEnd.\n"
    assert with_deep_lists(text) == "Text:\n\n* one\n    more\n\n    para\n    1. in\n        it\n\n* two\n\nEnd.\n"


def test_columns_of_docstrings_become_lists() -> None:
    assert as_markdown(COLUMNS) == (
        "What it is.\n\n* `q`: queries\n* `k, v`: keys and values\n* `long_nm`: as wide as the column\n"
        "* `much_longer`: in a line of its own\n* `one, two`: of two, together\n\nRaises ValueError for others.\n\n"
        "    s = q . k"
    )
