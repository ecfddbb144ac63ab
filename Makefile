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
MATRIX := .venv-matrix
VERSIONS := $(shell cat tests/matrix/versions.txt)
LMMS := .venv-lmms

.PHONY: help venv test test-slow test-matrix test-lmms lint format bench bench-selection demo docs-models docs-methods docs-tiny clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

# An environment for every transformers of tests/matrix/versions.txt, with what the core contract
# needs and nothing else.
$(MATRIX)/%/.installed: pyproject.toml constraints.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install '$(TORCH)'
	$(@D)/bin/python -m pip --disable-pip-version-check install 'transformers==$*' \
	  safetensors numpy pillow pytest
	$(@D)/bin/python -m pip --disable-pip-version-check install --no-deps --editable .
	@touch $@

test-matrix: $(VERSIONS:%=$(MATRIX)/%/.installed) ## run the core contract on every transformers we name
	@failed=; for version in $(VERSIONS); do \
	  echo "== transformers $$version"; \
	  $(MATRIX)/$$version/bin/python -m pytest --confcutdir=tests/matrix tests/matrix \
	    $(PYTEST_ARGS) || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on transformers$$failed"; exit 1; }

# lmms-eval asks for packages that tests/lmms/override.txt keeps away, which uv can do and pip cannot.
$(LMMS)/.installed: pyproject.toml constraints.txt tests/lmms/override.txt
	@test -x $(LMMS)/bin/python || $(PYTHON) -m venv $(LMMS)
	$(LMMS)/bin/python -m pip --disable-pip-version-check install '$(TORCH)' uv
	$(LMMS)/bin/uv pip install --system-certs --python $(LMMS)/bin/python --constraint constraints.txt \
	  --override tests/lmms/override.txt 'lmms-eval==0.7.3' hypothesis pyarrow pytest
	$(LMMS)/bin/python -m pip --disable-pip-version-check install --no-deps --editable .
	@touch $@

test-lmms: $(LMMS)/.installed ## compare with lmms-eval: scorers, and whole runs through the plug-in
	$(LMMS)/bin/python -m pytest -W default tests/lmms $(PYTEST_ARGS)

lint: $(STAMP) ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/vicoset

format: $(STAMP) ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## run the benchmarks
	$(BIN)/python benchmarks/run.py

bench-selection: $(STAMP) ## time every selector beside what its mathematics demands
	$(BIN)/python benchmarks/selection.py

demo: $(STAMP) ## ask the bundled model with all and with few visual tokens
	$(BIN)/vicoset demo

# Every certified family has to pass the contract first; a broken one leaves the page as it is.
docs-models: $(STAMP) ## run the contract of the model families and write docs/models.md
	HF_HUB_OFFLINE=1 $(BIN)/python -m docs.make_models

docs-tiny: $(STAMP) ## write docs/tiny.md from what was collected of the training runs
	$(BIN)/python -m docs.make_tiny

docs-methods: $(STAMP) ## write docs/methods.md from what methods say of themselves
	$(BIN)/python -m docs.make_methods

clean: ## remove caches and build outputs; the environments stay
	rm -rf build dist out vicoset-demo.png .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . \( -path ./$(VENV) -o -path ./$(MATRIX) -o -path ./$(LMMS) \) -prune -o -type d -name __pycache__ -exec rm -rf {} +
