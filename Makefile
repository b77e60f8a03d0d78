# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-long check bench bench-peers soak clean

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing kbproc and what it needs (a minute or two)…"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models,dev]' 2>&1 \
		| grep -v '^WARNING: Location' || true
	@$(BIN)/python -c 'import kbproc, duckdb, tantivy, torch, pytest' && touch $@

demo: $(READY)
	@$(BIN)/python demo/run.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/house
	$(BIN)/kbproc gen --check

# A file's tests stay together, for what they share; the slowest files begin: see tests/conftest.py.
TESTS := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=10

test: check
	$(TESTS)

test-long: check
	KBPROC_TEST_PROFILE=long $(TESTS)

bench: $(READY)
	$(BIN)/python -m bench

# Beside what users would pick instead: some 2 GB into .peers/ at first, then some 15 minutes.
bench-peers: $(READY)
	$(BIN)/python -m bench.peers
	$(BIN)/python -m bench.performance

soak: $(READY)
	$(BIN)/python -m bench.soak --minutes 20

clean:
	rm -rf .venv .peers .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
