"""Trainings in forked processes, which start at once, can be killed, or train together."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from scaleformer.batch import Batch
from scaleformer.system.errors import one_line_errors
from scaleformer.training import run as training
from scaleformer.training.module import TranslationModule
from tests.trainings import configure, read_metrics

TIMES = ("train/tokens_per_second", "train/data_share")
LIMIT = 300.0  # seconds after which a training counts as hanging


class Training:
    """One training of `world` processes in the folder `run`.

    kills  by rank: the step after which that process sends itself that signal
    fails  by rank: the step after which that process runs out of memory
    launcher  "lightning", "torchrun" or "slurm": the launcher to imitate
    """

    def __init__(
        self,
        run: Path,
        cache: Path,
        *overrides: str,
        world: int = 1,
        kills: dict[int, tuple[int, signal.Signals]] | None = None,
        fails: dict[int, int] | None = None,
        launcher: str = "lightning",
        strategy: str = "ddp",
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        run.mkdir(parents=True, exist_ok=True)
        self.log = run / "output.log"
        self.log.unlink(missing_ok=True)
        self.kills, self.fails = kills or {}, fails or {}
        if world > 1:
            overrides = (*overrides, f"trainer.devices={world}", f"trainer.strategy={strategy}")
            overrides = (*overrides, "trainer.accelerator=cpu")
        config = configure(run, cache, *overrides)
        context = multiprocessing.get_context("fork")
        self.processes = [
            context.Process(target=self._train, args=(config, rank, environment(launcher, rank, world, port)))
            for rank in range(world)
        ]
        for process in self.processes:
            process.start()

    def _train(self, config: dict[str, Any], rank: int, variables: dict[str, object]) -> None:
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.environ.update({name: str(value) for name, value in variables.items()})
        training.plot_learning_curves = lambda *_: None  # type: ignore[assignment]
        step = TranslationModule.training_step

        def disturbed(module: TranslationModule, batch: Batch, index: int) -> torch.Tensor:
            after, number = self.kills.get(rank, (-1, signal.SIGKILL))
            if module.global_step == after and not module.stop:
                os.kill(os.getpid(), number)
            if module.global_step == self.fails.get(rank, -1):
                module.batch = batch
                raise torch.OutOfMemoryError("tried to allocate 2 GiB")
            return step(module, batch, index)

        TranslationModule.training_step = disturbed  # type: ignore[method-assign]
        try:
            with one_line_errors():
                training.run(config)
        except SystemExit as error:
            sys.stderr.flush()
            os._exit(int(str(error.code or 0)))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(99)
        sys.stdout.flush()
        os._exit(0)

    def wait(self) -> list[int | None]:
        """The exit codes; None for a process that hung and was killed."""
        codes = []
        for process in self.processes:
            process.join(LIMIT)
            codes.append(process.exitcode)
            if process.exitcode is None:
                process.kill()
                process.join()
        return codes

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")


def environment(launcher: str, rank: int, world: int, port: int) -> dict[str, object]:
    """The environment of a process that Lightning, torchrun or srun started on one machine."""
    if world == 1:
        return {}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if launcher == "torchrun":
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        return {**place, **ranks, "TORCHELASTIC_RUN_ID": "none"}
    if launcher == "slurm":
        ranks = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURM_NTASKS": world}
        job = {"SLURM_JOB_ID": 4711, "SLURM_JOB_NAME": "train", "SLURM_NODELIST": "127.0.0.1", "SLURM_NNODES": 1}
        return {**ranks, **job, "SLURM_NTASKS_PER_NODE": world, "MASTER_PORT": port}
    return {**place, "LOCAL_RANK": rank, "NODE_RANK": 0}


def finish(run: Path, cache: Path, *overrides: str, world: int = 1, **how: Any) -> None:
    """Train to the end."""
    training = Training(run, cache, *overrides, world=world, **how)
    assert training.wait() == [0] * world, training.output


def assert_same(run: Path, other: Path) -> None:
    """The same rows of metrics and, bit for bit, the same weights, averages and optimizer states."""
    assert read_metrics(run, *TIMES) == read_metrics(other, *TIMES)
    contents = [torch.load(r / "checkpoints" / "last.ckpt", weights_only=True) for r in (run, other)]
    for key in (
        "state_dict",
        "current_model_state",
        "optimizer_states",
        "lr_schedulers",
        "DocumentDataModule",
        "SeveralCorpora",
        "guard",
    ):
        tensors = [tensors_of(content.get(key)) for content in contents]
        assert len(tensors[0]) == len(tensors[1]), key
        assert all(torch.equal(a, b) for a, b in zip(*tensors, strict=True)), key


def tensors_of(value: object) -> list[torch.Tensor]:
    """The tensors and numbers in nested containers, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (int, float)):
        return [torch.tensor(float(value), dtype=torch.float64)]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_of(item)] if isinstance(value, (list, tuple)) else []


def kill_steps(seed: int, steps: int, every: int) -> list[int]:
    """Three random steps without a checkpoint, one in each third of the steps after the first."""
    random_steps = random.Random(seed)
    thirds = [range(every + 1 + i * (steps - every) // 3, every + (i + 1) * (steps - every) // 3) for i in range(3)]
    return [random_steps.choice([step for step in third if step % every]) for third in thirds]
