# Every target sets up what it needs; there is no step before the first `make`.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMP := $(VENV)/.installed
# Test processes side by side; 0 runs all in one, for a debugger. End to end each has a control
# plane of its own, and most of its time is spent waiting.
WORKERS ?= 2

# `operator` is also a module of the standard library. The current directory stays off Python's
# path, so that the directory of that name here can never be taken for it.
export PYTHONSAFEPATH := 1
# The environment's programs first: kubectl and cardwise of the pinned versions.
export PATH := $(VENV)/bin:$(PATH)

##@ Try it

.PHONY: demo
demo: controlplane ## the policies at work on a local cluster with fake GPUs (KEEP=1, DOOR=gates, HAMI=1)
	@PYTHONPATH=tests $(PY) tests/demo/demo.py $(if $(KEEP),--keep) $(if $(DOOR),--door $(DOOR)) \
	  $(if $(HAMI),--hami)

.PHONY: demo-stop
demo-stop: $(STAMP) ## stop what `make demo KEEP=1` left running
	@PYTHONPATH=tests $(PY) tests/demo/demo.py --stop

##@ Work on it

.PHONY: test
test: export HYPOTHESIS_PROFILE ?= ci
test: ## everything: check, unit, e2e, e2e-node, demo
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory e2e-node
	@$(MAKE) --no-print-directory demo KEEP= DOOR=extender
	@$(MAKE) --no-print-directory demo KEEP= DOOR=gates
	@reason="$$($(NO_NODE))"; test -z "$$reason" || echo "test: NOT RUN: e2e-node, $$reason"

.PHONY: check
check: guard $(STAMP) ## format, lint, types and layers, without changing a file
	@$(VENV)/bin/ruff format --check . || { echo "check: 'make fix' formats these"; exit 1; }
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

.PHONY: fix
fix: $(STAMP) ## format, and mend what the linter can mend
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

.PHONY: unit
unit: guard $(STAMP) ## unit and property tests (ARGS="-k mutex" passes on to pytest)
	@$(PY) -m pytest -m "not e2e" -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: e2e
e2e: guard controlplane ## tests against a real kube-apiserver and kube-scheduler (ARGS as for unit)
	@$(PY) -m pytest tests/e2e -m "not long" -n $(WORKERS) --dist loadgroup $(ARGS)

.PHONY: e2e-long
e2e-long: guard controlplane ## the fail-overs that take minutes: half a replica that is cut off
	@$(PY) -m pytest tests/e2e -m long $(ARGS)

.PHONY: soak
soak: guard $(STAMP) ## the controller's state machine for 200,000 steps, resumable (STEPS=, SEED=)
	@PYTHONPATH=tests $(PY) tests/machine/soak.py $(if $(STEPS),--steps $(STEPS)) \
	  $(if $(SEED),--seed $(SEED))

# Why this machine can't have a real node; empty: it can.
NO_NODE = PYTHONPATH=tests $(PY) -m node.ground

.PHONY: e2e-node
e2e-node: guard controlplane ## tests on a real kubelet and containerd (root)
	@reason="$$($(NO_NODE))"; \
	if test -n "$$reason"; then \
	  echo "e2e-node: SKIPPED, NO REAL NODE ON THIS MACHINE: $$reason"; \
	else \
	  tests/controlplane/build.sh node; \
	  $(PY) -m pytest tests/e2e_node $(ARGS); \
	fi

.PHONY: controlplane
controlplane: $(STAMP) ## build the control plane's programs (minutes at first, cached afterwards)
	@tests/controlplane/build.sh

##@ Measure it

# All of it is for a machine with nothing else to do; ARGS narrows it, and --help says how. What a Pod
# costs is measured by the Python of the image, Debian's, where the machine has it: for an answer to
# /filter it takes a quarter less than one built without a profile of itself, as version managers do.
MEASURED_PYTHON ?= $(or $(shell /usr/bin/python3.11 -c 'import ensurepip; print("/usr/bin/python3.11")' \
  2>/dev/null),$(PYTHON))
MEASURE = @$(MAKE) --no-print-directory VENV=$(CURDIR)/.bench/venv PYTHON=$(MEASURED_PYTHON)

.PHONY: bench
bench: ## Pods bound a second, side by side with kube-scheduler (ARGS="--nodes 1000")
	$(MEASURE) measure-cluster

.PHONY: bench-scale
bench-scale: ## start, memory and waiting Pods at 5,000 nodes (ARGS="--load")
	$(MEASURE) measure-scale

.PHONY: bench-filter
bench-filter: ## how fast /filter answers
	$(MEASURE) measure-filter

.PHONY: bench-micro
bench-micro: ## engine, ledger and reading, each by itself (OUT=file.json, ARGS as for unit)
	$(MEASURE) measure-micro

.PHONY: bench-agent
bench-agent: ## what an agent of eight cards costs its node
	$(MEASURE) measure-agent

.PHONY: bench-compare
bench-compare: $(STAMP) ## two results as ratios (A=before.json B=after.json)
	@PYTHONPATH=tests $(PY) -m bench.compare $(A) $(B)

.PHONY: measure-cluster measure-scale measure-filter measure-micro measure-agent
measure-cluster: controlplane
	@PYTHONPATH=tests $(PY) -m bench.cluster_bench $(ARGS)
measure-scale: controlplane
	@PYTHONPATH=tests $(PY) -m bench.scale_bench $(ARGS)
measure-filter: $(STAMP)
	@PYTHONPATH=tests $(PY) tests/bench/filter_bench.py $(ARGS)
measure-micro: $(STAMP)
	@PYTHONPATH=tests $(PY) -m pytest tests/bench/micro_*.py -p no:cacheprovider \
	  -o timeout=120 --benchmark-json=$(or $(OUT),.bench/micro.json) --benchmark-columns=min,median \
	  --benchmark-sort=fullname --benchmark-disable-gc $(ARGS)
measure-agent: controlplane
	@PYTHONPATH=tests $(PY) tests/bench/agent_bench.py

.PHONY: coverage
coverage: guard $(STAMP) ## unit tests, and the lines and branches they leave out
	@$(VENV)/bin/coverage run -m pytest -q -m "not e2e" $(ARGS)
	@$(VENV)/bin/coverage report

# mutmut knows no source root but src/: see [tool.mutmut] in pyproject.toml.
.PHONY: mutants
mutants: guard $(STAMP) ## change the core in small ways and see whether a test notices (long)
	@mkdir -p .mutmut
	@ln -sfn ../operator .mutmut/src
	@ln -sfn ../tests .mutmut/tests
	@ln -sfn ../pyproject.toml .mutmut/pyproject.toml
	@cd .mutmut && $(VENV)/bin/mutmut run && $(VENV)/bin/mutmut results

##@ Housekeeping

.PHONY: clean
clean: ## remove the environment and every cache of this directory
	@rm -rf .venv .mutmut .soak .hypothesis .benchmarks .coverage .coverage.* dist
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find operator webhook tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@ /{print "\n" substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: guard
guard:
	@test ! -e operator/__init__.py || { \
	  echo "guard: operator/__init__.py must not exist, it makes the directory shadow the standard" \
	    "library's module 'operator', and Python dies at its start"; exit 1; }

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	    "name another with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setup: installing into $(VENV:$(CURDIR)/%=%) what constraints.txt pins"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[dev]'
	@touch $@
