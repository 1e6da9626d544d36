"""Every shipped configuration composes, and what it describes can be built."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from scaleformer.data.config import DataConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.metrics import Metrics
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.schema import from_mapping
from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig
from scaleformer.training.settings import CallbacksConfig, LoggerConfig

CONF = Path(__file__).parents[1] / "conf"
GROUPS = ("data", "tokenizer", "model", "model/attention", "optimizer", "schedule", "trainer", "logger", "callbacks",
          "decoding", "experiment")  # fmt: skip
CHOICES = [
    f"{group}={path.stem}"
    for group in GROUPS
    for path in sorted((CONF / group).glob("*.yaml"))
    if path.stem != "base" or group != "data"
]


def configured(*overrides: str) -> dict:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", [*overrides, "run_dir=unused"])
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_and_builds(choice: str) -> None:
    config = configured(choice, *(["data.hub.name=any"] if choice == "data=hub" else []))
    from_mapping(DataConfig, config["data"], "data")
    TokenizerConfig(**config["tokenizer"])
    OptimizerConfig(**config["optimizer"])
    ScheduleConfig(**config["schedule"])
    DecodingConfig(**config["decoding"])
    DecodingConfig(**config["callbacks"]["validation_bleu"]["decoding"])
    small = {**config["model"], "width": 16, "feedforward": 16, "heads": 4, "encoder_layers": 1, "decoder_layers": 1}
    Transformer(ModelConfig(20, 20, **small))


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("data/base", DataConfig()), ("data/synthetic", DataConfig()), ("tokenizer/default", TokenizerConfig()),
        ("model/tiny", ModelConfig(20, 20)), ("optimizer/adamw", OptimizerConfig()), ("metrics/default", Metrics()),
        ("schedule/inverse_sqrt", ScheduleConfig()), ("callbacks/default", CallbacksConfig()),
        ("logger/csv", LoggerConfig()), ("decoding/beam", DecodingConfig()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_defaults_of_a_class_are_those_of_its_file(file: str, settings: object) -> None:
    """What Python code leaves out means what it means on the command line."""

    def compare(content: DictConfig, found: dict) -> None:
        for key, value in content.items_ex(resolve=False):
            if isinstance(value, DictConfig):
                compare(value, found[key])
            elif key != "defaults" and value != "${seed}":
                assert (list(found[key]) if isinstance(found[key], tuple) else found[key]) == value, key

    compare(OmegaConf.load(CONF / f"{file}.yaml"), asdict(settings))  # type: ignore[arg-type,call-overload]


def test_the_paper_differs_from_the_default_in_its_attention_alone() -> None:
    paper, default = (configured(f"experiment={name}") for name in ("paper", "default"))
    assert (paper["model"].pop("attention")["name"], default["model"].pop("attention")["name"]) == (
        "scaleformer",
        "segment_recall",
    )
    assert paper == default


def test_sites_are_chosen_one_by_one() -> None:
    config = configured("model/attention=softmax", "model/attention@model.sites.cross=scaleformer")
    assert config["model"]["attention"]["name"] == "softmax"
    assert config["model"]["sites"]["cross"]["name"] == "scaleformer"
    model = Transformer(ModelConfig(20, 20, **config["model"]))
    assert type(model.decoder[0].cross_attention).__name__ == "ScaleformerAttention"
    assert type(model.decoder[0].attention).__name__ == "SoftmaxAttention"


@pytest.mark.parametrize("experiment", [p.stem for p in sorted((CONF / "experiment").glob("*.yaml"))])
def test_experiments_take_another_attention(experiment: str) -> None:
    config = configured(f"experiment={experiment}", "model/attention=softmax")
    with torch.device("meta"):
        model = Transformer(ModelConfig(20, 20, **config["model"]))
    assert type(model.encoder[0].attention).__name__ == "SoftmaxAttention"


@pytest.mark.parametrize("command", [p.stem for p in CONF.glob("commands/*.yaml") if "/data: null" in p.read_text()])
@pytest.mark.parametrize("data", ["jsonl", "text", "hub", "synthetic"])
def test_commands_take_another_corpus(command: str, data: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(f"commands/{command}", ["checkpoint=RUN", f"data={data}", "data.path=DIR", "++data.hub.name=any"])
    assert OmegaConf.to_container(cfg, resolve=True)["data"]["format"] == data  # type: ignore[index,call-overload]
