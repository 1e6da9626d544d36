"""EPUB books for tests."""

from __future__ import annotations

import io
import zipfile

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="text/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/" version="3.0">
<metadata><dc:title>The book</dc:title></metadata>
<manifest>
<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="part%202/b.xhtml" media-type="application/xhtml+xml"/>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="font" href="font.otf" media-type="font/otf"/>
<item id="far" href="https://example.org/a.mp3" media-type="audio/mpeg"/>
</manifest>
<spine toc="ncx"><itemref idref="b"/><itemref idref="a"/></spine>
</package>
"""
PAGE = (
    '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><head><link href="s.css"/>'
    "</head><body>{}</body></html>"
)
CONTENTS = (
    '<?xml version="1.0"?><ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint id="n"><navLabel>'
    '<text>{}</text></navLabel><content src="a.xhtml"/></navPoint></navMap></ncx>'
)


def encrypted(part: str) -> str:
    """What protects a part."""
    return f'<encryption><e><CipherData><CipherReference URI="{part}"/></CipherData></e></encryption>'


def parts() -> dict[str, str | bytes]:
    """A book whose second page is read first, with a protected font."""
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "META-INF/encryption.xml": encrypted("text/font.otf"),
        "text/book.opf": PACKAGE,
        "text/a.xhtml": PAGE.format("<h1>The end</h1><p>It <em>ends</em><br/>here &amp; now. Use <code>x</code>.</p>"),
        "text/part 2/b.xhtml": PAGE.format("<p>It begins.</p><pre>code</pre>"),
        "text/nav.xhtml": PAGE.format('<nav><a href="a.xhtml">To the end</a></nav>'),
        "text/toc.ncx": CONTENTS.format("To the end"),
        "text/font.otf": b"\0\1",
    }


def book(**changed: str | bytes | None) -> bytes:
    """The file of `parts`; changed: other content, or None to leave the part out, by the beginning of its file name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts().items():
            new = next((new for begin, new in changed.items() if name.rpartition("/")[2].startswith(begin)), content)
            if new is not None:
                method = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
                archive.writestr(name, new, method)
    return file.getvalue()
