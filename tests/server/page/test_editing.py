"""Editing on the page: what stays, what is checked anew, terms, and how differences are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tests.server.running import Running, markdown, translated

LONG = "the cat sees a dog\nit runs\na house\nthe tree\na dog runs\nthe cat\n"


def corrected(page: sync_api.Page, server: Running, fixed: dict[int, str], text: str = LONG) -> dict[str, Any]:
    """What the server makes of a text with these segments."""
    [first] = server.post(documents=[{"text": text}], options={"strategy": "greedy"}).json()["documents"]
    document = {"text": text, "draft": first["target"], "fixed": {str(n): one for n, one in fixed.items()}}
    [found] = server.post(documents=[document], options={"strategy": "greedy"}).json()["documents"]
    return found


def written(page: sync_api.Page) -> str:
    """The downloaded text."""
    with page.expect_download() as download:
        page.get_by_role("link", name="Download translation.txt").click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def shown(page: sync_api.Page) -> list[str]:
    """The present texts of the target segments, without what was deleted from them."""
    return page.locator("button.target").evaluate_all(
        """all => all.map(one => { const copy = one.cloneNode(true);
        copy.querySelectorAll("del").forEach(gone => gone.remove());
        return copy.textContent.trim().replace(/\\s+/g, " "); })"""
    )


def plain(document: dict[str, Any]) -> list[str]:
    """The segments of an answer as the page shows them."""
    return [" ".join(text.split()) or "(no translation)" for text in document["target"]]


def test_an_edited_segment_stays_and_the_others_are_checked(page, server):
    page.get_by_label("Text", exact=True).fill(LONG)
    page.get_by_role("button", name="Translate").click()
    translated(page)
    before = written(page)
    targets = page.locator("button.target")
    targets.first.focus()
    page.keyboard.press("F2")
    field = page.get_by_label("Translation of this segment")
    assert field.evaluate("field => field === document.activeElement")
    field.fill("never")
    field.press("Escape")
    assert field.count() == 0
    assert written(page) == before
    targets.first.press("F2")
    field.fill("haus")
    with page.expect_request("**/translate") as request:
        field.press("Enter")
    sent = request.value.post_data_json["documents"][0]
    assert (sent["fixed"], sent["draft"][0], len(sent["draft"])) == (
        {"0": "haus"}, "haus", 6
    )  # fmt: skip
    page.get_by_role("status").first.get_by_text("other segment").wait_for()
    wanted = corrected(page, server, {0: "haus"})
    translated(page)
    assert shown(page) == plain(wanted)
    assert wanted["changed"] == [0, 3, 4]
    marked = [n for n in range(6) if targets.nth(n).locator("ins, del").count()]
    assert marked == [3, 4]
    assert page.get_by_role("status").first.inner_text().startswith(f"{len(marked)} other segment")
    assert written(page) == wanted["text"]
    assert page.locator("button.target.fixed").count() == 1
    targets.nth(2).click()
    page.get_by_role("button", name="Edit this segment").click()
    field.fill("second")
    field.press("Control+Enter")
    page.locator("button.target.fixed").nth(1).wait_for()
    translated(page)
    both = corrected(page, server, {0: "haus", 2: "second"})
    assert written(page) == both["text"]
    page.get_by_role("heading", name="Translation", exact=True).click()
    page.keyboard.press("Control+z")
    translated(page)
    assert written(page) == wanted["text"]
    page.get_by_role("button", name="Undo").click()
    translated(page)
    assert written(page) == before
    assert page.locator("button.target.fixed").count() == 0
    assert page.get_by_role("button", name="Undo").count() == 0


def test_an_edited_segment_of_a_file_keeps_its_code(page, server, tmp_path):
    path = markdown(tmp_path)
    page.get_by_label("Choose files").set_input_files(path)
    page.get_by_role("button", name="Translate").click()
    translated(page)
    page.locator("button.target").nth(1).press("F2")
    field = page.get_by_label("Translation of this segment")
    assert page.get_by_text("⟨3⟩ `x()`").is_visible()
    field.fill("corre ⟨3⟩ ⟨1⟩ya⟨2⟩")
    page.get_by_role("button", name="Accept").click()
    page.locator("button.target.fixed").wait_for()
    page.get_by_role("status").first.get_by_text("other segment").wait_for()
    translated(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download page.translated.md").click()
    assert "\ncorre `x()` *ya*\n" in Path(download.value.path()).read_text(encoding="utf-8")


def stream(page: sync_api.Page, source: list[str], target: list[str], alignments: list[str]) -> list[dict[str, Any]]:
    """Let the server answer a text with these segments, and corrections with themselves; the latter's requests."""
    asked: list[dict[str, Any]] = []
    document = {"document": 0, "target": target, "alignments": alignments, "finished": True, "cut": [], "text": "t"}
    page.route("**/translate/stream", lambda route: route.fulfill(
        headers={"Content-Type": "text/event-stream"},
        body=f"event: source\ndata: {json.dumps({'documents': [{'id': 'a', 'source': source}]})}\n\n"
        f"event: document\ndata: {json.dumps(document)}\n\nevent: end\ndata: {{}}\n\n",
    ))  # fmt: skip

    def answer(route: sync_api.Route) -> None:
        [given] = route.request.post_data_json["documents"]
        found = {
            "target": given.get("draft"),
            "changed": [],
            "cut": [],
            "alignments": alignments,
            "text": "t",
            "n_best": [],
        }
        asked.extend([given] if "draft" in given else [])
        route.fulfill(json={"documents": [found]})

    page.route("**/translate", answer)
    return asked


