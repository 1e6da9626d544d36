"""Hooks of MkDocs: the site has the folders of the repository, so that its pages link to each other alike in both.

docs/x.md is docs/x.html there, and README.md the first page. Pages outside of docs/, and files that pages link to, are
added where they lie; pages of the public names are made from their docstrings.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")
LINK = re.compile(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")
# Names in tables are not broken where the page is narrow; the tables can be scrolled.
STYLE = ".md-typeset td code, .md-typeset th code { white-space: nowrap; word-break: normal; }\n"
# Title and what a page of the interface shows: the names in `__all__` of a package, or modules.
API = {
    "scaleformer": ("Translator", ("scaleformer",)),
    "ops": ("Attention on tensors", ("scaleformer.ops",)),
    "model": (
        "Model",
        ("scaleformer.model.transformer", "scaleformer.model.attention.base", "scaleformer.batch"),
    ),
    "data": (
        "Data",
        tuple(
            f"scaleformer.data.{name}"
            for name in ("config", "corpora", "datamodule", "batching", "tokenizer", "report", "synthetic.corpus")
        ),
    ),
    "formats": (
        "Documents and their formats",
        (
            "scaleformer.text.documents",
            *(
                f"scaleformer.formats.{name}"
                for name in (
                    "recognition",
                    "json_lines",
                    "text_pairs",
                    "bitexts",
                    "po",
                    "xliff",
                    "tmx",
                    "tables",
                    "rows",
                )
            ),
        ),
    ),
    "evaluation": (
        "Evaluation",
        (
            *(f"scaleformer.evaluation.{name}" for name in ("scores", "metrics", "significance")),
            "scaleformer.translation.log_probabilities",
        ),
    ),
}


def on_config(config: MkDocsConfig) -> None:
    """A folder in the nav stands for its pages, README.md first."""
    config.nav = _expanded(config.nav)


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(inner) for title, inner in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for inner in entry:
        if inner == "api/":
            found += [f"api/{name}.md" for name in API]
        elif isinstance(inner, str) and inner.endswith("/"):
            pages = sorted((ROOT / inner).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
            found += [page.relative_to(ROOT).as_posix() for page in pages]
        else:
            found.append(_expanded(inner))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ below docs/, those that lie elsewhere, and the pages of the interface."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
            files.append(_file(f"docs/{file.src_uri}", config))
    for name in OUTSIDE:
        files.append(_file(name, config))
    for page in [file for file in files if file.is_documentation_page()]:
        for target in LINK.findall(page.content_string):
            path = (ROOT / page.src_uri).parent.joinpath(target).resolve()
            if path.is_file() and path.is_relative_to(ROOT):
                name = path.relative_to(ROOT).as_posix()
                if files.get_file_from_path(name) is None and path.suffix != ".md":
                    files.append(_file(name, config))
    files.append(File.generated(config, "site.css", content=STYLE))
    for name, (title, parts) in API.items():
        files.append(File.generated(config, f"api/{name}.md", content=_interface(title, parts)))
    return files


def _file(name: str, config: MkDocsConfig) -> File:
    return File(name, str(ROOT), config.site_dir, config.use_directory_urls)


def _interface(title: str, parts: tuple[str, ...]) -> str:
    """The page of the public names of packages and modules."""
    shown = []
    for part in parts:
        package = ROOT / part.replace(".", "/") / "__init__.py"
        if package.exists():
            shown += [f"{part}.{name}" for name in _public(package)]
        else:
            shown.append(part)
    return "\n\n".join([f"# {title}", *(f"::: {name}" for name in shown)]) + "\n"


def _public(package: Path) -> list[str]:
    """What `__all__` of a package names."""
    for node in ast.parse(package.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    raise ValueError(f"{package} has no __all__")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    return with_deep_lists(markdown)


def with_deep_lists(markdown: str) -> str:
    """The same lists for Python-Markdown, which wants four spaces where CommonMark, and forges, want the width of the
    mark, and a blank line before a list."""
    lines = markdown.splitlines()
    new = list(lines)
    columns: list[int] = []  # of the open items: where their text begins
    begins: list[int] = []  # of the open lists: the line of the last item
    apart: set[int] = set()  # lines that want a blank one before them
    for token in MarkdownIt().enable("table").parse(markdown):
        if token.type in ("bullet_list_open", "ordered_list_open") and token.map is not None:
            if not columns and token.map[0]:
                apart.add(token.map[0])
            begins.append(token.map[0])
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            begins.pop()
        elif token.type == "list_item_open" and token.map is not None:
            first, stop = token.map
            if not all(line.strip() for line in lines[begins[-1] : first]):  # of several paragraphs
                apart.add(first)
            begins[-1] = first
            mark = re.match(r"\s*\S+\s*", lines[first])
            column = len(mark[0]) if mark else 0
            new[first] = "    " * len(columns) + lines[first][columns[-1] if columns else 0 :]
            columns.append(column)
            for number in range(first + 1, stop):
                rest = lines[number]
                kept = rest[column:] if not rest[:column].strip() else rest.lstrip()
                new[number] = ("    " * len(columns) + kept).rstrip()
        elif token.type == "list_item_close":
            columns.pop()
    for number in sorted(apart, reverse=True):
        if lines[number - 1].strip():
            new.insert(number, "")
    return "\n".join(new) + "\n"
