# Everything happens inside .venv; the only thing needed beforehand is Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

run: install  ## everything in one terminal, with a demo
	@echo 'this is polycast up --demo; without the demo: $(BIN)/polycast up; the broker alone: $(BIN)/polycast serve'
	@exec $(BIN)/polycast up --demo

test: dev peers  ## all checks and the whole test suite, side by side
	@$(MAKE) --no-print-directory check >$(VENV)/check.txt 2>&1 & checks=$$!; \
	$(PYTEST) --numprocesses 5 --dist loadfile --no-loadscope-reorder; tested=$$?; \
	wait $$checks && echo 'ruff, mypy and the import contracts passed' || { cat $(VENV)/check.txt; exit 1; }; \
	exit $$tested

QUICK := model dialects routing broker log pipelines spark_unit server/config

quick: dev  ## the tests of the rules and the formats, without Spark, browsers, peers and crashes: under a minute
	$(PYTEST) --quiet --numprocesses 2 --hypothesis-profile quick -m 'not slow' $(QUICK:%=tests/%)

check: dev  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/installed  ## Polycast into .venv

dev: $(VENV)/installed-dev  ## the same, with the test tools

interop: dev peers  ## only the tests that talk to programs others wrote
	$(PYTEST) -m interop

bench: dev peers  ## this broker beside nats-server, redis and mosquitto
	$(BIN)/polycast bench

docs: dev  ## write docs/reference/ from the code, and docs/dialects/conversions.md from what a broker does
	$(BIN)/python tools/reference.py
	POLYCAST_WRITE_DOCS=1 $(PYTEST) -q tests/bridge/test_bridge_page.py

fuzz: dev  ## malformed input; FUZZ: number of examples
	POLYCAST_FUZZ=$(or $(FUZZ),20000) $(PYTEST) -q tests/fuzz

crash: dev  ## a broker that is killed again and again; ROUNDS: number of kills
	POLYCAST_CRASH=$(or $(ROUNDS),1000) $(PYTEST) -q tests/crash tests/log/test_faults_power.py

chaos: dev  ## a cluster under load whose nodes, servers, links, disks and clocks fail; ROUNDS: number of failures, SEED: their order
	POLYCAST_CHAOS=$(or $(ROUNDS),200) POLYCAST_CHAOS_SEED=$(SEED) $(PYTEST) -q -s tests/chaos

crash-spark: dev  ## Spark's driver, its workers and the broker killed again and again; ROUNDS: number of kills
	POLYCAST_CRASH_SPARK=$(or $(ROUNDS),200) $(PYTEST) -q -s tests/spark/test_spark_crash.py

newcomer:  ## clone into an empty folder, make run there, look at it, stop it: some minutes
	$(PYTHON) tests/newcomer/run.py

bench-spark: dev  ## the source, the sink and the pipelines beside Spark's own Parquet
	$(BIN)/python -m polycast.bench.spark

bench-scale: dev  ## what one broker process takes: topics, payloads, subscribers, subscriptions, connections
	$(BIN)/python -m polycast.bench.scale

dist: dev  ## the sdist and the wheel, into dist/
	rm -rf build dist
	$(BIN)/python -m build

lock: dev  ## renew requirements.lock
	$(PIP) install uv
	$(BIN)/uv pip compile --quiet --universal --all-extras --no-emit-package polycast --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --upgrade pyproject.toml -o requirements.lock

clean:  ## remove what make made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis bench-results $(NODE)/node_modules
	find src -name '*.so' -delete -o -name '*.c' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

SOURCES := pyproject.toml setup.py requirements.lock $(shell find src -name '*.pyx')

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Polycast needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version)"; \
		  echo "hint: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "$(PYTHON) cannot make virtual environments"; echo "hint: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/installed: $(VENV)/python $(SOURCES)
	$(PIP) install -c requirements.lock -e '.[spark]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/python $(SOURCES)
	$(PIP) install -c requirements.lock -e '.[dev]'
	@touch $@ $(VENV)/installed

# Peers that are no Python packages, as program:package where the two differ. Installed where that needs no
# questions; a test that misses one is skipped, and names the command that brings it.
PEERS := redis-server mosquitto nc.openbsd:netcat-openbsd socat nanocat:nanomsg-utils nngcat:nng-utils \
	node:nodejs npm chromium zsh fish promtool:prometheus
NODE := tests/interop/node
NPM_INSTALL := npm install --no-package-lock --no-audit --no-fund --silent --fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=3000

peers:
	@PATH="$$PATH:/usr/sbin"; missing=; failed=; \
	for peer in $(PEERS); do command -v $${peer%:*} >/dev/null || missing="$$missing $${peer#*:}"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq >/dev/null 2>&1; \
		for package in $$missing; do \
			apt-get install -y -qq --no-install-recommends $$package >/dev/null 2>&1 || failed="$$failed $$package"; \
		done; \
		[ -z "$$failed" ] || echo "could not install$$failed: tests that need them are skipped"; \
	fi
	@stamp=$(NODE)/node_modules/.installed; \
	if command -v npm >/dev/null && ! [ $$stamp -nt $(NODE)/package.json ]; then \
		{ $(NPM_INSTALL) --prefix $(NODE) >/dev/null 2>&1 && touch $$stamp; } || \
			echo "could not install what $(NODE)/package.json names: tests that need it are skipped"; \
	fi

.PHONY: help run test quick check install dev interop bench bench-spark bench-scale docs fuzz chaos crash crash-spark newcomer dist lock clean peers
