"""The page in a browser: translating a text and a file, streamed segments, alternatives, keys and widths."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import Running, markdown, running

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
# A browser is no package of Python, so that no `pip install` brings one. `.ci/run` installs it, and says so where it
# cannot; machines where that needs an administrator run all other tests without.
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt-get install chromium")
TEXT = "the cat sees\nit runs\n<b>a dog</b>\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    decoding = {"strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}
    run = make_run(tmp_path_factory.mktemp("page") / "run", {"decoding": decoding})
    with running(Translator.load(run, "cpu")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator[sync_api.Page]:
    """The page; its scripts must not fail or fetch anything from other hosts."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    faults, others = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    page.on("request", lambda request: others.append(request.url) if server.url not in request.url else None)
    page.goto(server.url)
    yield page
    page.close()
    assert not faults
    assert not [url for url in others if not url.startswith(("data:", "blob:"))]


def translated(page: sync_api.Page) -> list[str]:
    """The target segments, once all have arrived."""
    page.get_by_role("link", name="Download").wait_for()
    return page.locator("button.target").all_inner_texts()


def test_a_text_side_by_side(page, server):
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Translate").click()
    found = translated(page)
    [document] = server.post(documents=[{"text": TEXT}]).json()["documents"]
    assert [text.split() for text in found] == [
        (text.strip() or "(no translation)").split() for text in document["target"]
    ]
    assert page.locator("li.segment > p").all_inner_texts() == document["source"]
    assert page.locator("li.segment > p").last.get_attribute("dir") == "auto"
    assert page.get_by_text("3 of 3 segments", exact=True).is_visible()
    assert page.get_by_role("status").first.inner_text() == "Done: 3 segments"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download translation.txt").click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == document["text"]


@pytest.mark.parametrize("as_file", [False, True], ids=["text", "file"])
def test_what_the_limit_cut_is_marked(page, server, tmp_path, as_file):
    """The answers of the server are replaced: only one segment of each is cut."""
    document = json.dumps({"document": 0, "target": ["eins", "zwei zwei"], "cut": [1], "finished": False})
    report = json.dumps({"report": {"name": "note.txt", "finished": False, "notes": {}}, "content": ""})
    last = f"event: file\ndata: {report}\n\n" if as_file else ""
    page.route(f"**/translate/{'file?report=stream' if as_file else 'stream'}", lambda route: route.fulfill(
        headers={"Content-Type": "text/event-stream"},
        body='event: source\ndata: {"documents": [{"id": "a", "source": ["one", "two"]}]}\n\n'
        f"event: document\ndata: {document}\n\n{last}event: end\ndata: {{}}\n\n",
    ))  # fmt: skip
    if as_file:
        (tmp_path / "note.txt").write_text("one\ntwo\n")
        page.get_by_label("Choose files").set_input_files(tmp_path / "note.txt")
    else:
        page.get_by_label("Text", exact=True).fill("one\ntwo")
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("1 cut by the length limit").wait_for()
    targets = page.locator("button.target")
    assert targets.nth(1).all_inner_texts() == ["zwei zwei"]
    ends = [target.evaluate("target => getComputedStyle(target, '::after').content") for target in targets.all()]
    assert ends == ["none", '" (cut by the length limit)"']


def test_a_file_comes_back_as_one(page, server, tmp_path):
    path = markdown(tmp_path)
    page.get_by_label("Choose files").set_input_files(path)
    assert page.get_by_label("Text", exact=True).is_disabled()
    page.get_by_role("button", name="Translate").click()
    assert len(translated(page)) == 4
    assert page.locator("li.segment > p").all_inner_texts()[1] == "it *runs* by `x()`"
    assert not page.get_by_text("⟨1⟩ stands for code").is_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download page.translated.md").click()
    data = {"options": json.dumps({"strategy": "greedy"})}
    whole = server.client.post("/translate/file", files={"file": ("page.md", path.read_bytes())}, data=data)
    assert Path(download.value.path()).read_bytes() == whole.content
    page.get_by_role("button", name="Remove page.md").click()
    assert page.get_by_label("Chosen files").get_by_role("listitem").count() == 0
    assert page.get_by_label("Text", exact=True).is_enabled()


def drop(page: sync_api.Page, files: dict[str, str]) -> None:
    """Drop files, by name, on the page."""
    page.evaluate(
        """files => { const data = new DataTransfer();
        for (const [name, text] of Object.entries(files)) data.items.add(new File([text], name));
        const dropped = { dataTransfer: data, bubbles: true, cancelable: true };
        document.body.dispatchEvent(new DragEvent("drop", dropped)); }""",
        files,
    )


