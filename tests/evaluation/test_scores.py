"""Scores against sacrebleu's own command, and by hand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.scores import bleu_report, corpus_bleu
from scaleformer.text.documents import one_line

DOCUMENTS = [
    TranslatedDocument(
        "news/1",
        (),
        ["The cat sat on the mat.", "It was warm, and it was happy.", "Then it slept."],
        ["The cat sat on a mat.", "It was warm and it was happy.", "Then he slept."],
    ),
    TranslatedDocument(
        "talks/1",
        (),
        ["We saw the red house by the lake.", "Nobody lived there (any more)."],
        ["We saw a red house near the lake. Nobody lived there (any more)."],
        finished=False,
    ),
    TranslatedDocument("news/2", (), ["Yes!"], ["YES!"]),
]


def sacrebleu_command(tmp_path: Path, hypotheses: list[str], references: list[str], *arguments: str) -> dict:
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), "-w", "15"]
    done = subprocess.run([*command, "-f", "json", *arguments], capture_output=True, text=True, check=True)
    scores = json.loads(done.stdout)
    return {score["name"]: score for score in (scores if isinstance(scores, list) else [scores])}


@pytest.mark.parametrize("chosen", [Metrics("13a"), Metrics("13a", lowercase=True), Metrics("none")], ids=str)
def test_equal_to_the_command_of_sacrebleu(chosen, tmp_path):
    report = bleu_report(DOCUMENTS, chosen)
    flags = ["-tok", chosen.tokenize, *(["-lc", "--chrf-lowercase"] if chosen.lowercase else [])]
    lines = [one_line(d.hypothesis) for d in DOCUMENTS], [one_line(d.target) for d in DOCUMENTS]
    of_documents = sacrebleu_command(tmp_path, *lines, "-m", "bleu", "chrf", "--chrf-word-order", "2", *flags)
    references = [segment for d in DOCUMENTS for segment in d.target]
    hypotheses = [*DOCUMENTS[0].hypothesis, *DOCUMENTS[1].hypothesis, "", "YES!"]
    metrics = ("-m", "bleu", "chrf", "ter", "--chrf-word-order", "2")
    of_segments = sacrebleu_command(tmp_path, hypotheses, references, *metrics, *flags)
    for ours, theirs in (
        ("d-BLEU", of_documents["BLEU"]),
        ("s-BLEU", of_segments["BLEU"]),
        ("chrF++", of_segments["chrF2++"]),
        ("TER", of_segments["TER"]),
        ("d-chrF++", of_documents["chrF2++"]),
    ):
        score = report.score(ours)
        assert score.score == pytest.approx(theirs["score"], rel=0, abs=1e-12)
        assert score.signature == theirs["signature"]


def test_bleu_by_hand():
    # 1- to 4-gram precisions 4/5, 3/4, 2/3, 1/2; their product is 0.2
    assert corpus_bleu(["a b c d e"], ["a b c d f"]) == pytest.approx(100 * 0.2**0.25)
    # all n-grams right, one word short: exp(1 - 5/4)
    assert corpus_bleu(["a b c d"], ["a b c d e"]) == pytest.approx(100 * math.exp(-0.25))
    details = bleu_report([TranslatedDocument("x", (), ["a b c d e"], ["a b c d"])]).score("d-BLEU").details
    assert details["brevity_penalty"] == pytest.approx(math.exp(-0.25))
    assert details["length_ratio"] == pytest.approx(0.8)
    assert (details["hypothesis_length"], details["reference_length"]) == (4, 5)


def test_document_bleu_counts_across_segment_ends():
    joined = TranslatedDocument("x", (), ["a b", "c d e"], ["a b c", "d e"])
    report = bleu_report([joined])
    assert report.score("d-BLEU").score == pytest.approx(100)
    assert report.score("s-BLEU").score < 60


def test_case_and_tokenizer():
    assert corpus_bleu(["A B C D"], ["a b c d"]) == 0
    assert corpus_bleu(["A B C D"], ["a b c d"], Metrics(lowercase=True)) == pytest.approx(100)
    assert corpus_bleu(["a b c d."], ["a b c d ."]) == pytest.approx(100)  # 13a splits off the full stop
    assert corpus_bleu(["a b c d."], ["a b c d ."], Metrics("none")) < 100


def test_facts_of_the_report():
    report = bleu_report(DOCUMENTS, ter=False)
    assert report.count_mismatches == 1
    assert report.mismatch_rate == pytest.approx(1 / 3)
    assert report.unfinished == ("talks/1",)
    assert (report.documents, report.reference_segments, report.hypothesis_segments) == (3, 6, 5)
    assert set(report.parts) == {"news", "talks"}
    assert report.part_documents == {"news": 2, "talks": 1}
    news = [d for d in DOCUMENTS if d.id.startswith("news")]
    assert report.parts["news"].score == bleu_report(news, ter=False).score("d-BLEU").score
    assert [score.metric for score in report.scores] == ["d-BLEU", "s-BLEU", "chrF++", "d-chrF++"]
    written = json.loads(json.dumps(report.to_dict()))
    assert written["mismatch_rate"] == report.mismatch_rate
    assert "joined by one space" in written["joining"]


def test_a_single_part_is_not_listed():
    assert bleu_report([d for d in DOCUMENTS if d.id.startswith("news")], ter=False).parts == {}


@pytest.mark.parametrize("hypothesis", [[], [""], ["", ""], ["\n"]], ids=repr)
def test_an_empty_hypothesis_scores_nothing(hypothesis):
    report = bleu_report([TranslatedDocument("x", (), ["a b c d e"], hypothesis)])
    assert [score.score for score in report.scores] == [0, 0, 0, 0, 100]
    assert report.score("d-BLEU").details["length_ratio"] == 0


def test_nothing_to_score_is_refused():
    with pytest.raises(ValueError, match="there are no documents"):
        bleu_report([])
    with pytest.raises(ValueError, match="document 'x' has no reference"):
        bleu_report([TranslatedDocument("x", (), [], ["a"])])
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        corpus_bleu(["a"], ["a", "b"])


def test_lines_hold_one_document_each():
    assert one_line(["a\nb", "", "c\r\n", "d\u2028e"]) == "a b c d e"


HAN = ["我喜欢你们的书。", "今天天气很好。", "他昨天没有来上班。", "请打开路由器的设置。"]


def test_text_without_spaces():
    """Eight equal segments are all right; segment boundaries affect none of the document scores."""
    chosen = Metrics("zh")
    same = bleu_report([TranslatedDocument("x", (), HAN * 2, HAN * 2)], chosen)
    assert [score.score for score in same.scores] == pytest.approx([100, 100, 100, 100, 0])
    joined = bleu_report([TranslatedDocument("x", (), HAN, [HAN[0] + HAN[1], *HAN[2:]])], chosen)
    assert joined.score("d-BLEU").score == pytest.approx(100)
    assert all("|tok:zh" in score.signature for score in same.scores)
    one_wrong = TranslatedDocument("x", (), ["我喜欢你们的书"], ["我喜欢他们的书"])
    assert bleu_report([one_wrong], chosen).score("TER").score == pytest.approx(100 / 7)
    # matches: 6 of 7 characters, 4 of 6 bigrams, 2 of 5 trigrams, no 4-gram of 4, smoothed to 1 / (2 * 4)
    bleu = 100 * (6 / 7 * 4 / 6 * 2 / 5 / 8) ** 0.25
    assert bleu_report([one_wrong], chosen).score("s-BLEU").score == pytest.approx(bleu)


def test_an_unsuitable_tokenizer_gives_a_warning():
    document = TranslatedDocument("x", (), HAN, HAN)
    for tokenize in ("auto", "13a", "none"):
        with pytest.warns(UserWarning, match=rf"have no spaces, but metrics.tokenize={tokenize} splits words"):
            bleu_report([document], Metrics(tokenize))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for chosen, line in ((Metrics("char"), HAN[0]), (Metrics("none"), "我 喜欢 你们 的 书 。"), (Metrics(), "Ja.")):
            bleu_report([TranslatedDocument("x", (), [line], [line])], chosen)


def test_references_without_text():
    with pytest.raises(ValueError, match="the references are empty: there is nothing to score against"):
        bleu_report([TranslatedDocument("x", (), ["", " "], ["a", "b"])])
    with pytest.warns(UserWarning, match="1 of 2 references are empty, so .* counts as wrong: y"):
        bleu_report([TranslatedDocument("x", (), ["a"], ["a"]), TranslatedDocument("y", (), [""], ["b"])])
