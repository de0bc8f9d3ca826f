# Two commands: `make demo` and `make test`. Both set up everything they need in .venv.
# `make test` runs the laws on a sample of the catalogue, `make rest` on the rest of it, `make test-all` both.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# two test processes on two cores: oneDNN's kernels for ARM would each take both
export OMP_NUM_THREADS ?= 1
# tests start hundreds of processes: where nothing compiled may be kept, each compiles fairsilo again, half a second
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test rest test-all test-deploy wheels mutants lint style bench docs site setup clean
.DEFAULT_GOAL := demo

demo: $(READY)
	$(BIN)/fairsilo demo

# COVERAGE=yes, as CI has it, also counts which lines the tests reach (a fifth more time)
COVERAGE ?=
test: $(READY) style
	$(BIN)/python -m pytest -n 2 tests/laws
	$(BIN)/python -m pytest -n 2 --ignore=tests/laws $(if $(COVERAGE),--cov --cov-report=)
	$(if $(COVERAGE),$(BIN)/coverage report --fail-under=95)

# what `make test` leaves out of the laws, and tests marked slow
rest: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --rest

# every law on every entry of the catalogue
test-all: test rest

# real servers and sites as processes on this machine, certificates and kills included
test-deploy: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m deploy tests/deploy

# not part of CI: the wheel in fresh environments of all Pythons at hand, 3.11 to 3.13 (gigabytes, where only PyTorch for GPUs is to be had)
wheels: $(READY)
	EVERY_PYTHON=yes $(BIN)/python -m pytest --rest tests/test_wheel.py -k fresh

# not part of CI: changes to the sources that the tests must notice (about half an hour; SAMPLE=50 takes less)
SAMPLE ?= 150
mutants: $(READY)
	$(BIN)/python tests/mutants/named.py
	$(BIN)/python tests/mutants/sample.py --count $(SAMPLE)

# types too, which take a minute the first time; CI runs it before the tests
lint: $(READY) style
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# the documentation as a site in build/site; a link that leads nowhere is an error (docs/hooks.py looks at the built pages too)
site: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs: $(READY)
	$(BIN)/python docs/generate.py

setup: $(READY)

# torch first and by itself, at the pinned version: no other package may choose its build
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fairsilo needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "no venv: install the python3-venv package"; exit 1; }
	@echo "setting up $(VENV), once: about three minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,lora,pretrained,flare,synth]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .coverage*
