# `make` alone lists the tasks.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo up kafka test test-slow test-delayed sim pythons check soak bench docs pictures protos lock clean

PYTHON ?= python3
DATA ?= data
ROUNDS ?= 30
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/pyvenv.cfg
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Where the shell tells Python to keep no bytecode, each server that a test starts would compile the whole bus anew.
export PYTHONDONTWRITEBYTECODE :=
UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
              --no-emit-index-url --no-emit-find-links --no-annotate

help: ## List the tasks
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with what runs a bus and its tables; done again when the lock or pyproject.toml changed

setup-dev: $(READY_DEV) ## The same with what tests, checks and builds; tasks that need it do it by themselves

# The first Python that is new enough, the wanted one before others; then what it lacks, in words.
$(MADE):
	@for name in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$$name && break; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Raceway needs Python 3.11 or newer and found none. On Debian 12 or newer: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "$$python cannot make a virtual environment. On Debian: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$($$python --version), about a minute ..."; \
	$$python -m venv $(VENV)

# A lock file is complete, so nothing is resolved: pip would stumble over a newer release of what is wanted with an extra.
# Modules are compiled when they are first used: compiling all of Spark and pandas takes a third of the set-up.
$(READY): requirements-spark.lock pyproject.toml | $(MADE)
	@$(PIP) --no-compile --no-deps --require-hashes -r requirements-spark.lock
	@$(PIP) --no-deps -e .
	@touch $@

# The versions are those of $(READY), and more: it is done as well.
$(READY_DEV): requirements-dev.lock pyproject.toml | $(MADE)
	@$(PIP) --no-deps --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $(READY) $@

demo: setup ## Play an airport's traffic over all four wires, make tables of it, print what they say
	@$(BIN)/raceway demo

up: setup ## Run bus, console and pipeline until Ctrl-C, with their data in DATA (default: data)
	@$(BIN)/raceway up --data $(DATA)

kafka: setup-dev ## Run three brokers of Apache Kafka on loopback until Ctrl-C, to try what talks to it (needs Java 17)
	@$(BIN)/python -m tools.kafka

# Tests wait more than they compute: one worker more than there are cores.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 1)
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --durations=10

test: setup-dev ## Run the tests, all but the slow ones, on all cores
	@$(PYTEST) -m "not slow"

test-slow: setup-dev ## Run the slow tests: kills, clusters, conformance suites, scale
	@$(PYTEST) -m slow

# Those that do not start servers: some two minutes for each Python.
QUICK_TESTS := tests/model tests/net/codec $(wildcard tests/wires/*/codec) tests/journal tests/broker tests/schema

# One cache for both, begun anew by every run: Spark is fetched and built once, and no old version of it is kept.
UV_CACHE := build/uv-cache
pythons: setup-dev ## Run the quick tests on each newer Python (3.12, 3.13) that this machine has
	@rm -rf $(UV_CACHE); for name in python3.12 python3.13; do \
	  newest=$$(pyenv versions --bare 2>/dev/null | grep "^$${name#python}[.]" | tail -1); \
	  python=$$(PYENV_VERSION=$$newest $$name -c 'import sys; print(sys.executable)' 2>/dev/null) || { echo "no working $$name here"; continue; }; \
	  $(BIN)/python -c "import sys; sys.exit('python%d.%d' % sys.version_info[:2] == '$$name')" || continue; \
	  echo "The quick tests on $$($$python --version) ..."; \
	  venv=build/venv-$$name; \
	  $(BIN)/uv venv --quiet --clear --python $$python $$venv && \
	  $(BIN)/uv pip install --quiet --cache-dir $(UV_CACHE) --python $$venv/bin/python --no-deps --require-hashes -r requirements-dev.lock && \
	  $(BIN)/uv pip install --quiet --cache-dir $(UV_CACHE) --python $$venv/bin/python --no-deps --no-build-isolation -e . && \
	  $$venv/bin/python -m pytest -q -n $(WORKERS) --dist loadgroup -p no:cacheprovider $(QUICK_TESTS) || exit 1; \
	done

# Wires and web must work when every outcome comes a turn of the loop later.
test-delayed: setup-dev ## Run each verb and rule of the wires again behind a door whose outcomes come later
	@TEST_DELAYED_DOOR=1 $(PYTEST) -m "verbs and not slow"

# One process, one thread and one seed for each history; see docs/operate/simulation.md.
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
sim: setup-dev ## Run the whole bus in simulation: SEED=, HISTORIES=, MINUTES= (default: 1), STEPS=, on all cores
	@$(BIN)/python -m tests.sim --cores $(CORES) $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) \
	  $(if $(HISTORIES),--histories $(HISTORIES),$(if $(MINUTES),--minutes $(MINUTES),$(if $(SEED),,--minutes 1)))

check: setup-dev ## Format, lint, types, import directions
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_import_directions.py

# The whole suites of wires and web, for the door whose outcomes come later.
DELAYED_TESTS := tests/wires tests/one_bus tests/net/test_tcp.py tests/net/test_grpc.py tests/broker/delivery tests/web \
                 tests/contract/test_live_model.py tests/end_to_end/test_slow_subscriber.py \
                 $(wildcard $(addprefix tests/end_to_end/test_,mb_*.py seneca_*.py danube_*.py zbus_*.py http_*.py)) \
                 tests/end_to_end/test_console_api.py

soak: setup-dev ## Run all tests with ROUNDS repetitions of the random ones (default: 30), never fewer than `make test`
	@RACEWAY_ROUNDS=$(ROUNDS) $(PYTEST) --timeout=3600
	@TEST_DELAYED_DOOR=1 RACEWAY_ROUNDS=$(ROUNDS) $(PYTEST) --timeout=3600 $(DELAYED_TESTS)

bench: setup-dev ## Measure codec, journal, start, pipeline and the whole path beside other brokers
	@for script in codec journal real path zbus danube seneca start pipeline; do $(BIN)/python -m bench.$$script || exit 1; done

docs: setup-dev ## Write the reference anew from the code, and make the manual into build/site
	@$(BIN)/python -m docs.make_reference
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto docs build/site
	@echo "The manual is at build/site/index.html"

pictures: setup-dev ## Take the pictures of the console under docs/pictures anew (needs Chromium and Java)
	@RACEWAY_PICTURES=docs/pictures $(BIN)/python -m pytest -q --timeout=600 tests/end_to_end/test_console.py tests/end_to_end/test_console_guests.py tests/cluster/test_three_nodes.py

protos: setup-dev ## Write the modules of the Danube messages anew from their .proto files
	@$(BIN)/python tools/make_protos.py

# What users run are versions that the tests run: the other files are constrained by the largest.
lock: setup-dev ## Resolve the lock files anew from pyproject.toml
	@$(UV_COMPILE) --extra spark --extra dev --output-file requirements-dev.lock
	@$(UV_COMPILE) --constraints requirements-dev.lock --output-file requirements.lock
	@$(UV_COMPILE) --constraints requirements-dev.lock --extra kafka --output-file requirements-kafka.lock
	@$(UV_COMPILE) --constraints requirements-dev.lock --extra otel --output-file requirements-otel.lock
	@$(UV_COMPILE) --constraints requirements-dev.lock --extra spark --output-file requirements-spark.lock

clean: ## Remove .venv, caches and build output; data folders stay
	@rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find src tests bench examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
