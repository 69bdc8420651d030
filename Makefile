# Needs Python >= 3.11 and make, nothing else: the broker comes as Python wheels and Java archives into .venv and .headrace.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench up clean lock

help:  ## this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: $(READY)  ## a simulated web is crawled over a real Kafka, workers are killed, documents are counted
	$(BIN)/headrace demo $(ARGS)

test: $(READY)  ## all tests; starts the broker and the registry they need
	$(BIN)/pytest $(ARGS)

check: $(READY)  ## formatting, lints, types, import rules, contracts; under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/headrace schemas check

bench: $(READY)  ## the whole pipeline and Scrapy on the same simulated web, side by side
	$(BIN)/python -m bench.pipeline $(ARGS)

up: $(READY)  ## broker and registry, until Ctrl-C
	$(BIN)/headrace up $(ARGS)

lock: $(READY)  ## write requirements.lock anew from pyproject.toml
	$(BIN)/pip install --quiet uv==0.13.9
	$(BIN)/uv pip compile pyproject.toml --all-extras --generate-hashes --no-emit-find-links --no-header -q -o requirements.lock

clean:  ## remove the virtual environment and all local state
	rm -rf $(VENV) .headrace out build *.egg-info
