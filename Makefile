# Everything happens inside .venv; the only thing needed beforehand is Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

run: install  ## the broker, on its default addresses
	$(BIN)/polycast serve

test: dev peers  ## the whole test suite, after all checks
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest

check: dev  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/installed  ## Polycast into .venv

dev: $(VENV)/installed-dev  ## the same, with the test tools

interop: dev peers  ## only the tests that talk to programs others wrote
	$(BIN)/python -m pytest -m interop

bench: dev peers  ## this broker beside nats-server, redis and mosquitto
	$(BIN)/polycast bench

docs: dev  ## write docs/reference/ from the code
	$(BIN)/python tools/reference.py

lock: dev  ## renew requirements.lock
	$(PIP) install uv
	$(BIN)/uv pip compile --quiet --universal --all-extras --no-emit-package polycast --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --upgrade pyproject.toml -o requirements.lock

clean:  ## remove what make made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis bench-results
	rm -f src/polycast/dialects/*.so src/polycast/dialects/*.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

SOURCES := pyproject.toml setup.py requirements.lock src/polycast/dialects/_scan.pyx

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Polycast needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version)"; \
		  echo "hint: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "$(PYTHON) cannot make virtual environments"; echo "hint: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/installed: $(VENV)/python $(SOURCES)
	$(PIP) install -c requirements.lock -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/python $(SOURCES)
	$(PIP) install -c requirements.lock -e '.[dev]'
	@touch $@ $(VENV)/installed

# Peers that are no Python packages. Installed where that needs no questions; the tests that miss one say so.
PEERS := redis-server mosquitto netcat-openbsd socat

peers: $(VENV)/python
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		dpkg -s $(PEERS) >/dev/null 2>&1 || { \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq >/dev/null 2>&1; \
			apt-get install -y -qq --no-install-recommends $(PEERS) >/dev/null 2>&1 || \
				echo "could not install $(PEERS): tests that need them are skipped"; }; \
	fi

.PHONY: help run test check install dev interop bench docs lock clean peers
