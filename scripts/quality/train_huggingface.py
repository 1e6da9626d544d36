"""MarianMT's architecture of Hugging Face transformers, trained from nothing by Seq2SeqTrainer.

    python train_huggingface.py JOB.json train|translate

Runs in an environment of its own, which lacks this package: `scripts.quality.programs` writes the job.
The trainer's own rate (5e-5, falling to 0 after three epochs) is meant for models that are trained already. So
schedule, label smoothing and size of the batch are those of our experiments; all else is the trainer's default. The
rate is that of fairseq's recipe for IWSLT'14, a small model with layer norms after its layers, as here: at the rate of
our experiments this model had learned next to nothing after 500 updates (docs/log/043-other-programs-in-an-hour.md).
`recipe=ours` takes ours.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import driver
import torch
import transformers

PAD, UNK, BOS, EOS = range(4)
RATE = 5e-4
BEAMS = 4  # of the models that Marian's authors have published in this format
TOGETHER = 32  # texts translated in a batch


class Clock(transformers.TrainerCallback):
    """Ends training after the step in which the time runs out."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = time.monotonic() - self.begin >= self.seconds


def read(path: Path) -> list[list[int]]:
    """The ids of each line, closed by `</s>`."""
    return [[*map(int, line.split()), EOS] for line in path.read_text().splitlines()]


def pad(rows: list[list[int]], value: int) -> torch.Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """A batch, with the decoder's input, which the trainer wants for label smoothing."""
    source, target = pad([row["input_ids"] for row in rows], PAD), [row["labels"] for row in rows]
    decoder = pad([[BOS, *tokens[:-1]] for tokens in target], PAD)
    mask = (source != PAD).long()
    return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": decoder, "labels": pad(target, -100)}


def make_model(job: dict[str, Any]) -> Any:
    sizes = job["sizes"]
    config = transformers.MarianConfig(
        vocab_size=sizes["vocabulary"],
        decoder_vocab_size=sizes["vocabulary"],
        max_position_embeddings=job["positions"],
        d_model=sizes["width"],
        encoder_layers=sizes["layers"],
        decoder_layers=sizes["layers"],
        encoder_attention_heads=sizes["heads"],
        decoder_attention_heads=sizes["heads"],
        encoder_ffn_dim=sizes["feedforward"],
        decoder_ffn_dim=sizes["feedforward"],
        activation_function="relu",
        dropout=job["dropout"],
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=EOS,
    )
    return transformers.MarianMTModel(config)


def train(job: dict[str, Any], work: Path) -> dict[str, Any]:
    texts = Path(job["texts"])
    pairs = zip(read(texts / "train.source"), read(texts / "train.target"), strict=True)
    rows = [{"input_ids": source, "labels": target} for source, target in pairs]
    tokens = sum(len(row["input_ids"]) + len(row["labels"]) for row in rows) / len(rows)
    examples = max(1, round(job["batch_tokens"] / tokens))
    settings = {
        "learning_rate": RATE if job["recipe"] == "own" else job["learning_rate"],
        "lr_scheduler_type": "inverse_sqrt",
        "warmup_steps": job["warmup_steps"],
        "label_smoothing_factor": job["label_smoothing"],
        "per_device_train_batch_size": examples,
        "train_sampling_strategy": "group_by_length",  # pads would take most of the time
    }
    transformers.set_seed(job["seed"])
    model = make_model(job)
    trainer = transformers.Seq2SeqTrainer(
        model=model,
        args=transformers.Seq2SeqTrainingArguments(
            output_dir=str(work / "trainer"), max_steps=10**9, save_strategy="no", report_to="none", use_cpu=True,
            logging_steps=50, disable_tqdm=True, seed=job["seed"], **settings,
        ),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[Clock(job["seconds"])],
    )  # fmt: skip
    begin = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - begin
    model.generation_config.num_beams = BEAMS  # as `translate` asks for
    model.save_pretrained(work / "model")
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    facts = {"updates": trainer.state.global_step, "parameters": parameters, "train_seconds": seconds}
    return {**facts, "version": transformers.__version__, "settings": settings}


@torch.inference_mode()
def translate(job: dict[str, Any], work: Path) -> dict[str, Any]:
    model = transformers.MarianMTModel.from_pretrained(work / "model").eval()
    sources = read(Path(job["texts"]) / "test.source")
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    found = [""] * len(sources)
    begin = time.monotonic()
    for first in range(0, len(order), TOGETHER):
        places = order[first : first + TOGETHER]
        source = pad([sources[n] for n in places], PAD)
        most = min(2 * source.shape[1] + 10, job["positions"] - 1)
        mask = (source != PAD).long()
        written = model.generate(input_ids=source, attention_mask=mask, num_beams=BEAMS, max_new_tokens=most)
        for n, tokens in zip(places, written.tolist(), strict=True):
            found[n] = " ".join(str(token) for token in tokens if token not in (PAD, UNK, BOS, EOS))
    (work / "test.output").write_text("".join(f"{line}\n" for line in found))
    return {"translation_seconds": time.monotonic() - begin, "search": f"beam {BEAMS}"}


if __name__ == "__main__":
    driver.run(train, translate)
