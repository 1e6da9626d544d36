"""Corrections on the page: sent when the text leaves the page, and there again with the next document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.server.corrections import Corrections
from tests.server.running import markdown, running, translated


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "corrections.jsonl"


@pytest.fixture(scope="module")
def server(translator, kept):
    with running(translator, corrections=Corrections(kept)) as found:
        yield found


def test_a_correction_is_kept_with_the_download_and_comes_back(page, server, kept, tmp_path):
    path = markdown(tmp_path)
    page.get_by_text("corrections that are downloaded or copied are kept on the server").wait_for()
    for number in range(2):
        page.get_by_label("Choose files").set_input_files(path)
        page.get_by_role("button", name="Translate").click()
        translated(page)
        if number == 0:
            page.locator("button.target").nth(1).press("F2")
            page.get_by_label("Translation of this segment").fill("⟨1⟩corre⟨2⟩ con ⟨3⟩")
            page.get_by_label("Translation of this segment").press("Enter")
            page.locator("button.target.fixed").wait_for()
            translated(page)
            assert not kept.exists()
            with page.expect_response("**/corrections"), page.expect_download():
                page.get_by_role("link", name="Download").click()
    assert page.locator("button.target.fixed").all_inner_texts() == ["*corre* con `x()`"]
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("status").first.get_by_text("Copied").wait_for()
    [line] = kept.read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    assert (record["source"], record["target"]) == (["it *runs* by `x()`"], ["*corre* con `x()`"])
    assert (record["document"], record["segment"]) == ("page.md", 1)
