# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZ_EXAMPLES ?= 20000
# How long the coverage-guided fuzzers run, each, in seconds.
FUZZ_SECONDS ?= 600
# How many processes run the tests.
JOBS ?= auto
# Installed before everything else for development; name another wheel where your machine needs one.
TORCH ?= torch==2.13.0
DEMO ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check bench parity fuzz format clean

demo: $(VENV)/.package ## Synthesize 40 trajectories with the embedded backend and show one
	@$(BIN)/refinesynth run --backend rehearsal -n 40 -o $(DEMO)
	@$(BIN)/refinesynth show $(DEMO) --random

test: $(VENV)/.dev ## Run all tests, with branch coverage
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(JOBS) --dist worksteal
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/.dev ## Lint, types, order of the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/.dev ## Measure everything beside a reference, print one table and write docs/benchmarks.md
	@$(BIN)/python -m bench.rivals.setup
	@$(BIN)/python -m bench

parity: $(VENV)/.dev ## Compare our training labels with those that TRL, LLaMA-Factory and Axolotl compute (some gigabytes, minutes)
	@$(BIN)/python -m bench.train.setup
	$(BIN)/python -m pytest tests/parity

fuzz: $(VENV)/.dev ## Look for input that crashes parsers, loaders and the journal, for as long as it takes
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz
	$(BIN)/python tests/fuzz/guided.py any_state_is_played_in -max_total_time=$(FUZZ_SECONDS)
	$(BIN)/python tests/fuzz/guided.py any_script_is_refused_in_words_or_played_within_bounds -max_total_time=$(FUZZ_SECONDS)

format: $(VENV)/.dev ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and caches; runs and the environments of other trainers are kept
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) (once, about a minute)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV) for development (once, a few minutes)"
	@$(PIP) '$(TORCH)'
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.package
