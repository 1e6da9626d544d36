"""The rows: each program on each level, trained, translating, scored; and the table of all."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from scaleformer.data.config import DataConfig
from scaleformer.data.splits import EncodedSplits
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.evaluation.leaks import seen_and_unseen
from scaleformer.evaluation.plain import read_plain, score_plain, write_plain
from scaleformer.system.files import atomic_writer
from scaleformer.system.schema import Positive, Range
from scaleformer.translation.translator import Translator
from scripts.bench_training.models import Sizes
from scripts.bench_training.tables import markdown
from scripts.quality.programs import EOLE, HUGGING_FACE, JOEYNMT, OURS, Failed, call, environment, run_program
from scripts.quality.texts import LEVELS, Test, first_segments, longest, training_lines, write_lines

WHOLE = "whole"  # documents in one pass, by the model that is trained on pieces of them
#: Of our rows: the level that is trained, the form in which documents are translated, and the layers of encoder and
#: decoder where they are not `--layers` each. `staged-0.6`: sentences, then documents from 0.6 of the time on;
#: `growing-0.8`: pieces of `SHORT` tokens, then of `--max-tokens` from 0.8 of the time on.
OUR_ROWS: dict[str, tuple[str, str, str]] = {
    "sentences": ("sentences", "sentences", ""),
    "documents": ("documents", "documents", ""),
    WHOLE: ("documents", WHOLE, ""),
    "staged": ("staged-0.8", "documents", ""),
    "staged-whole": ("staged-0.8", WHOLE, ""),
}
BY_DEFAULT = tuple(
    f"{program}-{level}"
    for program in (OURS, HUGGING_FACE, JOEYNMT, EOLE)
    for level in (OUR_ROWS if program == OURS else LEVELS)
)
OUR_ROWS |= {
    "documents-by-sentence": ("documents", "sentences", ""),
    "staged-by-sentence": ("staged-0.8", "sentences", ""),
    **{
        f"staged-{share}{row}": (f"staged-{share}", how, "")
        for share in ("0.6", "0.9")
        for row, how in (("", "documents"), ("-whole", WHOLE), ("-by-sentence", "sentences"))
    },
    **{
        f"growing{name}{row}": (f"growing-{share}", how, "")
        for name, share in (("", "0.8"), ("-0.9", "0.9"))
        for row, how in (("", "documents"), ("-whole", WHOLE), ("-by-sentence", "sentences"))
    },
    # a deep encoder and a shallow decoder, Kasai et al. 2021
    **{f"{how}-{layers}": ("documents", how, layers) for layers in ("6+2", "7+1") for how in ("documents", WHOLE)},
}
ROWS = (*BY_DEFAULT, *(row for level in OUR_ROWS if (row := f"{OURS}-{level}") not in BY_DEFAULT))
#: What our experiments train with, whatever `experiment=` says, and the others where they have no recipe of their own.
RECIPE = {"learning_rate": 2e-3, "warmup_steps": 400, "label_smoothing": 0.1, "batch_tokens": 8192, "dropout": 0.1}
SHORT = 64  # tokens of a piece, one or two segments of a manual: it costs what a sentence does
VALIDATION = 64  # examples, as many as our own training of sentences translates at a validation
PIECES = 16  # of documents instead, some 200 segments
NAMES = {OURS: "Scaleformer", HUGGING_FACE: "Hugging Face (Marian)", JOEYNMT: "JoeyNMT", EOLE: "eole"}


@dataclass(frozen=True)
class Plan:
    """What all rows share; `python -m scripts.quality --help` describes it."""

    corpus: str
    minutes: Annotated[float, Range(ge=0.1)]
    output: str
    recipe: Literal["own", "ours"]
    experiment: str
    sizes: Sizes
    max_tokens: Annotated[int, Range(ge=8)]
    max_documents: Positive | None
    segments: Positive | None
    threads: Positive
    seed: int
    environments: str
    like: str | None = None
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    learning_rate: Annotated[float, Range(gt=0)] = RECIPE["learning_rate"]

    @property
    def job(self) -> dict[str, Any]:
        """What a program gets, besides its texts."""
        shared = {"recipe": self.recipe, "sizes": asdict(self.sizes), "threads": self.threads, "seed": self.seed}
        return {**RECIPE, **shared, "seconds": 60 * self.minutes}


class Bench:
    """A folder of rows, in which those that are there stay as they are."""

    def __init__(self, plan: Plan) -> None:
        """Raises ValueError where the folder holds rows of another plan, DataError for a wrong corpus."""
        self.plan, self.output = plan, Path(plan.output)
        self.cache = self.output / "cache"
        data = DataConfig(format="jsonl", path=plan.corpus, max_tokens=plan.max_tokens, cache_dir=str(self.cache))
        self.splits = EncodedSplits(data, TokenizerConfig(plan.sizes.vocabulary))
        self._agree()
        self.documents = [
            first_segments(d, plan.segments) for d in self.splits.documents("test")[: plan.max_documents] if d.target
        ]
        write_lines(self.output / "test" / "test.jsonl", [d.to_json() for d in self.documents])

    def _agree(self) -> None:
        kept = self.output / "settings.json"
        shared = {k: v for k, v in asdict(self.plan).items() if k not in ("output", "environments", "like")}
        settings = {**shared, "corpus": self.splits.fingerprint()}
        if kept.exists():
            old = json.loads(kept.read_text(encoding="utf-8"))
            if changed := [name for name, value in settings.items() if old.get(name) != value]:
                was = ", ".join(f"{name} (was {str(old.get(name))[:60]})" for name in changed)
                raise ValueError(f"output={self.output}: holds rows of other settings, {was}: choose another folder")
        with atomic_writer(kept) as file:
            json.dump(settings, file, indent=2)

    def row(self, name: str) -> bool:
        """Make a row whose result is not there; False where it is. Raises Failed, and what scoring raises."""
        result = self.output / "results" / f"{name}.json"
        if result.exists():
            return False
        program, _, level = name.partition("-")
        facts, hypotheses = self._ours(level) if program == OURS else self._other(program, level)
        scores = score_plain(self.documents, hypotheses, ter=False)
        facts["leaks"] = seen_and_unseen(scores.documents, self.splits.sources["train"])
        shared = {name: getattr(self.plan, name) for name in ("minutes", "recipe", "seed", "schedule", "learning_rate")}
        shared |= {"sizes": asdict(self.plan.sizes), **({"minutes": None} if self.plan.like else {})}
        write_plain(result, scores, {"program": program, "level": level, **shared, **facts})
        return True

    def _other(self, program: str, level: str) -> tuple[dict[str, Any], list[list[str] | str]]:
        python = environment(program, Path(self.plan.environments))
        texts, tokenizer = self.output / "texts" / level, self.splits.source_tokenizer
        test = Test(self.documents, tokenizer, level, self.plan.max_tokens)
        if not (texts / "test.source").exists():  # which is written last
            self._write_texts(texts, level, test)
        job = {**self.plan.job, "texts": str(texts), "positions": 2 * longest(texts) + 16}
        work = self.output / "rows" / f"{program}-{level}"
        facts, written = run_program(program, python, job, work)
        if program == HUGGING_FACE:
            write_vocabulary(work / "model", tokenizer)
        hypotheses, wrong = test.hypotheses(written, tokenizer)
        return {**facts, "pieces": len(written), "pieces_of_other_segments": wrong}, hypotheses

    def _write_texts(self, texts: Path, level: str, test: Test) -> None:
        for split in ("train", "valid"):
            there = split if split in self.splits.sources else "train"
            pairs = list(training_lines(self.splits.encoded(there), level, self.plan.max_tokens))
            chosen = pairs if split == "train" else pairs[:VALIDATION]
            for side, lines in zip(("source", "target"), zip(*chosen, strict=True), strict=True):
                write_lines(texts / f"{split}.{side}", lines)
        write_lines(texts / "test.source", test.lines)

    def _ours(self, level: str) -> tuple[dict[str, Any], list[list[str] | str]]:
        trained, how, layers = OUR_ROWS[level]
        work = self.output / "rows" / "-".join(filter(None, (OURS, trained, layers)))
        run, done = work / "run", work / "train.json"
        if not done.exists():
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            like = updates_of(Path(self.plan.like) / "rows" / work.name) if self.plan.like else None
            overrides = training_overrides(self.plan, trained, run, self.cache, layers, like)
            call_ours("train", overrides, work / "train.log", self.plan)
            status = json.loads((run / "status.json").read_text(encoding="utf-8"))
            seconds = {} if like else {"train_seconds": 60 * self.plan.minutes}
            done.write_text(json.dumps({"updates": status["step"], **seconds}))
        facts = json.loads(done.read_text(encoding="utf-8"))
        checkpoint = run / "checkpoints" / "last.ckpt"
        model = Translator.load(checkpoint).model
        facts["parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        settings = [f"checkpoint={checkpoint}", "data=jsonl", f"data.path={self.output / 'test'}", "ter=false"]
        settings += [f"output={work / how}", "samples=0"]
        settings += {"documents": [f"max_tokens={self.plan.max_tokens}"], "sentences": ["mode=segment"]}.get(how, [])
        call_ours("evaluate", settings, work / f"{how}.log", self.plan)
        (written,) = (work / how).glob("bleu-*.json")  # named after the folder of the test as well
        result = json.loads(written.read_text(encoding="utf-8"))
        decoding = result["decoding"]
        search = "greedy" if decoding["strategy"] == "greedy" else f"beam {decoding['beam_size']}"
        facts |= {"version": result["versions"]["scaleformer"], "search": search, "settings": decoding}
        facts["translation_seconds"] = result["translation_seconds"]
        return facts, read_plain(str(written.with_suffix(".jsonl")), self.documents)


def write_vocabulary(folder: Path, tokenizer: Tokenizer) -> None:
    """What a Marian folder lacks beside its weights, whose rows are those of `tokenizer`: then `checkpoint=` and
    `init_from=` read it, and transformers' MarianTokenizer."""
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(tokenizer.proto)
    numbers = {tokenizer.piece(token): token for token in range(tokenizer.vocab_size)}
    with atomic_writer(folder / "vocab.json") as file:
        json.dump(numbers, file, ensure_ascii=False)


