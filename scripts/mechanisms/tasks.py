"""Two tasks that every attention must learn within a minute: copying a short document, and translating it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from scaleformer.batch import Batch
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer

TASKS = ("copy", "translation")
WANTED = 0.99
VOCABULARY, FIRST, BOS, EOS, SEP = 20, 5, 2, 3, 4
#: tokens of each of the two segments of a document; documents of a batch
SEGMENT, DOCUMENTS = 5, 32


def learn(
    attention: Mapping[str, Any], task: str, most_steps: int = 2000, most_seconds: float = 120.0, seed: int = 1
) -> dict[str, Any]:
    """Train a small model, on new documents in every step, until 99 of 100 tokens are right.

    copy         the target is the source
    translation  each token replaced by its dictionary entry, and neighbours in a segment swapped in pairs

    Returns {"steps", "seconds" of processor time, "accuracy" (of the last ten batches, teacher-forced), "decoded" (the
    share of right tokens when new documents are decoded step by step, each token following the model's own)}.
    """
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "width": 64, "feedforward": 128, "heads": 4}
    model = Transformer(ModelConfig(VOCABULARY, VOCABULARY, dropout=0.0, attention=attention, **sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(seed)
    accuracy, step, start = 0.0, 0, time.process_time()
    while accuracy < WANTED and step < most_steps and time.process_time() - start < most_seconds:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50)
        batch = documents(task, generator)
        logits = model.logits(model(batch))  # (B, L, V)
        loss = cross_entropy(logits.flatten(0, 1), batch.target_output.flatten())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        accuracy += 0.1 * ((logits.argmax(-1) == batch.target_output).float().mean().item() - accuracy)
        step += 1
    seconds = time.process_time() - start
    return {
        "steps": step,
        "seconds": seconds,
        "accuracy": accuracy,
        "decoded": decoded_accuracy(model.eval(), task, generator),
    }


@torch.inference_mode()
def decoded_accuracy(model: Transformer, task: str, generator: torch.Generator) -> float:
    """The share of right tokens when new documents are decoded greedily."""
    batch = documents(task, generator)
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), 1)
    tokens, segments = batch.target_input[:, 0], batch.target_segments[:, 0]
    right = 0.0
    for position in range(batch.target_input.shape[1]):
        logits, state = model.step(tokens, segments, state)
        tokens = logits.argmax(-1)  # (B,)
        segments = segments + (tokens == SEP).long()
        right += (tokens == batch.target_output[:, position]).float().mean().item()
    return right / batch.target_input.shape[1]


def documents(task: str, generator: torch.Generator) -> Batch:
    """Documents of two segments. Raises ValueError for an unknown task."""
    if task not in TASKS:
        raise ValueError(f"task is {task!r}: it must be one of {', '.join(TASKS)}")
    words = torch.randint(FIRST, VOCABULARY, (DOCUMENTS, 2, SEGMENT), generator=generator)  # (B, 2, n)
    target = words
    if task == "translation":
        order = torch.arange(SEGMENT)
        order = torch.where(order + 1 - order % 2 * 2 < SEGMENT, order + 1 - order % 2 * 2, order)  # 1 0 3 2 4
        target = FIRST + (words[..., order] * 7) % (VOCABULARY - FIRST)
    source, output = (torch.cat([ended(x), torch.full((DOCUMENTS, 1), EOS)], dim=1) for x in (words, target))  # (B, L)
    given = torch.cat([torch.full((DOCUMENTS, 1), BOS), output[:, :-1]], dim=1)  # (B, L)
    seps = source == SEP
    return Batch(
        source=source,
        source_mask=torch.ones_like(seps),
        source_segments=seps.cumsum(1) - seps.long(),
        target_input=given,
        target_output=output,
        target_mask=torch.ones_like(given, dtype=torch.bool),
        target_segments=(given == SEP).cumsum(1),
    )


def ended(words: Tensor) -> Tensor:
    """Each segment with its <sep>: (B, 2, n) -> (B, 2 (n + 1))."""
    return torch.cat([words, torch.full_like(words[..., :1], SEP)], dim=-1).flatten(1)
