"""A small manual in two languages, on which the commands of docs/own-documents.md run."""

from __future__ import annotations

import random
from pathlib import Path

WORDS = {
    "server": "servidor", "page": "página", "letter": "carta", "table": "tabla", "garden": "jardín",
    "window": "ventana", "opens": "abre", "reads": "lee", "keeps": "guarda", "the": "el", "with": "con", "and": "y",
}  # fmt: skip


def sentence(rng: random.Random) -> tuple[str, str]:
    """A sentence of some words and its translation, word by word."""
    nouns, verbs = list(WORDS)[:6], list(WORDS)[6:9]
    words = ["the", rng.choice(nouns), rng.choice(verbs), "the", rng.choice(nouns), "with", "the", rng.choice(nouns)]
    code = f"`{rng.choice(nouns)}.{rng.randint(1, 99)}()`"
    source, target = [*words, "and", code], [*(WORDS[word] for word in words), "y", code]
    return f"{' '.join(source).capitalize()}.", f"{' '.join(target).capitalize()}."


def write_manual(folder: Path) -> None:
    """Write manual/en and manual/es, twelve Markdown pages each, and new/en with one page more, into `folder`."""
    rng = random.Random(1)
    for number in range(12):
        sides: tuple[list[str], list[str]] = ([], [])
        for block in ("# {}", "{} {} {}", "- {}\n- {}", "{} {}"):
            found = [sentence(rng) for _ in range(block.count("{}"))]
            for side, texts in zip(sides, zip(*found, strict=True), strict=True):
                side.append(block.format(*texts))
        for language, side in zip(("en", "es"), sides, strict=True):
            path = folder / "manual" / language / f"page{number}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n\n".join(side) + "\n", encoding="utf-8")
    new = folder / "new" / "en" / "upgrade.md"
    new.parent.mkdir(parents=True)
    new.write_text("# The server\n\nThe page *opens* the `x()`.\n\n- the [letter](u.md)\n", encoding="utf-8")
