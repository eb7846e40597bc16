# `make demo` and `make test` work from a clean clone; both set up .venv first.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Two workers with one thread each: more would compete for two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

.PHONY: demo test lint types tests soak bench docs audit clean

demo: .venv/.demo
	$(BIN)/wcl demo

test: lint types tests

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

tests: .venv/.dev
	$(PYTEST) --dist loadfile -m "not soak"

soak: .venv/.dev
	$(PYTEST) --dist load --maxschedchunk 1 -m soak

bench: .venv/.bench
	@for name in augment labels step maps arithmetic crops knn eval startup photos peers scale growth; do \
	  echo "$$name:" && $(BIN)/python -m benchmarks $$name || exit 1; done

# Broken links and references fail.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in site/index.html"

# Look up known vulnerabilities of the tested versions; fails if a lookup fails.
audit: .venv/.audit
	@.venv/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
	  -r constraints.txt 2>.venv/audit.log \
	  || { grep -v WARNING .venv/audit.log | tail -n 1; \
	       echo "audit: a version is vulnerable, or the lookup failed: see above"; exit 1; }

.venv/pyvenv.cfg:
	@echo "installing into .venv: this takes a minute or two"
	$(PYTHON) -m venv .venv

# PIP_CONSTRAINT reaches the isolated build environment too.
.venv/.demo: .venv/pyvenv.cfg pyproject.toml constraints.txt
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.dev: .venv/pyvenv.cfg pyproject.toml constraints.txt
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ .venv/.demo

.venv/.bench: .venv/.demo
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	touch $@

# In its own environment, so that it does not change versions in .venv.
.venv/.audit: .venv/pyvenv.cfg
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis site
