# Development entry points; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := $(shell grep -E '^torch==' constraints.txt)

.PHONY: help venv test test-slow lint format bench demo clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with everything that development needs

# torch goes first and by its exact version: whatever is installed after it then keeps that build.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(0 if v >= (3, 10) else "vicoset needs Python 3.10 or newer, and $(PYTHON) is " \
	  "%d.%d. Name another one: make venv PYTHON=python3.11" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt '$(TORCH)'
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

test: $(STAMP) ## run the tests, except those marked slow
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# The slow tier: tests marked `slow` (exhaustive enumerations, long simulations), run with ten times
# the examples per property. For a change to the mathematics and for a release, not for every push.
test-slow: $(STAMP) ## run the tests marked slow, with more examples per property
	VICOSET_HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 -m slow $(PYTEST_ARGS)

lint: $(STAMP) ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/vicoset

format: $(STAMP) ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## run the benchmarks
	$(BIN)/python benchmarks/run.py

demo: $(STAMP) ## run the demonstration
	$(BIN)/python -m vicoset.demo

clean: ## remove caches and build outputs; .venv stays
	rm -rf build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
