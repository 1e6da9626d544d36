"""Confidence on the page: what is marked, the order of the segments, and the answers that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.translation.confidence import Confidence, place_of
from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import documents, error_of, running, translated

LINES = [f"the cat sees {n} trees" if n % 3 else f"a dog runs {n}" for n in range(12)]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    decoding = {"strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}
    found = Translator.load(make_run(tmp_path_factory.mktemp("sure") / "run", {"decoding": decoding}), "cpu")
    calibration = [0.0] * 7, [1.0] * 7, [1.0] * 7, [[-60.0, 0.0], [0.0, 100.0]]
    Confidence(*calibration, found.sha256 or "").write(place_of(found))
    return found


def test_the_least_sure_are_marked_and_come_first_if_wanted(page, server, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    page.get_by_label("Choose files").set_input_files(path)
    page.get_by_role("button", name="Translate").click()
    before = translated(page)
    [answer] = server.post(documents=[{"source": LINES}], options={"confidence": True}).json()["documents"]
    sure = answer["confidence"]
    order = sorted(range(12), key=sure.__getitem__)
    assert len(set(sure)) > 2
    sources = page.locator("li.segment > p")
    marked = page.locator("li:has(.unsure) > p").all_text_contents()
    assert sorted(marked) == sorted(LINES[n] for n in order[:2])
    assert f"confidence {round(sure[order[0]])} of 100" in page.locator(".unsure").first.get_attribute("title") or ""
    page.get_by_role("button", name="Read these 2 first").click()
    assert sources.all_text_contents() == [LINES[n] for n in order]
    targets = page.locator("button.target")
    targets.first.press("F2")
    page.get_by_label("Translation of this segment").fill("corre")
    page.get_by_label("Translation of this segment").press("Enter")
    page.locator("button.target.fixed").wait_for()
    translated(page)
    page.get_by_role("button", name="In the order of the text").click()
    assert sources.all_text_contents() == LINES
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    written = Path(download.value.path()).read_text(encoding="utf-8").split("\n")
    assert (len(written), written[order[0]]) == (12, "corre")
    assert len(before) == 12


def test_what_was_given_is_not_judged_and_a_model_without_calibration_says_so(server, translator):
    [one] = documents([["the cat sees", "a dog", " "]])
    asked = {"documents": [{**one, "fixed": {"1": "un perro"}}], "options": {"confidence": True}}
    [found] = server.post(**asked).json()["documents"]
    assert [value is None for value in found["confidence"]] == [False, True, True]
    assert len(found["reasons"]) == 3
    assert server.client.get("/health").json()["confidence"] is True
    assert "confidence" not in server.post(documents=[one]).json()["documents"][0]
    path = place_of(translator)
    moved = path.rename(path.with_name("moved"))
    with running(translator) as plain:
        response = plain.post(**asked)
        assert response.status_code == 422
        assert "`scaleformer confidence checkpoint=" in error_of(response)
        assert plain.client.get("/health").json()["confidence"] is False
    moved.rename(path)
