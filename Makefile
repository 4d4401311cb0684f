# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZ_EXAMPLES ?= 20000
# How many processes run the tests: some of them wait.
JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
# Installed before everything else; name another wheel where your machine needs one.
TORCH ?= torch==2.13.0
# A worker that crashes ends the session: with another in its place, xdist waits for ever once the rest has ended.
XDIST = -n $(JOBS) --max-worker-restart=0 --dist
PYTEST = $(BIN)/python -W "ignore:Unable to activate pytest branch coverage" -m slipcover --json --out
DEMO := $(or $(DEMO),runs/demo-$(shell date +%Y%m%d-%H%M%S))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Takes seconds where pip takes minutes; pip is asked where it cannot, as where only pip knows of a mirror.
UV := $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python

# A command of ours starts hundreds of processes in the tests; compiling all modules in each would take minutes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-rest test-all check docs bench parity fuzz format clean

demo: $(VENV)/.train ## Synthesize 40 trajectories with the embedded backend, show one, and train a tiny model on them
	@$(BIN)/refinesynth run --backend rehearsal -n 40 -o $(DEMO)
	@$(BIN)/refinesynth show $(DEMO) --random
	@$(BIN)/refinesynth train $(DEMO) --recipe smoke -o $(DEMO)-model

test: $(VENV)/.dev ## Run laws, on fewer examples, and one representative of each law over processes and training; minutes
	@rm -f .coverage.*.json
	HYPOTHESIS_PROFILE=quick $(PYTEST) .coverage.laws.json -m pytest $(XDIST) worksteal -m "law and not long"
	$(PYTEST) .coverage.representatives.json -m pytest $(XDIST) loadfile --no-loadscope-reorder -m representative

test-rest: $(VENV)/.dev ## Run what `make test` leaves out, laws that draw examples on all of them; then check the branch coverage of both
	$(PYTEST) .coverage.rest.json -m pytest $(XDIST) loadfile --no-loadscope-reorder -m "not representative and (hypothesis or long or not law)"
	@$(BIN)/python -m slipcover --merge .coverage.*.json --out .coverage.json --fail-under 95

test-all: ## Run all tests, with branch coverage
	$(MAKE) test
	$(MAKE) test-rest

check: $(VENV)/.dev ## Lint, types, order of the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.dev ## Build the documentation site into site/; a broken link fails
	@$(BIN)/python docs/build_site.py --strict

bench: $(VENV)/.dev ## Measure everything beside a reference, print one table and write docs/benchmarks.md
	@$(BIN)/python -m bench.rivals.setup
	@$(BIN)/python -m bench

parity: $(VENV)/.dev ## Compare our labels and rewards with those of TRL, LLaMA-Factory, Axolotl, Tinker, renderers, verifiers and OpenEnv (gigabytes, minutes)
	@$(BIN)/python -m bench.train.setup
	$(BIN)/python -m pytest tests/parity

fuzz: $(VENV)/.dev ## Look for input that crashes parsers, loaders and the journal, for as long as it takes
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/fuzz
	SIMULATE_TO=10000 $(BIN)/python -m pytest -o faulthandler_timeout=0 -n $(JOBS) tests/simulation

format: $(VENV)/.dev ## Format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and caches; runs and the environments of other trainers are kept
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage*.json

$(BIN)/uv:
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) uv

$(VENV)/.train: pyproject.toml | $(BIN)/uv
	@echo "setting up $(VENV) (once, about two minutes: torch is large)"
	@$(PIP) --no-compile '$(TORCH)'
	@$(UV) -e '.[train]' || $(PIP) -e '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/uv
	@echo "setting up $(VENV) for development (once, about two minutes)"
	@$(PIP) --no-compile '$(TORCH)'
	@$(UV) -e '.[dev]' || $(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.train
