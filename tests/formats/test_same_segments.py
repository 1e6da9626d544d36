"""Training and translation read the same segments: of a catalogue, and of the same one without its translations."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from translate.storage.pypo import pofile

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.blocks import MARK, Block, BlockBuilder
from scaleformer.formats.po import PoFile
from scaleformer.formats.xliff import XliffFile

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
PIECES = (
    *("word ", "Two. ", "%s ", "%(name)s", "{n}", "<b>bold</b> ", "`code` ", "https://a.org/b ", "5 ", "é ", "\u00a0"),
    *("\ufffc", "  ", "\\n", "\\n\\n", "\\n \\n", "\\t", "\\033[1mword", "caf\\303\\251 ", '\\"q\\"'),
)
INLINE = (
    'See <g id="1">the <x id="2" equiv-text="{n}"/>big</g> <bpt id="3">&lt;b&gt;</bpt>file<ept id="3">&lt;/b&gt;</ept>'
    ' <ph id="6">{0}</ph>, <mrk mtype="term">word</mrk> <mrk mtype="protected">Kept <x id="8"/></mrk>\n %s &amp; end.'
)


def trained(format: str, path: Path) -> list[str]:
    return [segment for d in read_bitext(Bitext(format, str(path)), Counter()) for segment in d.source]


def written(block: Block) -> str:
    """The text of a block with its spans."""
    spans = iter(block.spans)
    return re.sub(MARK, lambda _: next(spans).content, block.text)


def is_prose(text: str) -> bool:
    """Whether a text has letters outside its spans. Others train, but need no translation."""
    builder = BlockBuilder()
    builder.text(text, 0)
    return builder.build() is not None


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("po/**/*.po")), ids=lambda path: path.stem)
def test_samples_of_po(path: Path) -> None:
    catalogue = pofile.parsefile(str(path))
    for unit in catalogue.units:
        if unit.istranslated() and not unit.hasplural():
            unit.target = ""
    before = [written(block) for block in PoFile(path.read_bytes(), "a.po").blocks]
    after = [written(block) for block in PoFile(bytes(catalogue), "a.po").blocks]
    found = trained("po", path)
    assert found
    assert [text for text in after if text not in before] == found


def test_messages_of_po(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(300):
        source = "\\n\\n".join("a" + "".join(rng.choices(PIECES, k=5)) for _ in range(rng.randint(1, 3)))
        (tmp_path / "a.po").write_text(f'msgid "{source}"\nmsgstr "{source}"\n')
        blocks = PoFile(f'msgid "{source}"\nmsgstr ""\n'.encode(), "a.po").blocks
        assert [written(block) for block in blocks] == list(filter(is_prose, trained("po", tmp_path / "a.po")))


@pytest.mark.parametrize("inline", [False, True], ids=["sample", "inline elements"])
def test_units_of_xliff(tmp_path: Path, inline: bool) -> None:
    """Codes, which translation copies from the file, are their text in training."""
    text = (SAMPLES / "catalogues" / "garden.xlf").read_text()
    text = text.replace("Leaves fall.", INLINE) if inline else text
    (tmp_path / "a.xlf").write_text(text)
    blocks = XliffFile(re.sub("<target>.*</target>", "", text).encode(), "a.xlf").blocks
    sources = [block for block in blocks if block.text != "Sow early."]  # a draft
    found = trained("xliff", tmp_path / "a.xlf")
    assert len(found) == len(sources) == 2
    for source, block in zip(found, sources, strict=True):
        assert re.fullmatch(".*?".join(map(re.escape, block.text.split(MARK))), source)
    if inline:
        assert found[1] == "See the {n}big <b>file</b> {0}, word Kept %s & end."
