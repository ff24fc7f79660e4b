# Everything happens in .venv (or VENV=folder); the two commands of the README are `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Real data for tests and experiments, where they lie beside the project.
ifeq ($(origin DISCOVR_SC_DATA), undefined)
  ifneq ($(wildcard ../shared/data),)
    export DISCOVR_SC_DATA := $(abspath ../shared/data)
  endif
endif

.PHONY: demo test test-long coverage bench lint types docs notebooks gallery screenshots tables install clean

demo: $(VENV)/.installed
	$(BIN)/discovr-sc demo --out demo

test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not long"

test-long: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -m long

bench: $(VENV)/.installed
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/discovr-sc bench

coverage: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not long" --cov --cov-report=term

lint: $(VENV)/.installed-dev types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/python -m mypy

docs: $(VENV)/.installed-doc
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	@echo "Open docs/_build/html/index.html"

# Needs chromium. Sheets of every page, phone and desktop, light and dark; fails where a page is too wide.
screenshots: docs
	$(BIN)/python docs/screenshots.py docs/_build/html docs/_build/sheets

notebooks: $(VENV)/.installed-doc
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb
	$(BIN)/python docs/clean_notebooks.py
	$(BIN)/python docs/make_picture.py

gallery: $(VENV)/.installed
	$(BIN)/python docs/make_gallery.py

tables: $(VENV)/.installed
	$(BIN)/python docs/make_tables.py

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "discovr_sc needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); the first time this takes some minutes."
	$(INSTALL) "pip>=25.1" # knows dependency groups
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) -e . --group test
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e . --group dev
	touch $@

$(VENV)/.installed-doc: $(VENV)/.installed
	$(INSTALL) -e . --group doc
	touch $@

clean:
	rm -rf .venv demo docs/_build docs/generated .coverage* .mypy_cache .pytest_cache .ruff_cache
