# `make demo` and `make test` work from a clean clone; both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Two workers, one thread each: more would only get in each other's way on two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

.PHONY: demo test lint types tests soak clean

demo: .venv/.demo
	$(BIN)/wcl demo

test: lint types tests

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

tests: .venv/.dev
	$(PYTEST) -m "not soak"

soak: .venv/.dev
	$(PYTEST) -m soak

.venv/bin/python:
	@echo "installing into .venv: this takes a minute or two"
	$(PYTHON) -m venv .venv

# PIP_CONSTRAINT reaches the isolated build environment too.
.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ .venv/.demo

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