def updates_of(work: Path) -> tuple[int, int | None]:
    """How many updates a training made, and after how many its second stage began. Raises Failed without one."""
    try:
        updates = json.loads((work / "train.json").read_text(encoding="utf-8"))["updates"]
    except OSError as error:
        raise Failed(f"--like: no such training: {error.filename}") from None
    stage = re.search(r"stage 2 of 2 begins after step ([\d,]+)", (work / "train.log").read_text(encoding="utf-8"))
    return updates, int(stage[1].replace(",", "")) if stage else None


def training_overrides(
    plan: Plan, level: str, run: Path, cache: Path, layers: str = "", like: tuple[int, int | None] | None = None
) -> list[str]:
    """Our own training of a level of `OUR_ROWS`, stopped by the clock, at which a cosine ends, too.

    layers  of encoder and decoder, "6+2"
    like    the updates after which it stops, and after which its second stage begins, in place of the clock
    """
    sizes = plan.sizes
    model: dict[str, Any] = {
        "width": sizes.width,
        "feedforward": sizes.feedforward,
        "heads": sizes.heads,
        "dropout": RECIPE["dropout"],
    }
    encoder, decoder = layers.split("+") if layers else (sizes.layers, sizes.layers)
    model |= {"encoder_layers": encoder, "decoder_layers": decoder}
    how, _, until = level.partition("-")
    updates, second = like or (-1, None)
    until = until if second is None else str(second)
    first = {"staged": "level: segment", "growing": f"max_tokens: {SHORT}"}.get(how)
    stages = f"[{{{first}, until: {until}}}, {{level: document}}]" if first else "null"
    seconds = round(60 * plan.minutes)
    limit = f"00:{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return [
        f"experiment={plan.experiment}",
        "data=jsonl",
        f"data.path={plan.corpus}",
        f"data.level={'segment' if level == 'sentences' else 'document'}",
        f"data.stages={stages}",
        f"data.max_tokens={plan.max_tokens}",
        f"data.batch_tokens={RECIPE['batch_tokens']}",
        f"data.cache_dir={cache}",
        f"tokenizer.vocab_size={sizes.vocabulary}",
        *(f"model.{name}={value}" for name, value in model.items()),
        f"label_smoothing={RECIPE['label_smoothing']}",
        f"optimizer.learning_rate={plan.learning_rate}",
        f"schedule={plan.schedule}",
        f"schedule.warmup_steps={RECIPE['warmup_steps']}",
        f"trainer.max_steps={updates}",
        f"trainer.max_time={'null' if like else limit}",
        f"callbacks.validation_bleu.examples={VALIDATION if level == 'sentences' else PIECES}",
        "trainer.accelerator=cpu",
        "test.enabled=false",
        f"seed={plan.seed}",
        f"hydra.run.dir={run}",
    ]


