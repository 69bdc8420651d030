# Needs Python 3.11 or newer and make, nothing else. Packages go into .venv; the broker comes with them, its Java archives
# go into ~/.m2 at the first start; what runs keeps its files in .headrace.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-latency bench-clients bench-delivery bench-failover bench-frontier bench-urgent bench-fetch chaos slow faults safeguards up clean lock

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo
	@echo "ARGS is handed on: make demo ARGS='--kills 10 --seed 7', make test ARGS=tests/unit, make bench ARGS=--help"
	@echo "PYTHON names the interpreter of the virtual environment: make demo PYTHON=python3.12"

demo: $(READY)  ## a simulated web is crawled over a real Kafka, workers are killed, documents are counted
	$(BIN)/headrace demo $(ARGS)

test: $(READY)  ## all tests but the long ones; starts the broker and the registry they need
	$(BIN)/pytest -m "not chaos" $(ARGS)

check: $(READY)  ## formatting, lints, types, import rules, contracts; under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/headrace schemas check

bench: $(READY)  ## the whole pipeline and Scrapy on the same simulated web, side by side
	$(BIN)/python -m bench.pipeline $(ARGS)

bench-latency: $(READY)  ## from a task submitted to its document visible, one at a time
	$(BIN)/python -m bench.latency $(ARGS)

bench-clients: $(READY)  ## clients that send to a broker: messages a second, latency, CPU
	$(BIN)/python -m bench.clients $(ARGS)

bench-delivery: $(READY)  ## both runners with bare stages, and the transaction: records a second, CPU a record
	$(BIN)/python -m bench.delivery $(ARGS)

bench-failover: $(READY)  ## how long partitions stand still when workers are killed and deployed, by stage
	$(BIN)/python -m bench.failover $(ARGS)

bench-frontier: $(READY)  ## what a link costs with 100,000 to 10 million known URLs; ARGS='--urls 100000000' for more
	$(BIN)/python -m bench.frontier $(ARGS)

bench-urgent: $(READY)  ## urgent tasks behind a million bulk tasks: in their lane, and fetched first; some ten minutes
	$(BIN)/python -m bench.urgent $(ARGS)

bench-fetch: $(READY)  ## what fetching a page costs: our stage and client, aiohttp, httpx, Scrapy
	$(BIN)/python -m bench.fetch $(ARGS)

chaos: $(READY)  ## workers, broker, network, disks and clocks broken for MINUTES; CHAOS_KINDS=kill,zombie
	CHAOS_MINUTES=$(MINUTES) $(BIN)/pytest tests/chaos -m chaos --log-cli-level=INFO $(ARGS)

slow: $(READY)  ## the tests that take too long for make test; chaos apart
	$(BIN)/pytest -m chaos --ignore tests/chaos $(ARGS)

faults: $(READY)  ## each fault of the table on a real broker, measured; writes docs/operations/faults.md anew
	HEADRACE_FAULTS=docs/operations/faults.json $(BIN)/pytest tests/integration/test_faults.py $(ARGS)
	$(BIN)/python -m tests.fault_table

safeguards: $(READY)  ## each safeguard of the delivery core taken away in a copy: does a test notice?
	$(BIN)/python -m tests.remove_safeguards $(ARGS)

up: $(READY)  ## broker and registry with all topics, until Ctrl-C
	$(BIN)/headrace up $(ARGS)

clean:  ## remove the virtual environment and everything that runs have left
	rm -rf $(VENV) .headrace out build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

lock: $(READY)  ## write requirements.lock anew from pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.9
	$(BIN)/uv pip compile pyproject.toml --all-extras --python-version 3.11 --generate-hashes --no-emit-find-links --no-header -q -o requirements.lock

$(READY): requirements.lock pyproject.toml
	@command -v "$(PYTHON)" > /dev/null || { \
	  echo "$(PYTHON) was not found: install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "%s is Python %d.%d; Headrace needs 3.11 or newer: make PYTHON=/path/to/python3.11" % (sys.executable, *sys.version_info[:2]))'
	@"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "$(PYTHON) can not make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV), once; takes a minute or two"
	@"$(PYTHON)" -m venv "$(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-input --no-deps --editable .
	@touch $@