def test_dropped_files_are_shown_and_all_are_translated(page, server):
    drop(page, {"note.txt": "a dog", "other.txt": "the cat sees\nit runs"})
    drop(page, {"bad.docx": "PK", "note.txt": "a dog"})
    names = page.get_by_label("Chosen files").get_by_role("listitem").locator("bdi")
    assert names.all_inner_texts() == ["note.txt", "other.txt", "bad.docx", "note.txt"]
    page.get_by_role("button", name="Remove note.txt").last.click()
    assert names.all_inner_texts() == ["note.txt", "other.txt", "bad.docx"]
    assert page.get_by_role("status").first.inner_text() == "note.txt, other.txt, bad.docx are chosen"
    page.get_by_role("button", name="Translate").click()
    page.get_by_role("status").first.get_by_text("Done: 3 segments").wait_for()
    assert page.get_by_role("heading", level=3).all_inner_texts() == ["note.txt", "other.txt"]
    assert page.locator("li.segment > p").all_inner_texts() == ["a dog", "the cat sees", "it runs"]
    assert page.get_by_role("alert").inner_text().startswith("bad.docx: not a sound docx file")
    for name, content in (("note", b"a dog"), ("other", b"the cat sees\nit runs")):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download {name}.translated.txt").click()
        data = {"options": json.dumps({"strategy": "greedy"})}
        whole = server.client.post("/translate/file", files={"file": (f"{name}.txt", content)}, data=data)
        assert Path(download.value.path()).read_bytes() == whole.content


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


def test_a_pasted_text_keeps_its_url(page, server):
    text = "the cat sees https://a.org/b?c=1 here"
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Translate").click()
    [found] = translated(page)
    assert page.locator("li.segment > p").all_inner_texts() == [text]
    assert found.count("https://a.org/b?c=1") == 1
    assert "⟨" not in found


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


def test_terms(page):
    page.get_by_label("Text", exact=True).fill("the cat sees a dog")
    page.get_by_label("Terms").fill("cat = Katze\n\ndog\tHund\nwrong")
    page.get_by_role("button", name="Translate").click()
    assert page.get_by_role("alert").inner_text() == "Terms, line 4: wanted a term, = and its translation"
    page.get_by_label("Terms").fill("cat = Katze\ncat=Kater")
    page.get_by_role("button", name="Translate").click()
    assert page.get_by_role("alert").inner_text().startswith("Terms, line 2: cat has another translation above")
    page.get_by_label("Terms").fill("cat = Katze\n\ndog\tHund")
    with page.expect_request("**/translate/stream") as request:
        page.get_by_role("button", name="Translate").click()
    assert request.value.post_data_json["options"]["terms"] == {"cat": "Katze", "dog": "Hund"}
    assert "Katze" in translated(page)[0]


def test_segments_show_before_the_end(page):
    page.route("**/translate/stream", lambda route: route.fulfill(
        headers={"Content-Type": "text/event-stream"},
        body='event: source\ndata: {"documents": [{"id": "a", "source": ["one", "two"]}]}\n\n: still here\n\n'
        'event: segment\ndata: {"document": 0, "segment": 0, "target": "eins"}\n\n',
    ))  # fmt: skip
    page.get_by_label("Text", exact=True).fill("one\ntwo")
    page.get_by_role("button", name="Translate").click()
    page.locator("#count").get_by_text("1 of 2 segments").wait_for()
    assert page.locator("button.target").all_inner_texts() == ["eins", "…"]
    assert page.locator("button.target").nth(1).is_disabled()
    assert page.get_by_role("alert").inner_text() == "The connection to the server broke off"


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
        assert page.locator("mark").all_inner_texts() == [seen]
        assert row.locator("p").first.inner_text() == document["source"][number]
        before = row.locator("p").first.evaluate("p => p.firstChild.textContent")
        assert len(before.split()) == links[number][n]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert row.locator("button.target").evaluate("target => target === document.activeElement")
    assert page.locator("mark").count() == 0
    row.locator("button.target").click()
    words.last.hover()
    assert page.locator("mark").all_inner_texts() == wanted[-1:]
    page.get_by_role("heading", name="Translate", exact=True).hover()
    assert page.locator("mark").count() == 0


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


def test_what_is_wrong_is_said(page):
    page.get_by_role("button", name="Translate").click()
    assert page.get_by_role("alert").inner_text().startswith("There is nothing to translate")
    page.get_by_label("Text", exact=True).fill("a dog")
    page.get_by_label("Segments", exact=True).select_option("sentence")
    page.get_by_role("button", name="Translate").click()
    page.get_by_role("alert").get_by_text("the model does not say which language it reads").wait_for()
    assert page.get_by_role("button", name="Translate").is_enabled()


@pytest.mark.parametrize("width", [1200, 400])
def test_nothing_leaves_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_label("Text", exact=True).fill("a" * 300 + "\nit runs")
    page.get_by_role("button", name="Translate").click()
    translated(page)
    page.locator("button.target").first.click()
    page.locator(".others li").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    tops = [box["y"] for box in map(sync_api.Locator.bounding_box, page.locator("li.segment > *:not(.others)").all())]
    assert (abs(tops[0] - tops[1]) < 5) == (width == 1200)


def test_every_control_has_a_name(page):
    controls = page.locator("input, select, textarea, button").all()
    names = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].map(e => "
        "(e.labels && e.labels.length ? e.labels[0].textContent : e.textContent).trim())"
    )
    assert len(controls) == len(names)
    assert all(names)


def test_a_token_is_asked_for(browser, server):
    with running(server.service.translator, "secret") as guarded:
        page = browser.new_page()
        page.goto(guarded.url)
        page.get_by_label("Text", exact=True).fill("a dog")
        page.get_by_label("Token of the server").wait_for()
        page.get_by_role("button", name="Translate").click()
        page.get_by_role("alert").get_by_text("missing or wrong token").wait_for()
        page.get_by_label("Token of the server").fill("secret")
        page.get_by_role("button", name="Translate").click()
        assert len(translated(page)) == 1
        page.close()
