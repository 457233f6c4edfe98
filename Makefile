# Needs GNU make and a Python of at least 3.11 with its venv module; everything else goes to .venv.

PYTHON ?= python3
LOCK_PYTHON ?= python3.11
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Twice the processors: many tests wait for processes, leases and servers.
WORKERS ?= $(shell echo $$((2 * $(PROCESSORS))))
ARGS ?=
SIZE ?= normal
ONLY ?=
JSON ?=
SEEDS ?= 0-999
SVG ?=
PEERS ?=

VENV := .venv
LOCK_VENV := .venv-lock
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
LOCK := requirements-dev.lock
CODE := $(wildcard src tests examples bench)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Workers are processes: without compiled files each of them compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test chaos simulate bench lint types check lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create .venv with the locked dependencies and this package

$(INSTALLED): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Duly needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Choose another: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

demo: setup ## Run the guided tour
	$(BIN)/python examples/tour.py

test: setup ## Run the tests; ARGS="tests/unit -k name" selects, WORKERS=4 sets the processes
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

bench: setup ## Measure beside the bare engine; ONLY=drain,latency SIZE=small JSON=bench/results/NAME.json PEERS=1
	$(BIN)/python -m bench --size $(SIZE) --only '$(ONLY)' $(if $(JSON),--json $(JSON)) $(if $(SVG),--svg $(SVG)) $(if $(PEERS),--peers) $(ARGS)

chaos: setup ## Kill, stop and cut for minutes; DULY_CHAOS_SECONDS, _JOBS and _SEED set the storm
	DULY_CHAOS=1 $(BIN)/pytest -n $(WORKERS) -rP --timeout 900 $(if $(ARGS),$(ARGS),tests/chaos tests/runtime)

simulate: setup ## Run the state machine under faults in virtual time; SEEDS=0-9999, or SEEDS=17 for one
	$(BIN)/python -m tests.simulation.simulator $(SEEDS)

lint: setup ## Check style, formatting and the direction of imports
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports

types: setup ## Check types
	$(BIN)/mypy $(CODE)

check: lint types test ## Everything that must pass before a commit

# Resolved on the oldest supported Python, from the package index alone: files that only this
# machine has (pip's find-links and extra indexes) must not get into the lock.
lock: ## Resolve the dependencies again; ARGS=--upgrade takes newer versions
	$(LOCK_PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet 'pip-tools>=7.4,<8'
	env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
		CUSTOM_COMPILE_COMMAND='make lock' \
		$(LOCK_VENV)/bin/pip-compile --quiet --no-config --all-extras --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-options --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links \
		--output-file $(LOCK) $(ARGS) pyproject.toml
	rm -rf $(LOCK_VENV)

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) $(LOCK_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
