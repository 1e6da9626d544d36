"""PowerPoint presentations for tests, written part by part."""

from __future__ import annotations

from tests.formats.word import TYPES, packed, parts_of

A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
SPACES = (
    f'xmlns:a="{A}" xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" xmlns:p="{P}" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)
_KIND = "application/vnd.openxmlformats-officedocument."
_OVERRIDE = '<Override PartName="/ppt/{}" ContentType="' + _KIND + '{}+xml"/>'
_RELATION = '<Relationship Id="{}" Target="{}"/>'


def ar(text: str, properties: str = "", inside: str = "") -> str:
    """A run; properties: attributes; inside: elements among its properties."""
    return f"<a:r><a:rPr {properties}>{inside}</a:rPr><a:t>{text}</a:t></a:r>"


def ap(*runs: str) -> str:
    return f'<a:p><a:pPr lvl="1"/>{"".join(runs)}<a:endParaRPr lang="en"/></a:p>'


def shape(*paragraphs: str, role: str = "") -> str:
    role = role and f'<p:ph type="{role}"/>'
    text = f"<p:txBody><a:bodyPr/>{''.join(paragraphs)}</p:txBody>"
    return f"<p:sp><p:nvSpPr><p:nvPr>{role}</p:nvPr></p:nvSpPr>{text}</p:sp>"


def presentation(*slides: str, relations: dict[str, dict[str, str]] | None = None, **others: str) -> bytes:
    """A file with these slides, in their order; relations: of parts to others, by names; others: parts by their kinds,
    which are read as PresentationML."""
    names = [f"slides/slide{number}.xml" for number in range(1, len(slides) + 1)]
    types = [_OVERRIDE.format("presentation.xml", "presentationml.presentation.main")]
    types += [_OVERRIDE.format(name, "presentationml.slide") for name in names]
    types += [_OVERRIDE.format(f"{kind}.xml", f"presentationml.{kind}") for kind in others]
    order = "".join(f'<p:sldId r:id="rId{number}"/>' for number in range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": TYPES.format("".join(types)),
        "ppt/presentation.xml": f"<p:presentation {SPACES}><p:sldIdLst>{order}</p:sldIdLst></p:presentation>",
    }
    parts |= {f"ppt/{name}": f"<p:sld {SPACES}>{xml}</p:sld>" for name, xml in zip(names, slides, strict=True)}
    roots = {"slideLayout": "sldLayout", "slideMaster": "sldMaster"}
    for kind, xml in others.items():
        root = roots.get(kind, kind)
        parts[f"ppt/{kind}.xml"] = f"<p:{root} {SPACES}>{xml}</p:{root}>"
    given = {"presentation.xml": {f"rId{n}": name for n, name in enumerate(names, 1)}} | (relations or {})
    for name, targets in given.items():
        folder, _, own = name.rpartition("/")
        listed = "".join(_RELATION.format(*one) for one in targets.items())
        parts[f"ppt/{folder}/_rels/{own}.rels".replace("//", "/")] = f"<Relationships>{listed}</Relationships>"
    return packed(parts)


def slide(data: bytes, number: int = 1) -> str:
    """What a slide of `presentation` holds."""
    xml = parts_of(data)[f"ppt/slides/slide{number}.xml"].decode()
    return xml.partition(">")[2].removesuffix("</p:sld>")
