# Two commands: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint coverage bench docs setup clean
.DEFAULT_GOAL := demo

demo: $(READY)
	$(BIN)/fairsilo run

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 tests/laws
	$(BIN)/python -m pytest -n 2 --ignore=tests/laws --cov --cov-report=
	$(BIN)/coverage report --fail-under=95

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

docs: $(READY)
	$(BIN)/python docs/generate.py

setup: $(READY)

# torch first and by itself, at the pinned version: no other package may choose its build
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fairsilo needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "no venv: install the python3-venv package"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,lora]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .coverage*
