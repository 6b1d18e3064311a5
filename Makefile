# Everything a developer or CI runs. `make test` alone installs what it needs.

VENV := .venv
PY := $(VENV)/bin/python
NPX := node_modules/.bin
BUNDLE := src/optchat/hosts/opencode/plugin/optchat.js
PLUGIN_SRC := plugins/opencode/src/index.ts
SCRATCH := .cache
PYTHONS := python3.13 python3.12 python3.11 python3
PY_DIRS := src tests tools bench
TS_DIRS := plugins/opencode tools
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup node test mutants check fmt lint format-check types imports plugin-types wire \
	wire-fresh bundle-fresh docs docs-fresh leaks mutants mutants-fresh crash fuzz e2e bench plugin lock demo soak clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- installation ---------------------------------------------------------------------------------

setup: $(VENV)/.package node ## install Python and Node dependencies from the lock files

# A candidate must run, not only be on the path: version managers leave names that answer with an error.
$(VENV)/.created:
	@for name in $(PYTHONS); do \
		if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			echo "setup: $$("$$name" --version) as $$name"; \
			"$$name" -m venv --clear $(VENV) && touch $@ && exit 0; exit 1; \
		fi; \
	done; echo "setup: no Python 3.11 or later found (tried: $(PYTHONS))" >&2; exit 1

$(VENV)/.locked: requirements-dev.lock | $(VENV)/.created
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.locked
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

# Node is for the plugin's tools and for the host that the e2e tests run; Python works without.
# In CI nothing may be left out, so that its absence is an error there.
node:
	@if command -v npm >/dev/null 2>&1 && \
		node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null; then \
		$(MAKE) --no-print-directory --silent node_modules/.locked; \
	elif [ -n "$$CI" ]; then \
		echo "setup: CI needs Node 20 or later with npm" >&2; exit 1; \
	else \
		echo "setup: no Node 20 or later with npm: the plugin's checks, type checks and tests with the real host are off"; \
	fi

node_modules/.locked: package-lock.json .npmrc
	npm ci --loglevel=error
	@# The one install script that is needed: it links the host's binary for this processor into place.
	@node node_modules/opencode-ai/postinstall.mjs
	@touch $@

# --- tests ----------------------------------------------------------------------------------------

test: setup ## all tests (T='-k name' or T=tests/unit narrows them)
	$(if $(T),,@if [ -e node_modules/.locked ]; then node plugins/opencode/test/run.mjs; fi)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(T)

crash: setup ## power cuts at every write and sync, and 20 kill -9 at each kind of commit
	OPTCHAT_TEST_CUTS=all OPTCHAT_TEST_SEEDS=20 $(PY) -m pytest -s -p no:randomly \
		tests/durability/test_power_loss.py tests/acceptance/test_crash_boundaries.py

fuzz: setup ## any query and any arguments for five minutes (SECONDS=…, SEED=…), and 2,000 histories of scopes
	OPTCHAT_TEST_FUZZ_SECONDS=$(or $(SECONDS),300) $(if $(SEED),OPTCHAT_TEST_FUZZ_SEED=$(SEED)) \
		OPTCHAT_TEST_HISTORIES=2000 $(PY) -m pytest -s -p no:randomly \
		tests/properties/test_queries.py tests/properties/test_scope_histories.py

e2e: setup ## only the tests that run the real OpenCode
	$(PY) -m pytest -m host $(T)

mutants: setup ## take away what each row of §16 rests on; its test must fail (ROWS='"Edit and rewind" Fork')
	$(PY) tools/mutants.py $(ROWS)

# --- checks ---------------------------------------------------------------------------------------

check: lint format-check types imports plugin-types wire-fresh bundle-fresh docs-fresh leaks mutants-fresh ## what CI checks before the tests

# Each mechanism that a row of §16 rests on is still where the mutant looks for it.
mutants-fresh: setup
	$(PY) tools/mutants.py --check

lint: setup ## ruff and biome
	$(PY) -m ruff check $(PY_DIRS)
	$(NPX)/biome lint --error-on-warnings $(TS_DIRS)

format-check: setup
	$(PY) -m ruff format --check $(PY_DIRS)
	$(NPX)/biome format $(TS_DIRS)

fmt: setup ## format and apply safe fixes
	$(PY) -m ruff check --fix-only --quiet $(PY_DIRS)
	$(PY) -m ruff format $(PY_DIRS)
	$(NPX)/biome check --write $(TS_DIRS)

types: setup ## pyright, strict over src
	$(NPX)/pyright

imports: setup ## the layer rules in pyproject.toml
	$(VENV)/bin/lint-imports --no-cache

plugin-types: setup ## tsc, strict over the plugin
	$(NPX)/tsc --project plugins/opencode --noEmit

bundle-fresh: setup
	@mkdir -p $(SCRATCH)
	@$(MAKE) --no-print-directory --silent plugin BUNDLE=$(SCRATCH)/optchat.js
	@cmp $(SCRATCH)/optchat.js $(BUNDLE) || { echo "bundle-fresh: the bundle is stale, run: make plugin" >&2; exit 1; }

wire-fresh: setup
	$(PY) tools/gen_wire.py --check

docs-fresh: setup
	$(PY) tools/gen_docs.py --check

leaks: setup ## no machine paths, registry names or download addresses in tracked files
	$(PY) tools/check_repo.py

# --- generated files ------------------------------------------------------------------------------

plugin: setup ## build the plugin's bundle
	@$(NPX)/esbuild $(PLUGIN_SRC) --bundle --format=esm --target=es2022 --platform=node \
		--banner:js='// Generated from plugins/opencode by `make plugin`. Do not edit.' \
		--charset=utf8 --log-level=warning --outfile=$(BUNDLE)

wire: setup ## write the plugin's types from the protocol in src/optchat/wire.py
	$(PY) tools/gen_wire.py

docs: setup ## write docs/protocol.md and docs/cli.md
	$(PY) tools/gen_docs.py

COMPILE = uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header
lock: ## renew the lock files within pyproject.toml and package.json (needs uv; UP=--upgrade for newer versions)
	$(COMPILE) $(UP) --output-file requirements.lock
	$(COMPILE) $(UP) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	npm install --package-lock-only --loglevel=error
	node tools/complete_lock.mjs

# --- running --------------------------------------------------------------------------------------

soak: setup ## four clients at random for ten minutes, with kills (SECONDS=…, SEED=…)
	OPTCHAT_SOAK_SECONDS=$(or $(SECONDS),600) $(if $(SEED),OPTCHAT_SOAK_SEED=$(SEED)) \
		$(PY) -m pytest tests/soak -s

bench: setup ## one benchmark: make bench NAME=… writes bench/results/NAME.json
	@if [ -z "$(NAME)" ]; then echo "bench: which one? make bench NAME=…" >&2; exit 2; fi
	$(PY) -m bench.run --name $(NAME)

demo: setup ## a guided tour with a deterministic model
	$(VENV)/bin/optchat demo

clean: ## remove what setup and the checks made
	rm -rf $(VENV) node_modules $(SCRATCH) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
