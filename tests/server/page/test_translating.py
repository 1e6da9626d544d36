"""Translating on the page: a text and files, streamed segments, terms, errors, names and widths."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from playwright import sync_api

from scaleformer.server.models import Model, parse_pair
from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import TEXT, markdown, running, translated


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


def test_a_pasted_text_keeps_its_url(page, server):
    text = "the cat sees https://a.org/b?c=1 here"
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Translate").click()
    [found] = translated(page)
    assert page.locator("li.segment > p").all_inner_texts() == [text]
    assert found.count("https://a.org/b?c=1") == 1
    assert "⟨" not in found


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
    with running(server.service.models, "secret") as guarded:
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


def test_several_models_are_chosen_by_their_languages(browser, translator, tmp_path):
    other = Translator.load(make_run(tmp_path / "other", {"decoding": asdict(translator.decoding)}, seed=2), "cpu")
    pairs = {"en-es": translator, "en-pt-BR": other}
    models = [Model(one, one.decoding, pair, parse_pair(pair)) for pair, one in pairs.items()]
    with running(models) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_text("en-es, en-pt-BR, Scaleformer").wait_for()
        page.get_by_label("Text", exact=True).fill("the cat sees")
        page.get_by_role("button", name="Translate").click()
        page.get_by_role("alert").get_by_text("the target language is missing").wait_for()
        found = []
        for target in ("es", "pt-BR"):
            page.get_by_label("Translate to").select_option(target)
            page.get_by_role("button", name="Translate").click()
            page.get_by_text("Done: 1 segment").wait_for()
            found.append(translated(page))
            options = {"source_language": "en", "target_language": target}
            [document] = server.post(documents=[{"text": "the cat sees"}], options=options).json()["documents"]
            assert found[-1] == [text.strip() for text in document["target"]]
        assert found[0] != found[1]
        page.locator("button.target").click()
        page.get_by_text("translations of this segment by itself").wait_for()
        page.close()
