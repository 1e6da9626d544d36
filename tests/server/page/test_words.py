"""Other translations of a segment on the page, and the source words that each word looked at."""

from __future__ import annotations

from pathlib import Path

from playwright import sync_api

from tests.server.running import TEXT, translated


def test_what_is_kept_is_shown_as_it_is(page):
    """The answer of the server is replaced: the translation lacks one placeholder, and has one too many."""
    text = "see https://a.org/b of `x y` now"
    page.route("**/translate/stream", lambda route: route.fulfill(
        headers={"Content-Type": "text/event-stream"},
        body='event: source\ndata: {"documents": [{"id": "a", "source": ["see ⟨1⟩ of ⟨2⟩ now"], '
        '"kept": [["https://a.org/b", "`x y`"]]}]}\n\n'
        'event: document\ndata: {"document": 0, "target": ["jetzt ⟨2⟩ ⟨2⟩ sehen"], "finished": true, '
        '"alignments": ["4-0 3-1"], "text": "t"}\n\nevent: end\ndata: {}\n\n',
    ))  # fmt: skip
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Translate").click()
    assert translated(page) == ["jetzt `x y`  sehen https://a.org/b"]
    source = page.locator("li.segment > p")
    assert source.inner_text() == text
    page.locator("button.target").click()
    words = page.locator("button.word")
    names = [word.get_attribute("aria-label") for word in words.all()]
    assert names[:2] == ["jetzt: looked at now", "`x y`: looked at `x y`"]
    words.nth(1).focus()
    assert page.locator("mark").inner_text() == "`x y`"
    assert source.inner_text() == text
    words.nth(1).blur()
    assert source.inner_text() == text


def test_another_translation_is_taken_copied_and_downloaded(page, server):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Translate").click()
    first, *rest = translated(page)
    page.locator("button.target").first.click()
    rows = page.locator(".others li")
    rows.first.wait_for()
    texts = rows.locator("span:nth-child(2)").all_inner_texts()
    chosen = next(n for n, text in enumerate(texts) if text not in (first, "(no translation)"))
    rows.nth(chosen).get_by_role("button", name="Take").click()
    page.get_by_role("link", name="Download").wait_for()
    assert page.locator("button.target").all_inner_texts() == [texts[chosen], *rest]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download translation.txt").click()
    written = Path(download.value.path()).read_text(encoding="utf-8")
    assert texts[chosen] in written
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("status").first.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == written


def test_other_translations_by_the_keys(page, server):
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_label("Text", exact=True).press("Tab")
    page.get_by_role("button", name="Translate").press("Enter")
    translated(page)
    page.wait_for_function("document.activeElement.id === 'heading'")
    for _ in ("copy", "download", "segment"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".others li").first.wait_for()
    assert page.locator("button.target").first.get_attribute("aria-expanded") == "true"
    options = {"strategy": "beam", "beam_size": 5, "n_best": 5}
    [document] = server.post(documents=[{"source": ["the cat sees"]}], options=options).json()["documents"]
    scores = page.locator(".others li span:first-child").all_inner_texts()
    wanted = {" ".join(one["target"]): one["score"] for one in reversed(document["n_best"])}
    assert scores == [f"{score:.2f}" for score in sorted(wanted.values(), reverse=True)]
    page.keyboard.press("Escape")
    assert page.locator(".others").count() == 0
    assert page.locator("button.target").first.get_attribute("aria-expanded") == "false"


def test_what_the_attention_looked_at_by_keys_and_mouse(page, server):
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Translate").click()
    targets = translated(page)
    options = {"strategy": "greedy", "align": True}
    [document] = server.post(documents=[{"text": TEXT}], options=options).json()["documents"]
    links = [
        dict(reversed(list(map(int, link.split("-")))) for link in line.split()) for line in document["alignments"]
    ]
    number = max(range(3), key=lambda n: len(links[n]))  # an untrained model: the segment of most words
    source, target = document["source"][number].split(), targets[number].split()
    wanted = [source[links[number][n]] for n in range(len(target))]
    assert wanted
    row = page.locator("li.segment").nth(number)
    row.locator("button.target").press("Enter")
    row.locator(".others li").first.wait_for()
    words = row.get_by_role("group", name="Words of the translation").get_by_role("button")
    names = [f"{word}: looked at {seen}" for word, seen in zip(target, wanted, strict=True)]
    assert [word.get_attribute("aria-label") for word in words.all()] == names
    assert page.locator("mark").count() == 0
    page.keyboard.press("Tab")  # one stop for all words
    for n, seen in enumerate(wanted):
        assert words.nth(n).evaluate("word => word === document.activeElement")
        sync_api.expect(page.locator("mark")).to_have_text([seen])
        assert row.locator("p").first.inner_text() == document["source"][number]
        before = row.locator("p").first.evaluate("p => p.firstChild.textContent")
        assert len(before.split()) == links[number][n]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert row.locator("button.target").evaluate("target => target === document.activeElement")
    assert page.locator("mark").count() == 0
    row.locator("button.target").click()
    words.last.hover()
    sync_api.expect(page.locator("mark")).to_have_text(wanted[-1:])
    page.get_by_role("heading", name="Translate", exact=True).hover()
    sync_api.expect(page.locator("mark")).to_have_count(0)


def test_a_click_before_the_page_knows_what_the_models_can_do(page, server):
    held: list[sync_api.Route] = []
    page.route("**/health", lambda route: held.append(route))
    page.reload()
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Translate").click()
    assert page.get_by_role("button", name="Translate").is_disabled()
    with page.expect_request("**/translate/stream") as asked:
        held[0].continue_()
    assert asked.value.post_data_json["options"]["align"]
    translated(page)
    page.wait_for_function("!document.getElementById('go').disabled")


def test_words_that_are_counted_on_in_the_next_segment(page):
    """A translation of two segments, and of text without spaces: 犬 is word 0, `runs` is word 3."""
    page.route("**/translate/stream", lambda route: route.fulfill(
        headers={"Content-Type": "text/event-stream"},
        body='event: source\ndata: {"documents": [{"id": "a", "source": ["犬 sees", "it runs"]}]}\n\n'
        'event: document\ndata: {"document": 0, "target": ["läuft 犬", ""], "finished": true, '
        '"alignments": ["3-0 0-1", ""]}\n\nevent: end\ndata: {}\n\n',
    ))  # fmt: skip
    page.get_by_label("Text", exact=True).fill("one\ntwo")
    page.get_by_role("button", name="Translate").click()
    page.locator("#count").get_by_text("2 of 2 segments").wait_for()
    page.locator("button.target").first.click()
    words = page.locator("button.word")
    assert [word.get_attribute("aria-label") for word in words.all()] == ["läuft: looked at runs", "犬: looked at 犬"]
    words.first.focus()
    assert page.locator("li.segment").nth(1).locator("mark").inner_text() == "runs"
    page.locator("button.target").nth(1).click()
    assert page.locator("li.segment").nth(1).locator(".words").count() == 0