def call_ours(command: str, settings: Sequence[str], log: Path, plan: Plan) -> None:
    """A command of this package in a process of its own. Raises Failed."""
    call([sys.executable, "-m", "scaleformer", command, *settings, f"threads={plan.threads}"], log, plan.threads)


def unseen(result: Mapping[str, Any]) -> str:
    """s-BLEU of the segments that are not in the training split, where the result has it."""
    score = (result.get("leaks") or {}).get("unseen", {}).get("s_bleu")
    return "-" if score is None else f"{score:.2f}"


def table(results: Sequence[Mapping[str, Any]], failures: Mapping[str, str]) -> str:
    """Markdown of the results in the order of `ROWS`, with a line for each row that failed, and the signatures."""
    metrics = ("d-BLEU", "s-BLEU", "chrF++")
    facts = ("program", "trained on", "translated as", "updates", "parameters")
    seeds = len({result.get("seed") for result in results}) > 1
    header = (*facts, *metrics, "unseen", "left out", "added", "minutes", *(["seed"] if seeds else []))
    place = {name: number for number, name in enumerate(ROWS)}
    ordered = sorted(results, key=lambda r: (place[f"{r['program']}-{r['level']}"], r.get("seed", 0)))
    lines: list[list[str]] = []
    signatures: dict[str, str] = {}
    for result in ordered:
        scores = {score["metric"]: score for score in result["scores"]}
        signatures |= {name: scores[name]["signature"] for name in metrics}
        trained, how, layers = OUR_ROWS[result["level"]]
        first, _, until = trained.partition("-")
        second = {"staged": "documents", "growing": f"pieces of {SHORT} tokens, longer"}.get(first)
        lines.append(
            [
                f"{NAMES[result['program']]} {result['version']}",
                (f"{second} from {until} on" if second else trained) + (f", {layers} layers" if layers else ""),
                {"documents": "pieces"}.get(how, how),
                f"{result['updates']:,}",
                f"{result['parameters']:,}",
                *(f"{scores[name]['score']:.2f}" for name in metrics),
                unseen(result),
                *(f"{result['difference'][name]:.1%}" for name in ("omitted", "added")),
                "-" if result["translation_seconds"] is None else f"{result['translation_seconds'] / 60:.1f}",
                *([str(result["seed"])] if seeds else []),
            ]
        )
    blocks = [markdown(header, lines)] if lines else []
    blocks += ["\n".join(f"- {name}: `{signature}`" for name, signature in signatures.items())] if lines else []
    blocks += ["\n".join(f"- {name}: failed: {reason}" for name, reason in failures.items())] if failures else []
    return "\n\n".join(blocks) + "\n"
