"""Files of every format yield the blocks that a reader sees; unreadable ones give one line."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.formats.blocks import LABELS, Block, read_blocks, split_blocks
from scaleformer.system.errors import DataError
from tests.books import book

MARKDOWN = """# A *title*

A paragraph of
two lines.

- one
  - two

> quoted

| a | b |
|---|---|
| c | d |

```
code
```

<div>raw <b>text</b></div>
"""
HTML = """<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body><h1>A <em>title</em></h1>
<p>Some <code>x = 1</code>,<br>more.<script>no()</script> End.</p><ul><li>one<ul><li>two</li></ul></li></ul>
<table><tr><td>a</td><td><p>b</p></td></tr></table><!-- no --><pre>code
  here</pre>tail</body></html>"""


def found(path: Path, content: str) -> list[tuple[str, str]]:
    path.write_text(content, encoding="utf-8")
    return [(block.kind, block.text) for block in read_blocks(path)]


def test_text(tmp_path: Path) -> None:
    paragraphs = [("paragraph", "one\nline"), ("paragraph", "two")]
    assert found(tmp_path / "a.txt", "one\nline\n\n\ntwo\n") == paragraphs
    assert found(tmp_path / "a.txt", "one\ntwo\n") == [("paragraph", "one"), ("paragraph", "two")]
    long = "x" * 200
    assert found(tmp_path / "a.txt", f"one\n{long}\n\ntwo\n") == [("paragraph", t) for t in ("one", long, "two")]
    assert found(tmp_path / "a.txt", "") == []


def test_markdown(tmp_path: Path) -> None:
    assert found(tmp_path / "a.md", MARKDOWN) == [
        ("title", "A *title*"),
        ("paragraph", "A paragraph of two lines."),
        ("item", "one"),
        ("item", "two"),
        ("paragraph", "quoted"),
        *[("cell", letter) for letter in "abcd"],
        ("code", "code"),
        ("paragraph", "raw text"),
    ]


def test_markdown_with_comments_details_and_front_matter(tmp_path: Path) -> None:
    text = "<!-- a comment -->\n\n<details>\n<summary>More</summary>\n\ninside\n\n</details>\n\nend\n"
    wanted = [("paragraph", text) for text in ("More", "inside", "end")]
    assert found(tmp_path / "a.md", text) == wanted
    assert found(tmp_path / "a.md", f"---\ntitle: A page\n---\n{text}") == wanted
    assert found(tmp_path / "a.md", "---\n\none\n\n---\n") == [("paragraph", "one")]  # between two rules


def test_html(tmp_path: Path) -> None:
    assert found(tmp_path / "a.html", HTML) == [
        ("title", "T"),
        ("title", "A title"),
        ("paragraph", "Some `x = 1`, more. End."),
        ("item", "one"),
        ("item", "two"),
        ("cell", "a"),
        ("cell", "b"),
        ("code", "code\n  here"),
        ("paragraph", "tail"),
    ]
    assert found(tmp_path / "a.html", "  ") == found(tmp_path / "a.html", "<!-- no -->") == []


def test_docx(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Title", 1)
    document.add_paragraph("A paragraph.")
    document.add_paragraph("one", style="List Bullet")
    table = document.add_table(1, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(0, 2).text = "b"
    document.save(str(tmp_path / "a.docx"))
    wanted = [("title", "Title"), ("paragraph", "A paragraph."), ("item", "one"), ("cell", "wide"), ("cell", "b")]
    assert [(block.kind, block.text) for block in read_blocks(tmp_path / "a.docx")] == wanted


def test_docx_keeps_text_boxes_and_controls(tmp_path: Path) -> None:
    """Keeps text of content controls, insertions and text boxes, which python-docx skips, but no deleted text."""
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    compatible = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = "<w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent>"
    document = docx.Document()
    for xml in (
        f"<w:sdt {word}><w:sdtContent><w:p><w:r><w:t>control</w:t></w:r></w:p></w:sdtContent></w:sdt>",
        f"<w:p {word}><w:r><w:t>a</w:t><w:tab/></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old"
        "</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom></w:p>",
        f"<w:p {word} {compatible}><w:r><w:t>around</w:t><mc:AlternateContent><mc:Choice>{box}</mc:Choice>"
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r></w:p>",
    ):
        document.element.body.insert(len(document.element.body) - 1, docx.oxml.parse_xml(xml))
    document.save(str(tmp_path / "a.docx"))
    assert [block.text for block in read_blocks(tmp_path / "a.docx")] == ["control", "a new", "around", "box"]


def test_docx_with_code(tmp_path: Path) -> None:
    """What has a style of code, or one based on it, is code; a file all in Preformatted Text is prose."""
    document = docx.Document()
    add = document.styles.add_style
    add("Source Code", WD_STYLE_TYPE.PARAGRAPH)
    add("Verbatim Char", WD_STYLE_TYPE.CHARACTER)
    add("KeywordTok", WD_STYLE_TYPE.CHARACTER).base_style = document.styles["Verbatim Char"]
    add("Preformatted Text", WD_STYLE_TYPE.PARAGRAPH)
    document.add_paragraph("x  = 1", style="Source Code")
    mixed = document.add_paragraph("Call ")
    for text, style in (("def ", "KeywordTok"), ("f", "Verbatim Char"), (" twice.", None)):
        mixed.add_run(text, style=style)
    document.add_paragraph("A line.", style="Preformatted Text").paragraph_format.tab_stops.add_tab_stop(1)
    document.save(str(tmp_path / "a.docx"))
    wanted = [("code", "x  = 1"), ("paragraph", "Call `def f` twice."), ("paragraph", "A line.")]
    assert [(block.kind, block.text) for block in read_blocks(tmp_path / "a.docx")] == wanted


def test_epub(tmp_path: Path) -> None:
    """The pages in the order of reading, without the tables of contents."""
    (tmp_path / "a.epub").write_bytes(book())
    assert [(block.kind, block.text) for block in read_blocks(tmp_path / "a.epub")] == [
        ("paragraph", "It begins."),
        ("code", "code"),
        ("title", "The end"),
        ("paragraph", "It ends here & now. Use `x`."),
    ]
    (tmp_path / "b.epub").write_bytes(book(a=b"<p>\xff"))
    with pytest.raises(DataError, match=r"b\.epub: text/a\.xhtml: not UTF-8"):
        read_blocks(tmp_path / "b.epub")


def test_nothing_deeply_nested_is_lost(tmp_path: Path) -> None:
    """The parsers drop what is nested too deeply: such files are read completely or refused."""
    for name, start, end, reach in (("a.md", "{pad}- w\n", "", 126), ("a.html", "<div>w\n", "</div>", 253)):
        path = tmp_path / name
        for depth in (20, reach, 2 * reach, 20 * reach):
            levels = [start.format(pad="  " * level) for level in range(depth)]
            path.write_text("".join(levels) + end * depth)
            if depth <= reach:
                assert [block.text for block in read_blocks(path)] == ["w"] * depth
            else:
                with pytest.raises(DataError, match=f"{name}: (quotations or lists|unreadable HTML)"):
                    read_blocks(path)


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.docx").write_bytes(b"PK\x03\x04 and no more")
    with zipfile.ZipFile(tmp_path / "strict.docx", "w") as archive:
        archive.writestr("_rels/.rels", '<Relationship Type="http://purl.oclc.org/ooxml/officeDocument/x"/>')
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "c.md").write_text("x")
    for name, message in {
        "a.docx": "not a sound docx file",
        "strict.docx": "a strict Open XML document: save it",
        "b.txt": "b.txt",
        "none.docx": "none.docx: cannot be read: No such file",
        "none.md": "no such file",
        "a.pdf": "wanted one of .txt",
    }.items():
        with pytest.raises(DataError, match=message):
            read_blocks(tmp_path / name)
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(DataError, match=r"c.md: Markdown needs another package: pip install 'scaleformer\[doc"):
        read_blocks(tmp_path / "c.md")


def test_segments() -> None:
    blocks = [Block("title", "A title"), Block("paragraph", "Use `a. B` here.\nIt isn't Mr. Smith. That's all.")]
    title, paragraph, inside = (LABELS.index(label) for label in ("title", "paragraph", "inside"))
    texts = ["A title", "Use `a. B` here.", "It isn't Mr. Smith.", "That's all."]
    assert split_blocks(blocks, "en", "sentence") == (texts, [title, paragraph, inside, inside])
    whole = "Use `a. B` here. It isn't Mr. Smith. That's all."
    assert split_blocks(blocks, "en", "paragraph") == (["A title", whole], [title, paragraph])
    lines = ["A title", "Use `a. B` here.", "It isn't Mr. Smith. That's all."]
    assert split_blocks(blocks, "en", "none") == (lines, [title, paragraph, inside])


def test_emphasis_ends_with_its_sentence() -> None:
    text = "**Bold one.** Then _two._ And *it ends.*"
    found, _ = split_blocks([Block("paragraph", text)], "en", "sentence")
    assert found == ["**Bold one.**", "Then _two._", "And *it ends.*"]
    found, _ = split_blocks([Block("paragraph", "It ends. * Not this.")], "en", "sentence")
    assert found == ["It ends.", "* Not this."]


def test_quotations_do_not_swallow_sentences() -> None:
    text = "You'll see ``'^'`` in it. This is one. It isn't ``'x'`` at all. The end."
    found, _ = split_blocks([Block("paragraph", text)], "en", "sentence")
    assert found == ["You'll see ``'^'`` in it.", "This is one.", "It isn't ``'x'`` at all.", "The end."]


@given(
    text=st.text(st.sampled_from("aB1 .!?'`\"“”«»()。！\n\t\u00a0\u2029é日ক।؟")) | st.text(),
    language=st.sampled_from(["en", "es", "ja", "bn", "ar", "tlh"]),
)
@settings(max_examples=200, deadline=None)
def test_no_character_is_lost(text: str, language: str) -> None:
    """However the rules split it, only white space changes."""
    segments, _ = split_blocks([Block("paragraph", text)], language, "sentence")
    assert "".join("".join(segments).split()) == "".join(text.split())
