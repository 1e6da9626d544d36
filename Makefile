PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Python compiles what it imports once and keeps it. Where it may not, as in many containers, each start would compile all
# of PyTorch anew, for many seconds: then the installation compiles.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(if $(PYTHONDONTWRITEBYTECODE),--compile,--no-compile)
# and what it imports, without what it pins
JOEYNMT := joeynmt tensorboard absl-py subword-nmt importlib_metadata lazy-importer zipp

.DEFAULT_GOAL := help
.PHONY: help install train test lint check bench bench-gpu bench-quality docs docs-check

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

install: $(STAMP)  ## Make .venv and install the package with its pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[dev,documents,serve]'
	touch $@
	@echo "the program is $(BIN)/scaleformer; to type scaleformer alone: source $(BIN)/activate"

train: install  ## Train, evaluate and show the default experiment (embedded corpus, CPU, some 10 minutes)
	$(BIN)/scaleformer train

test: install  ## Run the tests in two processes
	$(BIN)/python -m pytest -n 2 --dist loadscope --max-worker-restart 0

lint: install  ## Style, types, and pages that are hard to read
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m scripts.check_prose
	$(BIN)/python -m scripts.pages.configuration --check
	$(BIN)/python -m scripts.pages.results --check

check: lint test  ## Style, types, pages and tests; CI also builds a wheel, trains, and kills a run (.ci/run)

docs: install  ## Build the site of the pages into site/; a dead link or a page that nothing leads to is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-check: install  ## Run the commands that the pages show, as far as the embedded corpus goes
	$(BIN)/python -m scripts.pages.commands

bench: install  ## Time attention, training and decoding beside their peers; writes docs/benchmarks.md
	$(PIP) -e '.[bench]'
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -c constraints.txt $(JOEYNMT)
	$(BIN)/python -m scripts.bench_attention
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python -m scripts.bench_training
	$(BIN)/python -m scripts.bench_decoding
	$(BIN)/python -m scripts.pages.benchmarks

bench-gpu: install  ## Time training steps, attention and decoding on a GPU in some 10 minutes; continues where it was
	$(PIP) -e '.[bench]' flash-linear-attention
	$(BIN)/python -m scripts.bench_gpu --parts step attention check profile decode

MINUTES ?= 60
bench-quality: install  ## Train JoeyNMT, Hugging Face, eole and ours for MINUTES on CORPUS each, and score them all
	test -n "$(CORPUS)" || { echo "CORPUS= is missing: a folder of train, valid and test.jsonl.gz"; exit 1; }
	$(BIN)/python -m scripts.quality "$(CORPUS)" --minutes $(MINUTES)