def test_a_term_that_is_written_in_two_ways_is_written_in_one(page):
    source = ["the kernel runs", "a kernel", "Kernel modules", "the kernel"]
    target = ["el núcleo, corre", "un kernel", "Kernel: módulos", "el disco duro"]
    asked = stream(page, source, target, ["0-0 1-1 2-2", "0-0 1-1", "0-0 1-1", "0-0 1-1 1-2"])
    page.get_by_label("Text", exact=True).fill("text")
    page.get_by_role("button", name="Translate").click()
    translated(page)
    page.locator("button.target").first.click()
    words = page.locator("button.word")
    assert [word.evaluate("word => word.classList.contains('twice')") for word in words.all()] == [False, True, False]
    words.nth(1).click()
    offers = page.get_by_text("kernel is written in 3 ways").get_by_role("button")
    assert offers.all_inner_texts() == ["kernel (2)", "núcleo (1)", "disco duro (1)"]
    offers.nth(1).click()
    page.get_by_role("status").first.get_by_text("No other segments changed").wait_for()
    assert shown(page) == ["el núcleo, corre", "un núcleo", "Núcleo: módulos", "el núcleo"]
    assert [one["fixed"] for one in asked] == [{"1": "un núcleo", "2": "Núcleo: módulos", "3": "el núcleo"}]
    page.keyboard.press("Control+z")
    assert shown(page) == target


def test_an_edit_of_a_long_document_touches_only_what_changes(page):
    count = 5000
    stream(page, ["it runs"] * count, ["corre"] * count, [""] * count)
    page.get_by_label("Text", exact=True).fill("text")
    page.get_by_role("button", name="Translate").click()
    page.get_by_role("link", name="Download").wait_for()
    page.evaluate(
        """() => { window.touched = 0; new MutationObserver(all => { window.touched += all.length; }).observe(
        document.getElementById("segments"), { childList: true, characterData: true, subtree: true }); }"""
    )
    page.locator("button.target").first.press("F2")
    page.get_by_label("Translation of this segment").fill("va")
    page.get_by_label("Translation of this segment").press("Enter")
    page.get_by_role("status").first.get_by_text("No other segments changed").wait_for()
    assert page.evaluate("window.touched") < 20


@pytest.mark.parametrize(
    ("before", "after", "html"),
    [
        ("a b c d", "a x c d", "a <del>b</del><ins>x</ins> c d"),
        ("a b", "a b c", "a b<ins> c</ins>"),
        ("", "a", "<ins>a</ins>"),
        ("犬が見る", "猫が見る", "<del>犬</del><ins>猫</ins>が見る"),
        ("a ⟨1⟩ b", "a b ⟨1⟩", None),
    ],
)
def test_a_difference_is_of_words(page, before, after, html):
    shown = page.evaluate(
        """([before, after]) => make("p", {}, ...difference(before, after, ["x"])).innerHTML""", [before, after]
    )
    if html is not None:
        assert shown == html
    for gone, wanted in (("ins", before), ("del", after)):
        text = page.evaluate(
            """([html, gone]) => { const e = make("p", { innerHTML: html });
            e.querySelectorAll(gone).forEach(one => one.remove()); return e.textContent; }""",
            [shown, gone],
        )
        assert text == wanted.replace("⟨1⟩", "x")
